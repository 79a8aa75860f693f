#include "fp8lab/model_files/stored_weight.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/model_files/blocked_scales.hpp"
#include "fp8lab/model_files/expert_cast.hpp"
#include "fp8lab/model_files/weight_cast.hpp"
#include "fp8lab/model_files/weight_outputs.hpp"
#include "fp8lab/tensors/packed.hpp"

namespace fp8lab {
namespace {

bool is_packed_weight(const StoredWeight& weight) {
  return weight.stored.format != FormatId::e4m3fn;
}

std::string argument_of(const TensorSpec& spec) { return fmt::format("tensor '{}'", spec.name); }

void require_shape(const TensorSpec& spec, const std::vector<std::int64_t>& expected) {
  require(spec.shape == expected, argument_of(spec), shape_text(expected), shape_text(spec.shape));
}

void require_type(const TensorSpec& spec, bool fits, std::string_view expected) {
  require(fits, argument_of(spec), expected, to_string(spec.type));
}

/// Blocks of the tiles that FP32 or BF16 scales of such a shape belong to.
void set_plain_tiles(StoredWeight& weight) {
  const TensorSpec& scale = weight.scale.spec;
  const bool floats = scale.type == ElementType::f32 || scale.type == ElementType::bf16 ||
                      scale.type == ElementType::f16 || scale.type == ElementType::e8m0fnu;
  require_type(scale, floats, "f32, bf16, f16 or e8m0fnu scales");
  const std::int64_t rows = weight.rows;
  weight.k_block = std::max<std::int64_t>(1, weight.k);
  weight.row_block = 1;
  if (element_count(scale.shape, scale.name) == 1) {
    weight.row_block = std::max<std::int64_t>(1, rows);
    return;
  }
  const bool a_row =
      scale.shape == std::vector{rows} || scale.shape == std::vector{rows, std::int64_t{1}};
  if (a_row) return;
  weight.row_block = weight.stored.row_block;
  weight.k_block = weight.stored.k_block;
  const std::vector blocks{ceil_divide(rows, weight.row_block),
                           ceil_divide(weight.k, weight.k_block)};
  require(scale.shape == blocks, argument_of(scale),
          fmt::format("scales [1], [{}], [{}, 1] or {}", rows, rows, shape_text(blocks)),
          shape_text(scale.shape));
}

void set_group_tiles(StoredWeight& weight) {
  const TensorSpec& scale = weight.scale.spec;
  const std::int64_t group = weight.stored.k_block;
  require(weight.k % group == 0, argument_of(weight.codes),
          fmt::format("a multiple of {} elements per row", group), fmt::format("{}", weight.k));
  const WeightScheme scheme{.tiles = WeightTiles::group, .k_block = group};
  require_shape(scale, scale_shape(*weight.layout, scheme, weight.rows, weight.k));
  weight.row_block = 1;
  weight.k_block = group;
  if (weight.stored.scales == ScaleKind::two_level) {
    require_type(scale, scale.type == ElementType::e4m3fn, "e4m3fn scales");
    const TensorSpec& upper = weight.tensor_scale->spec;
    require_type(upper, upper.type == ElementType::f32 && element_count(upper.shape, "") == 1,
                 "one f32");
    return;
  }
  require_type(scale, scale.type == ElementType::u8 || scale.type == ElementType::e8m0fnu,
               "u8 or e8m0fnu scales");
}

void set_expert_shapes(StoredWeight& weight) {
  const std::vector<std::int64_t>& shape = weight.codes.shape;
  const TensorSpec& scale = weight.scale.spec;
  require(shape[3] == 16, argument_of(weight.codes), "[experts, rows, k / 32, 16]",
          shape_text(shape));
  require_shape(scale, {shape[0], shape[1], shape[2]});
  require_type(scale, scale.type == ElementType::u8, "u8 scales");
  weight.rows = shape[1];
  weight.k = shape[2] * 32;
  weight.written.shape = {shape[0], weight.k, weight.rows};
}

TensorView view_in(const ModelDirectory& source, const StoredTensor& stored,
                   const SafetensorsFile& file, std::unique_ptr<SafetensorsFile>& other) {
  for (const NamedTensor& item : file.tensors())
    if (item.name == stored.spec.name) return item.tensor;
  other = source.open(stored.shard);
  return other->find(stored.spec.name);
}

/// Scales of all tiles, both levels at once.
std::vector<float> read_scales(const ModelDirectory& source, const StoredWeight& weight,
                               const SafetensorsFile& file) {
  const FloatEnvironment environment;
  std::unique_ptr<SafetensorsFile> other;
  const TensorView view = view_in(source, weight.scale, file, other);
  if (weight.stored.scales == ScaleKind::plain) return to_float(view);
  const bool two_level = weight.stored.scales == ScaleKind::two_level;
  const std::span<const float> table =
      decode_table(two_level ? FormatId::e4m3fn : FormatId::e8m0fnu);
  const std::span<const std::uint8_t> bytes(
      reinterpret_cast<const std::uint8_t*>(view.bytes.data()), view.bytes.size());
  std::vector<std::uint8_t> codes(bytes.begin(), bytes.end());
  if (weight.layout->family == LayoutFamily::torchao)
    codes = from_blocked(bytes, weight.rows, weight.k / weight.k_block);
  float upper = 1.0F;
  if (two_level) upper = to_float(view_in(source, *weight.tensor_scale, file, other))[0];
  const bool divides = two_level && stores_multiplier(*weight.layout);
  std::vector<float> scales(codes.size());
  std::transform(codes.begin(), codes.end(), scales.begin(), [&](std::uint8_t code) {
    return divides ? table[code] / upper : table[code] * upper;
  });
  return scales;
}

/// Rows of some MB: whole blocks of them, or part of the only one.
std::int64_t rows_at_a_time(const StoredWeight& weight) {
  constexpr std::int64_t kElements = std::int64_t{1} << 22;
  const std::int64_t block = weight.row_block;
  const std::int64_t unit = block >= weight.rows ? 1 : block;
  const std::int64_t row = std::max<std::int64_t>(1, weight.k);
  return std::max<std::int64_t>(1, kElements / (row * unit)) * unit;
}

/// Rows of codes, one a byte; `memory` holds them where the file packs them.
TensorView codes_of(const StoredWeight& weight, const TensorView& tensor, std::int64_t rows,
                    std::span<const std::byte> part, std::vector<std::byte>& memory) {
  if (!is_packed_weight(weight)) return {tensor.type, {rows, weight.k}, part};
  const ElementType type = element_type_of(weight.stored.format);
  memory = unpack_codes({packed(type), {rows, weight.k}, part});
  return {type, {rows, weight.k}, memory};
}

void write_rows(const StoredWeight& weight, const std::vector<float>& scales,
                const SafetensorsFile& file, const TensorView& tensor, SafetensorsWriter& out) {
  const std::int64_t columns = ceil_divide(weight.k, weight.k_block);
  const std::size_t width = element_bytes(weight.written.type);
  const auto row_bytes = static_cast<std::size_t>(weight.codes.shape[1]);
  const std::int64_t step = rows_at_a_time(weight);
  std::vector<std::byte> bytes;
  std::vector<std::byte> memory;
  for (std::int64_t row = 0; row < weight.rows; row += step) {
    const std::int64_t rows = std::min(step, weight.rows - row);
    const std::int64_t row_block = std::min(weight.row_block, rows);
    const auto first = static_cast<std::size_t>(row / weight.row_block * columns);
    const auto count = static_cast<std::size_t>(ceil_divide(rows, row_block) * columns);
    const auto at = static_cast<std::size_t>(row);
    const std::span<const std::byte> part =
        tensor.bytes.subspan(at * row_bytes, static_cast<std::size_t>(rows) * row_bytes);
    bytes.resize(static_cast<std::size_t>(rows * weight.k) * width);
    dequantize_weight({codes_of(weight, tensor, rows, part, memory),
                       std::span(scales).subspan(first, count), row_block, weight.k_block},
                      weight.written.type, bytes);
    out.write(weight.written.name, at * static_cast<std::size_t>(weight.k) * width, bytes);
    file.file().release(part);
  }
}

void write_experts(const ModelDirectory& source, const StoredWeight& weight,
                   const SafetensorsFile& file, const TensorView& tensor, SafetensorsWriter& out) {
  std::unique_ptr<SafetensorsFile> other;
  const TensorView scales = view_in(source, weight.scale, file, other);
  const auto experts = static_cast<std::size_t>(weight.codes.shape[0]);
  if (experts == 0) return;
  const std::size_t code_bytes = tensor.bytes.size() / experts;
  const std::size_t scale_bytes = scales.bytes.size() / experts;
  for (std::size_t e = 0; e < experts; ++e) {
    const std::span<const std::byte> part = tensor.bytes.subspan(e * code_bytes, code_bytes);
    const auto* const codes =
        reinterpret_cast<const std::uint8_t*>(scales.bytes.data()) + e * scale_bytes;
    const std::vector<std::byte> bytes =
        dequantize_expert({ElementType::u8, {}, part}, {codes, scale_bytes}, weight.rows, weight.k,
                          weight.written.type);
    out.write(weight.written.name, e * bytes.size(), bytes);
    file.file().release(part);
  }
}

}  // namespace

void set_shapes(StoredWeight& weight) {
  if (weight.layout->family == LayoutFamily::gpt_oss) return set_expert_shapes(weight);
  std::vector<std::int64_t> shape = weight.codes.shape;
  if (is_packed_weight(weight))
    shape = shape_of_packed(packed(element_type_of(weight.stored.format)), shape,
                            argument_of(weight.codes));
  weight.rows = shape[0];
  weight.k = shape[1];
  weight.written.shape = shape;
  if (weight.stored.scales == ScaleKind::plain)
    set_plain_tiles(weight);
  else
    set_group_tiles(weight);
}

TensorTask dequantize_task(const ModelDirectory& source, const StoredWeight& weight) {
  const auto work = [&source, weight](const SafetensorsFile& file, const TensorView& tensor,
                                      SafetensorsWriter& out) {
    if (weight.layout->family == LayoutFamily::gpt_oss)
      return write_experts(source, weight, file, tensor, out);
    write_rows(weight, read_scales(source, weight, file), file, tensor, out);
  };
  return {weight.codes, {weight.written}, work};
}

}  // namespace fp8lab
