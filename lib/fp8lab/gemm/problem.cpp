#include <fmt/format.h>

#include <array>
#include <cstring>
#include <string>

#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/names.hpp"
#include "fp8lab/gemm/block_scales.hpp"
#include "fp8lab/gemm/gemm.hpp"
#include "fp8lab/gemm/scaling.hpp"

namespace fp8lab {
namespace {

constexpr std::array<ScaleOrder, 5> kOrders{
    ScaleOrder::product_then_fma, ScaleOrder::product_then_add, ScaleOrder::a_then_fma_b,
    ScaleOrder::b_then_fma_a, ScaleOrder::a_then_b_then_add};
constexpr std::array<std::string_view, 5> kOrderNames{
    "product_then_fma", "product_then_add", "a_then_fma_b", "b_then_fma_a", "a_then_b_then_add"};
constexpr std::array<std::string_view, 4> kPlacementNames{"unnamed", "accumulator", "promoted_sum",
                                                          "epilogue"};

void validate_matrix(std::string_view name, const CodeMatrix& m, const AccumulatorModel& model) {
  require(m.rows >= 0 && m.k >= 0, name, "rows >= 0 and k >= 0",
          fmt::format("[{}, {}]", m.rows, m.k));
  require(m.data != nullptr || m.rows * m.k == 0, name, "data", "a null pointer");
  const bool wide = m.format == FormatId::f32 || m.format == FormatId::e8m13;
  require(!wide || takes_formats(model, m.format, m.format), name, "a tensor-core input format",
          format(m.format).name);
}

void validate_scale_shape(std::string_view name, const InverseScales& scales, const CodeMatrix& m) {
  if (scales.empty()) return;
  require(scales.row_block > 0, fmt::format("{}.row_block", name), "a positive number",
          fmt::format("{}", scales.row_block));
  require(scales.k_block >= 0, fmt::format("{}.k_block", name), "a number >= 0",
          fmt::format("{}", scales.k_block));
  const std::int64_t k_block = scales.k_block == 0 ? m.k : scales.k_block;
  const std::int64_t rows = ceil_divide(m.rows, scales.row_block);
  const std::int64_t columns = m.k == 0 ? 0 : ceil_divide(m.k, k_block);
  require(static_cast<std::int64_t>(scales.values.size()) == rows * columns || m.k == 0, name,
          fmt::format("[ceil({}/{}), ceil({}/{})] = [{}, {}]", m.rows, scales.row_block, m.k,
                      k_block, rows, columns),
          counted(scales.values.size(), "value"));
}

void validate_tensor_scale(std::string_view name, const InverseScales& scales,
                           const CodeMatrix& m) {
  const bool has_tiles = !scales.empty() || m.rows == 0 || m.k == 0;
  require(has_tiles || scales.tensor_scale == 1.0F, fmt::format("{}.tensor_scale", name),
          "1 if there are no scales of its tiles", fmt::format("{}", scales.tensor_scale));
}

/// Scales that change along K, and that the instruction does not apply, need promotion.
void validate_promotion(std::string_view name, const InverseScales& scales, const CodeMatrix& m,
                        std::int64_t promotion_interval) {
  if (ScaleLookup(scales, m).varies_along_k()) {
    const std::int64_t k_block = scales.k_block;
    require(
        promotion_interval > 0 && k_block % promotion_interval == 0, "promotion_interval",
        fmt::format("a divisor of {}.k_block = {}, since the scale changes along K", name, k_block),
        fmt::format("{}", promotion_interval));
  }
}

void validate_c_placement(const GemmProblem& p) {
  if (p.c == nullptr) return;
  const bool promoted = p.promotion_interval > 0;
  if (p.c_enters == CPlacement::unnamed && (promoted || scaled(p))) {
    std::string places;
    for (const CPlacement place : possible_c_placements(p))
      places += fmt::format("{}{}", places.empty() ? "" : " or ", to_string(place));
    throw Error("c_enters",
                fmt::format("{} (with {}, the bits depend on where C enters)", places,
                            promoted ? "promotion" : "scales"),
                "nothing");
  }
  if (p.c_enters != CPlacement::promoted_sum) return;
  require(promoted, "c_enters", "accumulator or epilogue, without promotion", "promoted_sum");
  require(!scaled_as_a_whole(p), "c_enters",
          "accumulator or epilogue, since these scales are applied to the whole sum",
          "promoted_sum");
}

}  // namespace

CodeMatrix CodeMatrix::row_major(FormatId id, std::span<const std::uint8_t> codes,
                                 std::int64_t rows, std::int64_t k) {
  require(fp8lab::format(id).storage_bits == 8, "format", "an 8-bit format",
          fp8lab::format(id).name);
  require(static_cast<std::int64_t>(codes.size()) == rows * k, "codes",
          fmt::format("rows * k = {} * {} codes", rows, k), fmt::format("{}", codes.size()));
  return {id, codes.data(), rows, k, k, 1};
}

std::uint32_t code_at(const CodeMatrix& matrix, std::int64_t row, std::int64_t k) {
  const std::int64_t at = row * matrix.row_stride + k * matrix.k_stride;
  const Format& f = format(matrix.format);
  const int bytes = f.bytes();
  std::uint32_t word = 0;  // x86 and Arm are little endian, as the stored codes are
  std::memcpy(&word, static_cast<const unsigned char*>(matrix.data) + at * bytes,
              static_cast<std::size_t>(bytes));
  return code_of_storage(f, word);
}

std::string_view to_string(ScaleOrder order) {
  return kOrderNames[static_cast<std::size_t>(order)];
}

ScaleOrder find_scale_order(std::string_view name) {
  return find_enumerator<ScaleOrder>(kOrderNames, "scale_order", name);
}

std::span<const ScaleOrder> scale_orders() { return kOrders; }

std::string_view to_string(CPlacement placement) {
  return kPlacementNames[static_cast<std::size_t>(placement)];
}

CPlacement find_c_placement(std::string_view name) {
  const auto named = std::span(kPlacementNames).subspan(1);
  return static_cast<CPlacement>(find_name(named, "c_enters", name) + 1);
}

CPlacement c_placement(const GemmProblem& p) {
  return p.c_enters == CPlacement::unnamed ? CPlacement::accumulator : p.c_enters;
}

std::vector<CPlacement> possible_c_placements(const GemmProblem& given) {
  const GemmProblem p = gemm_detail::without_unit_scales(given);
  if (p.promotion_interval > 0 && !scaled_as_a_whole(p))
    return {CPlacement::accumulator, CPlacement::promoted_sum, CPlacement::epilogue};
  return {CPlacement::accumulator, CPlacement::epilogue};
}

void validate(const GemmProblem& problem, std::size_t output_size) {
  static_cast<void>(gemm_detail::validated_scales(problem, output_size));
}

BlockScaleRows gemm_detail::validated_scales(const GemmProblem& given, std::size_t output_size) {
  validate(given.model);
  const GemmProblem p = without_unit_scales(given);
  validate_matrix("a", p.a, p.model);
  validate_matrix("b", p.b, p.model);
  require(p.b.k == p.a.k, "b", fmt::format("[n, k] with k = {}, as a has", p.a.k),
          fmt::format("[{}, {}]", p.b.rows, p.b.k));
  require_formats(p.model, p.a.format, p.b.format);
  require(output_size == static_cast<std::size_t>(p.a.rows * p.b.rows), "d",
          fmt::format("[m, n] = [{}, {}]", p.a.rows, p.b.rows), counted(output_size, "element"));
  require(p.promotion_interval >= 0 && p.promotion_interval % p.model.terms == 0,
          "promotion_interval",
          fmt::format("0 or a multiple of the model's {} terms", p.model.terms),
          fmt::format("{}", p.promotion_interval));
  validate_scale_shape("scale_a", given.scale_a, given.a);
  validate_scale_shape("scale_b", given.scale_b, given.b);
  validate_tensor_scale("scale_a", given.scale_a, given.a);
  validate_tensor_scale("scale_b", given.scale_b, given.b);
  validate_promotion("scale_a", p.scale_a, p.a, p.promotion_interval);
  validate_promotion("scale_b", p.scale_b, p.b, p.promotion_interval);
  validate_c_placement(p);
  return BlockScaleRows(given);
}

}  // namespace fp8lab
