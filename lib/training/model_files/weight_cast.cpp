#include "training/model_files/weight_cast.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "fp8lab/cast/encode.hpp"
#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/first_error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/tensors/packed.hpp"
#include "hwy/cache_control.h"

namespace fp8lab {
namespace {

/// Elements of a part: its floats and codes stay in a core's second cache.
constexpr std::int64_t kPart = std::int64_t{1} << 17;

/// Elements after which memory is given back: that stops all threads of the process.
constexpr std::int64_t kStrip = std::int64_t{1} << 24;

/// Rows [first, first + rows) of a weight.
struct Rows {
  std::int64_t first = 0;
  std::int64_t rows = 0;
};

/// How many rows a part has: whole blocks of `block` rows.
std::int64_t rows_of_part(std::int64_t k, std::int64_t block) {
  const std::int64_t blocks = kPart / std::max<std::int64_t>(1, k * block);
  return std::max<std::int64_t>(1, blocks) * block;
}

std::span<const std::byte> bytes_of(const TensorView& weight, Rows part) {
  const auto row = static_cast<std::size_t>(weight.shape[1]) * element_bytes(weight.type);
  return weight.bytes.subspan(static_cast<std::size_t>(part.first) * row,
                              static_cast<std::size_t>(part.rows) * row);
}

/// Bytes of the file that are asked for ahead of those that are read: it is mapped, and what reads
/// memory ahead stops where a page ends.
constexpr std::size_t kAhead = 2048;
constexpr std::size_t kLine = 64;

void widen_bf16(const std::byte* bytes, std::span<float> values) {
  constexpr std::size_t kBlock = kLine / 2;
  const auto widen_some = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      std::uint16_t code = 0;
      std::memcpy(&code, bytes + 2 * i, sizeof code);
      values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(code) << 16);
    }
  };
  std::size_t i = 0;
  for (; i + kBlock <= values.size(); i += kBlock) {
    // Past the part's end is the next one, or nothing: to ask for it is no access.
    hwy::Prefetch(bytes + 2 * i + kAhead);
    widen_some(i, i + kBlock);
  }
  widen_some(i, values.size());
}

/// Elements at any alignment, widened exactly.
void widen(ElementType type, std::span<const std::byte> bytes, std::span<float> values) {
  if (type == ElementType::bf16) return widen_bf16(bytes.data(), values);
  if (type == ElementType::f32) {
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return;
  }
  const std::span<const float> table = decode_table(FormatId::f16);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t code = 0;
    std::memcpy(&code, bytes.data() + 2 * i, sizeof code);
    values[i] = table[code];
  }
}

/// Runs `work` on parts of `step` rows of `all`, on all threads.
template <class Work>
void for_each_part(Rows all, std::int64_t step, const Work& work) {
  const int threads = team_size(0);
  const std::int64_t parts = (all.rows + step - 1) / step;
  FirstError error;
#pragma omp parallel num_threads(threads)
  {
    auto local = work.make();
#pragma omp for schedule(dynamic)
    for (std::int64_t p = 0; p < parts; ++p)
      error.guard([&] {
        work.run(local, Rows{all.first + p * step, std::min(step, all.rows - p * step)});
      });
  }
  error.rethrow();
}

/// The largest magnitude of a weight whose tile it all is.
struct AmaxWork {
  const TensorView& weight;
  bool ignore_nan;
  std::span<float> largest;  ///< a place a part
  std::int64_t step;

  [[nodiscard]] std::vector<float> make() const { return {}; }
  void run(std::vector<float>& values, Rows part) const {
    const FloatEnvironment environment;
    values.resize(static_cast<std::size_t>(part.rows * weight.shape[1]));
    widen(weight.type, bytes_of(weight, part), values);
    largest[static_cast<std::size_t>(part.first / step)] = amax(values, ignore_nan);
  }
};

/// A thread's memory.
struct CastMemory {
  std::vector<float> values;
  QuantizedTensor quantized;
};

/// How many codes are `nan` under `mask`; most often none, which is seen faster.
std::int64_t count_codes(std::span<const std::uint8_t> codes, std::uint8_t mask, std::uint8_t nan) {
  std::uint8_t found = 0;
  for (const std::uint8_t code : codes) found |= static_cast<std::uint8_t>((code & mask) == nan);
  if (found == 0) return 0;
  return std::count_if(codes.begin(), codes.end(),
                       [=](std::uint8_t code) { return (code & mask) == nan; });
}

