#pragma once
// Products whose scales are applied inside the sum.

#include <memory>

#include "fp8lab/product/product.hpp"
#include "fp8lab/scaling/presets.hpp"
#include "fp8lab/scaling/quantize.hpp"

namespace fp8lab::test {

/// A preset and a unit that applies its scales inside the sum.
struct ScaledUnit {
  const char* preset;
  const char* model;
};
inline constexpr ScaledUnit kScaledUnits[] = {{"ocp-mxfp8", "sm100.tcgen05.mxf8f6f4.e4m3"},
                                              {"nvfp4", "sm120.mma.mxf4nvf4"}};

/// The product of `values`, [rows, k], with themselves.
inline Product product_of(const ScaledUnit& unit, const FloatMatrix& values) {
  const auto q =
      std::make_shared<const QuantizedTensor>(quantize(find_preset(unit.preset).weight, values));
  Product product;
  product.model = unit.model;
  product.problem.model = find_instruction_model(unit.model).accumulator;
  product.problem.a = product.problem.b = q->matrix();
  product.problem.scale_a = product.problem.scale_b = q->inverse();
  product.owners.push_back(q);
  return product;
}

}  // namespace fp8lab::test
