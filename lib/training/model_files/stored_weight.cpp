#include "training/model_files/stored_weight.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/tensors/packed.hpp"
#include "training/model_files/blocked_scales.hpp"
#include "training/model_files/expert_cast.hpp"

namespace fp8lab {
namespace {

using Shape = std::vector<std::int64_t>;

std::string argument_of(const TensorSpec& spec) { return fmt::format("tensor '{}'", spec.name); }

void require_type(const TensorSpec& spec, bool fits, std::string_view expected) {
  require(fits, argument_of(spec), expected, to_string(spec.type));
}

bool is_e8m0_scale(ElementType type) {
  return type == ElementType::u8 || type == ElementType::e8m0fnu;
}

std::int64_t count_of(const TensorSpec& spec) { return element_count(spec.shape, spec.name); }

/// Codes of a byte: what config.json says, or E8M0 where only the tensor says that it is one.
WeightForm fp8_form(const StoredWeight& weight, const WeightForm& said, bool u8_is_e8m0) {
  const TensorSpec& scale = weight.scale.spec;
  const bool says_fp8 = format(said.format).storage_bits == 8 && said.format != FormatId::e2m1 &&
                        said.format != FormatId::e2m3 && said.format != FormatId::e3m2;
  WeightForm form = says_fp8 ? said : WeightForm();
  form.format = *format_of(weight.codes.type);
  if (form.scales == ScaleKind::e8m0) {
    require_type(scale, is_e8m0_scale(scale.type), "u8 or e8m0fnu scales");
    return form;
  }
  const bool fits = is_float_of_32_bits_or_fewer(scale.type) ||
                    scale.type == ElementType::e8m0fnu ||
                    (scale.type == ElementType::u8 && u8_is_e8m0);
  require_type(scale, fits, "f32, bf16, f16 or e8m0fnu scales");
  return form;
}

/// The format of packed codes by their own type, if it says one.
std::optional<FormatId> own_format(ElementType type) {
  return is_packed(type) ? format_of(unpacked(type)) : std::nullopt;
}

WeightForm packed_form(const StoredWeight& weight, const WeightForm& said) {
  const TensorSpec& scale = weight.scale.spec;
  WeightForm form = said;
  if (said.scales == ScaleKind::plain || said.format == FormatId::e4m3fn) {
    const bool two_level = scale.type == ElementType::e4m3fn;
    form = {FormatId::e2m1, two_level ? ScaleKind::two_level : ScaleKind::e8m0, 1,
            two_level ? 16 : 32};
    require_type(scale, two_level || scale.type == ElementType::e8m0fnu,
                 "e4m3fn or e8m0fnu scales of packed codes (FP4)");
  }
  if (const auto own = own_format(weight.codes.type)) form.format = *own;
  if (form.scales == ScaleKind::two_level)
    require_type(scale, scale.type == ElementType::e4m3fn, "e4m3fn scales");
  else
    require_type(scale, is_e8m0_scale(scale.type), "u8 or e8m0fnu scales");
  return form;
}

/// Sizes in codes, and the shape that is written.
void set_sizes(StoredWeight& weight) {
  Shape shape = weight.codes.shape;
  if (weight.names->turns) {
    require(shape.size() == 4 && shape[3] == 16, argument_of(weight.codes),
            "[experts, rows, k / 32, 16]", shape_text(shape));
    weight.batch = shape[0];
    weight.rows = shape[1];
    weight.k = shape[2] * 32;
    weight.turns_output = true;
    weight.written.shape = {weight.batch, weight.k, weight.rows};
    return;
  }
  const bool packs = is_packed_storage(weight.codes.type);
  require(!packs || shape.size() == 2 || shape.size() == 3, argument_of(weight.codes),
          "packed codes of 2 or 3 dimensions", shape_text(shape));
  if (packs && !is_packed(weight.codes.type))
    shape = shape_of_packed(packed(element_type_of(weight.form.format)), shape,
                            argument_of(weight.codes));
  weight.written.shape = shape;
  if (shape.size() == 3) {
    weight.batch = shape[0];
    shape.erase(shape.begin());
  }
  weight.rows = shape.size() < 2 ? 1 : shape[0];
  weight.k =
      weight.rows * weight.batch == 0
          ? 0
          : element_count(weight.written.shape, weight.codes.name) / weight.batch / weight.rows;
}

/// `shape` under the expert's dimension, where the weight has one.
Shape with_batch(const StoredWeight& weight, Shape shape) {
  if (weight.written.shape.size() == 3) shape.insert(shape.begin(), weight.batch);
  return shape;
}

struct Tiling {
  Shape shape;  ///< of the scales
  std::int64_t row_block;
  std::int64_t k_block;
};

/// The shapes of scales that fit a weight, with their tiles. `row_block`, `k_block`: as config.json
/// says.
std::vector<Tiling> plain_tilings(const StoredWeight& w, bool allows_groups) {
  const std::int64_t rows = std::max<std::int64_t>(1, w.rows);
  const std::int64_t k = std::max<std::int64_t>(1, w.k);
  const bool fused = w.written.shape.size() == 3;
  std::vector<Tiling> tilings;
  if (fused) {
    tilings.push_back({{w.batch}, rows, k});
    tilings.push_back({{w.batch, 1}, rows, k});
    tilings.push_back({{w.batch, 1, 1}, rows, k});
  }
  tilings.push_back({with_batch(w, {rows}), 1, k});
  tilings.push_back({with_batch(w, {rows, 1}), 1, k});
  if (w.written.shape.size() > 3) {
    Shape channels(w.written.shape.size(), 1);
    channels[0] = rows;
    tilings.push_back({channels, 1, k});
  }
  const std::int64_t block_rows = ceil_divide(w.rows, w.form.row_block);
  const std::int64_t block_columns = ceil_divide(w.k, w.form.k_block);
  tilings.push_back({with_batch(w, {block_rows, block_columns}), w.form.row_block, w.form.k_block});
  tilings.push_back(
      {with_batch(w, {block_rows, 1, block_columns, 1}), w.form.row_block, w.form.k_block});
  if (fused) tilings.push_back({{w.batch, 1, k}, rows, 1});
  if (allows_groups && w.k % 32 == 0) tilings.push_back({with_batch(w, {rows, w.k / 32}), 1, 32});
  return tilings;
}

void set_plain_tiles(StoredWeight& weight) {
  const TensorSpec& scale = weight.scale.spec;
  const bool both_empty = count_of(scale) == 0 && count_of(weight.codes) == 0;
  if (count_of(scale) == 1 || both_empty) {
    weight.row_block = std::max<std::int64_t>(1, weight.rows);
    weight.k_block = std::max<std::int64_t>(1, weight.k);
    return;
  }
  std::string expected = "scales [1]";
  const std::vector<Tiling> tilings = plain_tilings(weight, is_e8m0_scale(scale.type));
  for (std::size_t i = 0; i < tilings.size(); ++i) {
    const Tiling& tiling = tilings[i];
    if (scale.shape == tiling.shape) {
      weight.row_block = tiling.row_block;
      weight.k_block = tiling.k_block;
      return;
    }
    expected += (i + 1 == tilings.size() ? " or " : ", ") + shape_text(tiling.shape);
  }
  throw Error(argument_of(scale), expected, shape_text(scale.shape));
}

/// Codes and scales that lie as [experts, k, rows], as ModelOpt leaves the experts of models whose
/// own weights lie so.
bool set_turned(StoredWeight& weight) {
  const Shape& codes = weight.codes.shape;
  if (!weight.names->is_fused || codes.size() != 3 || weight.form.format != FormatId::e2m1)
    return false;
  const bool own = is_packed(weight.codes.type);
  if (own) return false;
  const std::int64_t k = codes[1] * 2;
  const std::int64_t group = weight.form.k_block;
  if (k % group != 0 || weight.scale.spec.shape != Shape{codes[0], k / group, codes[2]})
    return false;
  weight.rows = codes[2];
  weight.k = k;
  weight.is_turned = true;
  weight.turns_output = true;
  weight.written.shape = {weight.batch, k, codes[2]};
  return true;
}

void set_tensor_scale(StoredWeight& weight) {
  if (weight.form.scales != ScaleKind::two_level) return;
  const std::string name = fmt::format("{}{}", weight.module, weight.names->tensor_scale);
  require(weight.tensor_scale.has_value(), fmt::format("tensor '{}'", name),
          "the tensor's scale, one F32", "none");
  const TensorSpec& upper = weight.tensor_scale->spec;
  const std::int64_t count = count_of(upper);
  const bool fits = count == 1 || (count == weight.batch && upper.shape[0] == weight.batch);
  require_type(upper, upper.type == ElementType::f32 && fits,
               weight.batch == 1 ? "one f32" : fmt::format("one f32, or {}", weight.batch));
}

void set_group_tiles(StoredWeight& weight) {
  const TensorSpec& scale = weight.scale.spec;
  const std::int64_t group = weight.form.k_block;
  if (!set_turned(weight)) {
    require(weight.k % group == 0, argument_of(weight.codes),
            fmt::format("a multiple of {} elements per row", group), fmt::format("{}", weight.k));
    const std::int64_t columns = weight.k / group;
    Shape expected = with_batch(weight, {weight.rows, columns});
    const bool may_be_blocked = weight.names->for_tensor_cores;
    weight.is_blocked = may_be_blocked && scale.shape == blocked_shape(weight.rows, columns);
    if (may_be_blocked && !weight.is_blocked && scale.shape != expected)
      expected = blocked_shape(weight.rows, columns);
    require(weight.is_blocked || scale.shape == expected, argument_of(scale), shape_text(expected),
            shape_text(scale.shape));
  }
  weight.row_block = 1;
  weight.k_block = group;
  set_tensor_scale(weight);
}

/// Bytes [rows, columns] to [columns, rows].
std::vector<std::byte> turned_bytes(std::span<const std::byte> bytes, std::int64_t rows,
                                    std::int64_t columns) {
  return transposed(bytes, rows, columns, ElementType::u8);
}

/// One-byte scales in row-major order, expert after expert.
std::vector<std::uint8_t> scale_codes(const StoredWeight& weight, const TensorView& view) {
  const std::span<const std::uint8_t> bytes(
      reinterpret_cast<const std::uint8_t*>(view.bytes.data()), view.bytes.size());
  if (weight.is_blocked) return from_blocked(bytes, weight.rows, weight.k / weight.k_block);
  std::vector<std::uint8_t> codes(bytes.begin(), bytes.end());
  if (!weight.is_turned || weight.batch == 0) return codes;
  const std::size_t size = view.bytes.size() / static_cast<std::size_t>(weight.batch);
  for (std::size_t e = 0; e < static_cast<std::size_t>(weight.batch); ++e) {
    const std::vector<std::byte> expert =
        turned_bytes(view.bytes.subspan(e * size, size), weight.k / weight.k_block, weight.rows);
    std::transform(expert.begin(), expert.end(),
                   codes.begin() + static_cast<std::ptrdiff_t>(e * size),
                   [](std::byte b) { return std::to_integer<std::uint8_t>(b); });
  }
  return codes;
}

/// Of all tiles where the file has one for the whole tensor.
std::vector<float> spread(const StoredWeight& weight, std::vector<float> scales) {
  if (scales.size() == 1 && weight.batch != 1)
    scales.resize(static_cast<std::size_t>(weight.batch), scales[0]);
  return scales;
}

/// Rows of some MB: whole blocks of them, or part of the only one.
std::int64_t rows_at_a_time(const StoredWeight& weight) {
  constexpr std::int64_t kElements = std::int64_t{1} << 24;
  const std::int64_t block = weight.row_block;
  const std::int64_t unit = block >= weight.rows ? 1 : block;
  const std::int64_t row = std::max<std::int64_t>(1, weight.k);
  return std::max<std::int64_t>(1, kElements / (row * unit)) * unit;
}

/// Rows of codes, one a byte; `memory` holds them where the file packs them.
TensorView codes_of(const StoredWeight& weight, std::int64_t rows, std::span<const std::byte> part,
                    std::vector<std::byte>& memory) {
  if (!is_packed_storage(weight.codes.type)) return {weight.codes.type, {rows, weight.k}, part};
  const ElementType type = element_type_of(weight.form.format);
  memory = unpack_codes({packed(type), {rows, weight.k}, part});
  return {type, {rows, weight.k}, memory};
}

/// Writes an expert that lies otherwise in floats.
void write_turned(const StoredWeight& weight, const WeightPart& part, NonFiniteWeight& found,
                  SafetensorsWriter& out) {
  const std::size_t width = element_bytes(weight.written.type);
  std::vector<std::byte> bytes(static_cast<std::size_t>(part.rows * weight.k) * width);
  const NonFiniteValues values = dequantize_weight(part.codes, weight.written.type, bytes);
  found.values.nan += values.nan;
  found.values.infinite += values.infinite;
  const auto first = static_cast<std::uint64_t>(part.expert * weight.rows * weight.k);
  out.write(weight.written.name, first * width,
            transposed(bytes, part.rows, weight.k, weight.written.type));
}

/// Writes all experts whose rows lie in floats as in codes, from all threads.
void write_straight(const StoredWeight& weight, const std::vector<float>& scales,
                    const SafetensorsFile& file, const TensorView& tensor, NonFiniteWeight& found,
                    SafetensorsWriter& out) {
  if (weight.batch * weight.rows * weight.k == 0) return;
  const bool packs = is_packed_storage(weight.codes.type);
  const ElementType type = packs ? packed(element_type_of(weight.form.format)) : weight.codes.type;
  const auto size = tensor.bytes.size() / static_cast<std::size_t>(weight.batch);
  const auto tiles = static_cast<std::size_t>(weight.tile_rows() * weight.tile_columns());
  const std::size_t width = element_bytes(weight.written.type);
  for (std::int64_t e = 0; e < weight.batch; ++e) {
    const auto expert = static_cast<std::size_t>(e);
    const ScaledCodes codes{
        {type, {weight.rows, weight.k}, tensor.bytes.subspan(expert * size, size)},
        std::span(scales).subspan(expert * tiles, tiles),
        weight.row_block,
        weight.k_block};
    const NonFiniteValues values = dequantize_parts(
        codes, weight.written.type,
        [&](std::int64_t first, std::span<const std::byte> bytes) {
          const auto at = static_cast<std::uint64_t>(e * weight.rows * weight.k + first);
          out.write(weight.written.name, at * width, bytes);
        },
        [&](auto part) { file.file().release(part); });
    found.values.nan += values.nan;
    found.values.infinite += values.infinite;
  }
}

/// Scales that spoil values. A tile of zeros may have a scale of 0 among groups of one byte.
void count_scales(const StoredWeight& weight, const std::vector<float>& scales,
                  NonFiniteWeight& found) {
  bool all_zero = !scales.empty();
  for (const float scale : scales) {
    found.nan_scales += std::isnan(scale) ? 1 : 0;
    found.infinite_scales += std::isinf(scale) ? 1 : 0;
    all_zero = all_zero && scale == 0.0F;
    if (weight.form.scales == ScaleKind::plain) found.zero_scales += scale == 0.0F ? 1 : 0;
  }
  if (weight.form.scales == ScaleKind::two_level && all_zero) found.zero_scales = 1;
}

std::string scale_reasons(const NonFiniteWeight& weight) {
  std::string text;
  const auto add = [&](std::int64_t count, std::string_view what) {
    if (count > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", counted(count, "scale"), what);
  };
  add(weight.nan_scales, "of NaN");
  add(weight.infinite_scales, "of infinity");
  add(weight.zero_scales, "of zero");
  return text;
}

}  // namespace

std::int64_t StoredWeight::tile_rows() const { return ceil_divide(rows, row_block); }
std::int64_t StoredWeight::tile_columns() const { return ceil_divide(k, k_block); }

bool is_fp8(ElementType type) {
  return type == ElementType::e4m3fn || type == ElementType::e5m2 ||
         type == ElementType::e4m3fnuz || type == ElementType::e5m2fnuz;
}

bool is_packed_storage(ElementType type) {
  return type == ElementType::u8 || type == ElementType::i8 || is_packed(type);
}

void set_shapes(StoredWeight& weight, const StoredQuantization& stored) {
  const WeightForm& said = stored.form_of(weight.module);
  weight.form = is_packed_storage(weight.codes.type) ? packed_form(weight, said)
                                                     : fp8_form(weight, said, stored.u8_is_e8m0);
  // A level that is not read would be lost.
  if (weight.tensor_scale && weight.form.scales != ScaleKind::two_level)
    throw Error(argument_of(weight.tensor_scale->spec),
                fmt::format("no second level of scales in {}", describe(weight.form)),
                shape_text(weight.tensor_scale->spec.shape));
  set_sizes(weight);
  if (weight.form.scales == ScaleKind::plain)
    set_plain_tiles(weight);
  else
    set_group_tiles(weight);
}

TensorView view_in(const ModelDirectory& source, const StoredTensor& stored,
                   const SafetensorsFile& file, std::unique_ptr<SafetensorsFile>& other) {
  for (const NamedTensor& item : file.tensors())
    if (item.name == stored.spec.name) return item.tensor;
  other = source.open(stored.shard);
  return other->find(stored.spec.name);
}

std::vector<float> read_scales(const ModelDirectory& source, const StoredWeight& weight,
                               const SafetensorsFile& file) {
  const FloatEnvironment environment;
  std::unique_ptr<SafetensorsFile> other;
  const TensorView view = view_in(source, weight.scale, file, other);
  if (is_float_of_32_bits_or_fewer(view.type)) return spread(weight, to_float(view));
  const bool two_level = weight.form.scales == ScaleKind::two_level;
  const std::span<const float> table =
      decode_table(two_level ? FormatId::e4m3fn : FormatId::e8m0fnu);
  const std::vector<std::uint8_t> codes = scale_codes(weight, view);
  std::vector<float> upper{1.0F};
  if (two_level) {
    std::unique_ptr<SafetensorsFile> third;
    upper = to_float(view_in(source, *weight.tensor_scale, file, third));
  }
  const bool divides = two_level && weight.names->divides;
  const std::size_t one = codes.size() / std::max<std::size_t>(1, upper.size());
  std::vector<float> scales(codes.size());
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const float tensor = upper[upper.size() == 1 ? 0 : i / one];
    scales[i] = divides ? table[codes[i]] / tensor : table[codes[i]] * tensor;
  }
  return spread(weight, std::move(scales));
}

void for_each_part_of(const StoredWeight& weight, const std::vector<float>& scales,
                      const SafetensorsFile& file, const TensorView& tensor,
                      const std::function<void(const WeightPart&)>& take) {
  if (weight.batch * weight.rows * weight.k == 0) return;
  const std::int64_t columns = weight.tile_columns();
  const std::int64_t tiles = weight.tile_rows() * columns;
  const auto expert_bytes = tensor.bytes.size() / static_cast<std::size_t>(weight.batch);
  const auto row_bytes = expert_bytes / static_cast<std::size_t>(weight.rows);
  const std::int64_t step = weight.turns_output ? weight.rows : rows_at_a_time(weight);
  std::vector<std::byte> memory;
  for (std::int64_t e = 0; e < weight.batch; ++e)
    for (std::int64_t row = 0; row < weight.rows; row += step) {
      const std::int64_t rows = std::min(step, weight.rows - row);
      const std::int64_t row_block = std::min(weight.row_block, rows);
      const auto first = static_cast<std::size_t>(e * tiles + row / weight.row_block * columns);
      const auto count = static_cast<std::size_t>(ceil_divide(rows, row_block) * columns);
      std::span<const std::byte> part = tensor.bytes.subspan(
          static_cast<std::size_t>(e) * expert_bytes + static_cast<std::size_t>(row) * row_bytes,
          static_cast<std::size_t>(rows) * row_bytes);
      std::vector<std::byte> turned;
      if (weight.is_turned)
        turned = turned_bytes(part, static_cast<std::int64_t>(row_bytes), weight.rows);
      const TensorView codes = codes_of(
          weight, rows, weight.is_turned ? std::span<const std::byte>(turned) : part, memory);
      take({e,
            row,
            rows,
            {codes, std::span(scales).subspan(first, count), row_block, weight.k_block}});
      file.file().release(part);
    }
}

std::string describe(const NonFiniteWeight& weight) {
  std::string text;
  const auto add = [&](std::int64_t count, std::string_view what) {
    if (count > 0)
      text += fmt::format("{}{} of {} values are {}", text.empty() ? "" : ", ", count,
                          weight.elements, what);
  };
  add(weight.values.nan, "NaN");
  add(weight.values.infinite, "infinite");
  const std::string reasons = scale_reasons(weight);
  if (reasons.empty()) return text;
  return text.empty() ? reasons : fmt::format("{} ({})", text, reasons);
}

TensorTask dequantize_task(const ModelDirectory& source, const StoredWeight& weight,
                           std::vector<NonFiniteWeight>& report) {
  const auto work = [&source, &report, weight](const SafetensorsFile& file,
                                               const TensorView& tensor, SafetensorsWriter& out) {
    const std::vector<float> scales = read_scales(source, weight, file);
    NonFiniteWeight found{.name = weight.written.name, .values = {}};
    found.elements = element_count(weight.written.shape, weight.written.name);
    count_scales(weight, scales, found);
    if (weight.turns_output)
      for_each_part_of(weight, scales, file, tensor,
                       [&](const WeightPart& part) { write_turned(weight, part, found, out); });
    else
      write_straight(weight, scales, file, tensor, found, out);
    if (!describe(found).empty()) report.push_back(std::move(found));
  };
  return {weight.codes, {weight.written}, work};
}

}  // namespace fp8lab