/// Of elements and of scales; FP4 and FP6 have none, and scales no sign.
std::int64_t count_nan(const QuantizedTensor& q) {
  return (q.format == FormatId::e4m3fn ? count_codes(q.codes, 0x7f, 0x7f) : 0) +
         count_codes(q.e8m0, 0xff, 0xff) + count_codes(q.ue4m3, 0x7f, 0x7f);
}

std::span<const std::uint8_t> scale_codes_of(const QuantizedTensor& q) {
  return q.e8m0.empty() ? std::span<const std::uint8_t>(q.ue4m3) : q.e8m0;
}

struct CastWork {
  const Recipe& recipe;
  float known_amax;  ///< of a recipe that is told by calibration
  const TensorView& weight;
  const TakeCodes& take;
  std::int64_t block;
  std::int64_t tile_columns;
  bool one_scale;  ///< all parts have the same
  std::span<float> inverse_scales;
  std::span<std::uint8_t> scale_codes;  ///< empty where the recipe has none
  std::span<std::int64_t> nan_codes;    ///< a place a part
  std::int64_t step;

  [[nodiscard]] CastMemory make() const { return {}; }
  void run(CastMemory& memory, Rows part) const {
    const std::int64_t k = weight.shape[1];
    memory.values.resize(static_cast<std::size_t>(part.rows * k));
    widen(weight.type, bytes_of(weight, part), memory.values);
    Quantizer quantizer(recipe);
    if (recipe.source == ScaleSource::calibration) quantizer.observe({{&known_amax, 1}, 1, 1});
    quantizer.quantize_into({memory.values, part.rows, k}, memory.quantized, false, 1);
    const QuantizedTensor& q = memory.quantized;
    take(part.first * k, q.codes);
    nan_codes[static_cast<std::size_t>(part.first / step)] = count_nan(q);
    if (one_scale && part.first != 0) return;
    const auto at = static_cast<std::size_t>(part.first / block * tile_columns);
    std::copy(q.inverse_scales.begin(), q.inverse_scales.end(), inverse_scales.subspan(at).begin());
    const std::span<const std::uint8_t> codes = scale_codes_of(q);
    if (!codes.empty()) std::copy(codes.begin(), codes.end(), scale_codes.subspan(at).begin());
  }
};

void require_weight(const Recipe& recipe, const TensorView& weight) {
  require(weight.shape.size() == 2 && !weight.fortran_order, "weight", "row-major [rows, k]",
          shape_text(weight.shape));
  require(is_float_of_32_bits_or_fewer(weight.type), "weight", "f32, f16 or bf16 elements",
          to_string(weight.type));
  require(recipe.row_block > 0 || recipe.k_block == 0, "recipe",
          "tiles of a row, a block or the tensor",
          fmt::format("{} x {}", recipe.row_block, recipe.k_block));
  require(weight.shape[0] % recipe.rows_multiple == 0, "weight",
          fmt::format("rows divisible by {}", recipe.rows_multiple), shape_text(weight.shape));
  require(weight.shape[1] % recipe.k_multiple == 0, "weight",
          fmt::format("k divisible by {}", recipe.k_multiple), shape_text(weight.shape));
}

/// A scale of the whole tensor: every part gets the scale of all of them.
Recipe with_known_amax(Recipe recipe) {
  recipe.source = ScaleSource::calibration;
  recipe.rows_multiple = 1;
  recipe.k_multiple = 1;
  return recipe;
}

QuantizedWeight quantize_at_once(const Recipe& recipe, const TensorView& weight,
                                 const TakeCodes& take) {
  const std::vector<float> values = to_float(weight);
  QuantizedTensor q = quantize(recipe, {values, weight.shape[0], weight.shape[1]});
  take(0, q.codes);
  const std::span<const std::uint8_t> codes = scale_codes_of(q);
  const std::int64_t nan = count_nan(q);
  return {std::move(q.inverse_scales), {codes.begin(), codes.end()}, {}, nan};
}

}  // namespace

float weight_amax(const Recipe& recipe, const TensorView& weight) {
  const std::int64_t rows = weight.shape[0];
  const std::int64_t step = rows_of_part(weight.shape[1], 1);
  std::vector<float> largest(static_cast<std::size_t>((rows + step - 1) / step));
  const bool ignore_nan = amax_ignores_nan(recipe.rule);
  for_each_part({0, rows}, step, AmaxWork{weight, ignore_nan, largest, step});
  return amax(largest, ignore_nan);
}

