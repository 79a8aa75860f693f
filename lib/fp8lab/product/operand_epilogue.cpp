#include "fp8lab/product/operand_epilogue.hpp"

#include <fmt/format.h>

#include "fp8lab/core/error.hpp"
#include "fp8lab/tensors/slices.hpp"

namespace fp8lab {
namespace {

void require_floats(std::string_view name, std::string_view shape, bool fits,
                    const TensorView& tensor) {
  require(fits && is_float(tensor.type), name, fmt::format("floats {}", shape),
          fmt::format("{} {}", to_string(tensor.type), shape_text(tensor.shape)));
}

/// A vector [count], or the same as one column [count, 1] or one row [1, count].
std::span<const float> vector_of(std::string_view name, const std::optional<TensorView>& tensor,
                                 std::int64_t count, bool column, Product& product) {
  if (!tensor) return {};
  using Shape = std::vector<std::int64_t>;
  const Shape& shape = tensor->shape;
  const Shape matrix = column ? Shape{count, 1} : Shape{1, count};
  require_floats(name, fmt::format("[{}] or {}", count, shape_text(matrix)),
                 shape == Shape{count} || shape == matrix, *tensor);
  return product.keep(to_float_exactly(*tensor, name));
}

const float* matrix_of(const TensorView& tensor, Product& product) {
  const GemmProblem& p = product.problem;
  const std::vector<std::int64_t> expected{p.a.rows, p.b.rows};
  require_floats("C", fmt::format("[m, n] = {}", shape_text(expected)), tensor.shape == expected,
                 tensor);
  return product.keep(to_float_exactly(tensor, "C")).data();
}

}  // namespace

void add_epilogue(const GemmOperands& operands, const GemmSpec& spec, Product& product) {
  GemmProblem& p = product.problem;
  const EpilogueSpec& from = spec.epilogue;
  Epilogue& e = product.epilogue;
  e.alpha = from.alpha;
  e.activation = from.activation;
  e.slope = from.slope;
  e.activation_ulps = from.activation_ulps;
  e.output_scale = from.output_scale;
  require(!from.scale_by_amax || !from.output_scale, "output_scale",
          "a number or the amax of the output", "both");
  require(!from.beta || operands.c, "beta", "a C, which it multiplies", "none");
  require(!from.beta || spec.c_enters == CPlacement::unnamed, "c_enters",
          "no value with beta, which adds C after alpha and bias", to_string(spec.c_enters));
  if (operands.c && from.beta) {
    e.c = matrix_of(*operands.c, product);
    e.beta = *from.beta;
  } else if (operands.c) {
    p.c = matrix_of(*operands.c, product);
  }
  e.row_scales = vector_of("row_scales", operands.row_scales, p.a.rows, true, product);
  e.column_scales = vector_of("column_scales", operands.column_scales, p.b.rows, false, product);
  e.bias = vector_of("bias", operands.bias, p.b.rows, false, product);
  validate(e, p.a.rows, p.b.rows);
}

}  // namespace fp8lab
