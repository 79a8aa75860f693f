#include "fp8lab/accumulate/accumulate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"

namespace fp8lab {
namespace {

void require_scales(const AccumulatorModel& model, const BlockScales& scales, std::size_t k) {
  if (scales.empty()) return;
  const AccumulatorUnit& unit = unit_of(model.kind);
  if (!unit.takes_scales(model, scales.format, scales.block))
    throw Error("scales", unit.scale_forms(model),
                fmt::format("{} per {}", format(scales.format).name, scales.block));
  const auto block = static_cast<std::size_t>(scales.block);
  const std::size_t count = (k + block - 1) / block;
  const auto check = [&](std::string_view name, std::size_t size) {
    if (size != count)
      throw Error(name, fmt::format("ceil(k / {}) = {} scales", block, count),
                  fmt::format("{}", size));
  };
  check("a scales", scales.a.size());
  check("b scales", scales.b.size());
}

std::vector<Unpacked> unpack_all(FormatId id, std::span<const std::uint32_t> codes) {
  std::vector<Unpacked> values(codes.size());
  std::transform(codes.begin(), codes.end(), values.begin(),
                 [&](std::uint32_t code) { return unpack(format(id), code); });
  return values;
}

}  // namespace

float dot_product(const AccumulatorModel& model, std::span<const Unpacked> a,
                  std::span<const Unpacked> b, const BlockScales& scales, float c) {
  const FloatEnvironment environment;
  validate(model);
  if (a.size() != b.size())
    throw Error("b", fmt::format("k = {} operands, as a has", a.size()),
                fmt::format("{}", b.size()));
  require_scales(model, scales, a.size());
  return unit_of(model.kind).dot_product(model, a, b, scales, c);
}

float dot_product(const AccumulatorModel& model, std::span<const Unpacked> a,
                  std::span<const Unpacked> b, float c) {
  return dot_product(model, a, b, BlockScales{}, c);
}

float dot_product(const AccumulatorModel& model, FormatId a_format,
                  std::span<const std::uint32_t> a, FormatId b_format,
                  std::span<const std::uint32_t> b, float c) {
  return dot_product(model, a_format, a, b_format, b, BlockScales{}, c);
}

float dot_product(const AccumulatorModel& model, FormatId a_format,
                  std::span<const std::uint32_t> a, FormatId b_format,
                  std::span<const std::uint32_t> b, const BlockScales& scales, float c) {
  require_formats(model, a_format, b_format);
  return dot_product(model, unpack_all(a_format, a), unpack_all(b_format, b), scales, c);
}

}  // namespace fp8lab