QuantizedWeight quantize_weight(const Recipe& recipe, const TensorView& weight,
                                const TakeCodes& take, const ReleasePart& release,
                                std::optional<float> known_amax) {
  require_weight(recipe, weight);
  const std::int64_t rows = weight.shape[0];
  const std::int64_t k = weight.shape[1];
  const bool whole = recipe.row_block == 0;
  const bool two_level = is_two_level(recipe.rule);
  float largest = 0.0F;
  if (whole || two_level) largest = known_amax ? *known_amax : weight_amax(recipe, weight);
  TensorScale tensor;
  if (two_level) tensor = tensor_scale(recipe.rule, largest);
  // Calibration refuses NaN and Inf; the rule itself has an answer.
  if (!std::isfinite(largest)) {
    QuantizedWeight quantized = quantize_at_once(recipe, weight, take);
    quantized.tensor = tensor;
    return quantized;
  }
  const std::int64_t block = whole ? 1 : recipe.row_block;
  const std::int64_t columns = recipe.k_block == 0 ? 1 : ceil_divide(k, recipe.k_block);
  QuantizedWeight result;
  result.tensor = tensor;
  result.inverse_scales.resize(
      whole ? 1 : static_cast<std::size_t>(ceil_divide(rows, block) * columns));
  if (two_level || is_mx(recipe.rule)) result.scale_codes.resize(result.inverse_scales.size());
  const std::int64_t step = rows_of_part(k, block);
  std::vector<std::int64_t> nan_codes(static_cast<std::size_t>((rows + step - 1) / step));
  Recipe parts = whole || two_level ? with_known_amax(recipe) : recipe;
  parts.rows_multiple = 1;  // the whole was looked at
  const CastWork work{parts,
                      largest,
                      weight,
                      take,
                      block,
                      columns,
                      whole,
                      result.inverse_scales,
                      result.scale_codes,
                      nan_codes,
                      step};
  const std::int64_t strip = std::max<std::int64_t>(1, kStrip / (k * step)) * step;
  for (std::int64_t row = 0; row < rows; row += strip) {
    const Rows all{row, std::min(strip, rows - row)};
    for_each_part(all, step, work);
    release(bytes_of(weight, all));
  }
  for (const std::int64_t count : nan_codes) result.nan_codes += count;
  return result;
}

namespace {

/// Multiplies the values of a row by the scales of their tiles.
void multiply_row(const float* scales, std::int64_t k_block, std::span<float> values) {
  const auto block = static_cast<std::size_t>(k_block);
  for (std::size_t begin = 0; begin < values.size(); begin += block, ++scales) {
    const std::size_t end = std::min(values.size(), begin + block);
    const float scale = *scales;
    for (std::size_t c = begin; c < end; ++c) values[c] *= scale;
  }
}

/// Elements whose exponent is all ones.
template <class Word>
NonFiniteValues count_non_finite_words(std::span<const std::byte> bytes, Word exponent) {
  NonFiniteValues counts;
  const auto most = static_cast<Word>(~(Word{1} << (8 * sizeof(Word) - 1)));
  std::uint32_t nan = 0;
  std::uint32_t special = 0;
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(Word)) {
    Word word = 0;
    std::memcpy(&word, bytes.data() + i, sizeof word);
    word = static_cast<Word>(word & most);
    special += word >= exponent ? 1U : 0U;
    nan += word > exponent ? 1U : 0U;
  }
  counts.nan = nan;
  counts.infinite = std::int64_t{special} - std::int64_t{nan};
  return counts;
}

NonFiniteValues count_non_finite(std::span<const std::byte> bytes, ElementType type) {
  if (type == ElementType::f32) return count_non_finite_words<std::uint32_t>(bytes, 0x7f800000U);
  const std::uint16_t exponent = type == ElementType::bf16 ? 0x7f80 : 0x7c00;
  return count_non_finite_words<std::uint16_t>(bytes, exponent);
}

/// A thread's memory.
struct BackMemory {
  std::vector<std::byte> codes;  ///< one a byte, where the file packs them
  std::vector<float> values;
  std::vector<std::uint16_t> words;
};

struct BackWork {
  const ScaledCodes& weight;
  FormatId format;
  ElementType type;
  const TakeValues& take;
  std::int64_t columns;
  std::span<NonFiniteValues> counts;  ///< a place a part
  std::int64_t step;

  [[nodiscard]] BackMemory make() const { return {}; }
  void run(BackMemory& memory, Rows part) const {
    const FloatEnvironment environment;
    const std::int64_t k = weight.codes.shape[1];
    memory.values.resize(static_cast<std::size_t>(part.rows * k));
    decode(codes_of(memory, part), memory.values, {.format = format});
    for (std::int64_t r = 0; r < part.rows; ++r)
      multiply_row(weight.inverse_scales.data() + (part.first + r) / weight.row_block * columns,
                   weight.k_block,
                   std::span(memory.values)
                       .subspan(static_cast<std::size_t>(r * k), static_cast<std::size_t>(k)));
    const std::span<const std::byte> bytes = narrowed(memory);
    counts[static_cast<std::size_t>(part.first / step)] = count_non_finite(bytes, type);
    take(part.first * k, bytes);
  }

