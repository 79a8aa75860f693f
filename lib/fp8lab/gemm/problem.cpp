#include <fmt/format.h>

#include <array>
#include <cstring>
#include <string>

#include "fp8lab/core/error.hpp"
#include "fp8lab/gemm/gemm.hpp"

namespace fp8lab {
namespace {

constexpr std::array<std::string_view, 3> kOrderNames{"product_then_fma", "product_then_add",
                                                      "a_then_fma_b"};

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

void validate_matrix(std::string_view name, const CodeMatrix& m) {
  require(m.rows >= 0 && m.k >= 0, name, "rows >= 0 and k >= 0",
          fmt::format("[{}, {}]", m.rows, m.k));
  require(m.data != nullptr || m.rows * m.k == 0, name, "data", "a null pointer");
  require(m.format != FormatId::f32 && m.format != FormatId::e8m13, name,
          "a tensor-core input format", format(m.format).name);
}

void validate_scales(std::string_view name, const InverseScales& scales, const CodeMatrix& m,
                     std::int64_t promotion_interval) {
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
          fmt::format("{} values", scales.values.size()));
  if (columns > 1)
    require(
        promotion_interval > 0 && k_block % promotion_interval == 0, "promotion_interval",
        fmt::format("a divisor of {}.k_block = {}, since the scale changes along K", name, k_block),
        fmt::format("{}", promotion_interval));
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
  const int bytes = f.storage_bits / 8;
  std::uint32_t word = 0;  // x86 and Arm are little endian, as the stored codes are
  std::memcpy(&word, static_cast<const unsigned char*>(matrix.data) + at * bytes,
              static_cast<std::size_t>(bytes));
  return code_of_storage(f, word);
}

std::string_view to_string(ScaleOrder order) {
  return kOrderNames[static_cast<std::size_t>(order)];
}

ScaleOrder find_scale_order(std::string_view name) {
  for (std::size_t i = 0; i < kOrderNames.size(); ++i)
    if (kOrderNames[i] == name) return static_cast<ScaleOrder>(i);
  throw Error("scale_order", "product_then_fma, product_then_add or a_then_fma_b",
              "'" + std::string(name) + "'");
}

void validate(const GemmProblem& p, std::size_t output_size) {
  validate(p.model);
  validate_matrix("a", p.a);
  validate_matrix("b", p.b);
  require(p.b.k == p.a.k, "b", fmt::format("[n, k] with k = {}, as a has", p.a.k),
          fmt::format("[{}, {}]", p.b.rows, p.b.k));
  require_formats(p.model, p.a.format, p.b.format);
  require(output_size == static_cast<std::size_t>(p.a.rows * p.b.rows), "d",
          fmt::format("[m, n] = [{}, {}]", p.a.rows, p.b.rows),
          fmt::format("{} elements", output_size));
  require(p.promotion_interval >= 0 && p.promotion_interval % p.model.terms == 0,
          "promotion_interval",
          fmt::format("0 or a multiple of the model's {} terms", p.model.terms),
          fmt::format("{}", p.promotion_interval));
  validate_scales("a_scales", p.a_scales, p.a, p.promotion_interval);
  validate_scales("b_scales", p.b_scales, p.b, p.promotion_interval);
}

}  // namespace fp8lab