 private:
  [[nodiscard]] std::span<const std::uint8_t> codes_of(BackMemory& memory, Rows part) const {
    const TensorView& all = weight.codes;
    const std::size_t row = all.bytes.size() / static_cast<std::size_t>(all.shape[0]);
    std::span<const std::byte> bytes = all.bytes.subspan(static_cast<std::size_t>(part.first) * row,
                                                         static_cast<std::size_t>(part.rows) * row);
    if (is_packed(all.type)) {
      memory.codes = unpack_codes({all.type, {part.rows, all.shape[1]}, bytes});
      bytes = memory.codes;
    }
    return {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
  }

  [[nodiscard]] std::span<const std::byte> narrowed(BackMemory& memory) const {
    if (type == ElementType::f32) return std::as_bytes(std::span(memory.values));
    memory.words.resize(memory.values.size());
    encode(memory.values, std::span(memory.words),
           {.format = *format_of(type), .policy = kMlDtypes});
    return std::as_bytes(std::span(memory.words));
  }
};

/// Throws `Error` for codes, scales or a type that do not fit.
void require_scaled(const ScaledCodes& weight, ElementType type) {
  const TensorView& codes = weight.codes;
  const std::optional<FormatId> id = format_of(unpacked(codes.type));
  require(codes.shape.size() == 2 && id && format(*id).storage_bits == 8 && weight.row_block > 0 &&
              weight.k_block > 0,
          "codes", "one code per byte or packed, [rows, k] in blocks", shape_text(codes.shape));
  require(is_float_of_32_bits_or_fewer(type), "type", "f32, f16 or bf16", to_string(type));
  const auto scales = static_cast<std::size_t>(ceil_divide(codes.shape[0], weight.row_block) *
                                               ceil_divide(codes.shape[1], weight.k_block));
  require(weight.inverse_scales.size() == scales, "scales", fmt::format("{}", scales),
          fmt::format("{}", weight.inverse_scales.size()));
  const std::size_t bytes = static_cast<std::size_t>(codes.size()) * element_bits(codes.type) / 8;
  require(codes.bytes.size() == bytes, "codes", fmt::format("{} bytes", bytes),
          fmt::format("{}", codes.bytes.size()));
}

}  // namespace

NonFiniteValues dequantize_parts(const ScaledCodes& weight, ElementType type,
                                 const TakeValues& take, const ReleasePart& release) {
  require_scaled(weight, type);
  NonFiniteValues total;
  const std::int64_t rows = weight.codes.shape[0];
  const std::int64_t k = weight.codes.shape[1];
  if (rows * k == 0) return total;
  const std::int64_t step = rows_of_part(k, 1);
  std::vector<NonFiniteValues> counts(static_cast<std::size_t>(ceil_divide(rows, step)));
  const BackWork work{weight, *format_of(unpacked(weight.codes.type)), type,
                      take,   ceil_divide(k, weight.k_block),          counts,
                      step};
  const std::int64_t strip = std::max<std::int64_t>(1, kStrip / (k * step)) * step;
  const auto row_bytes = weight.codes.bytes.size() / static_cast<std::size_t>(rows);
  for (std::int64_t row = 0; row < rows; row += strip) {
    const Rows all{row, std::min(strip, rows - row)};
    for_each_part(all, step, work);
    release(weight.codes.bytes.subspan(static_cast<std::size_t>(row) * row_bytes,
                                       static_cast<std::size_t>(all.rows) * row_bytes));
  }
  for (const NonFiniteValues& one : counts) {
    total.nan += one.nan;
    total.infinite += one.infinite;
  }
  return total;
}

NonFiniteValues dequantize_weight(const ScaledCodes& weight, ElementType type,
                                  std::span<std::byte> bytes) {
  require_scaled(weight, type);
  const std::size_t width = element_bytes(type);
  const std::size_t size = static_cast<std::size_t>(weight.codes.size()) * width;
  require(bytes.size() == size, "bytes", fmt::format("{}", size), fmt::format("{}", bytes.size()));
  const auto take = [&](std::int64_t first, std::span<const std::byte> part) {
    if (!part.empty())
      std::memcpy(bytes.data() + static_cast<std::size_t>(first) * width, part.data(), part.size());
  };
  return dequantize_parts(weight, type, take, [](auto) {});
}

}  // namespace fp8lab
