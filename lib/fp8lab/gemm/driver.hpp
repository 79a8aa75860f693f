#pragma once
// The driver of methods: a planned product, cut into tiles and dealt to threads.

#include <span>

#include "fp8lab/core/target.hpp"
#include "fp8lab/gemm/methods/method.hpp"

namespace fp8lab {
class BlockScaleRows;
}

namespace fp8lab::gemm_detail {

/// How promotion adds the sums of `fp16_halves`.
struct IntervalSums {
  bool to_half = false;          ///< to FP16, else to binary32
  bool separate_steps = false;   ///< the two steps of an interval start from zero each
  bool start_from_zero = false;  ///< and are added to +0 first, so that -0 becomes +0
};

/// A problem as the kernels compute it, and as it was given: the same but for `fp16_halves`, whose
/// kernels take FP16 copies and promote after every instruction. m, n and C are the same.
struct PlannedProduct {
  const GemmProblem& problem;
  const GemmProblem& specified;
  const Method& method;
  IntervalSums intervals{};
  /// Those that the instruction applies; null if it applies none.
  const BlockScaleRows* unit_scales = nullptr;
};

/// The fastest method for the request whose kernels, on a target that has some, take what its
/// operands hold with the scales that its instruction applies, if there is one; null where the
/// reference computes all.
MethodPtr plan_for_data(const MethodRequest& request, const BlockScaleRows& scales, Target target,
                        int threads);

/// D = the product, on a target with kernels. Outputs that the method does not take are the
/// reference's.
void run_planned(const PlannedProduct& product, std::span<float> d, Target target, int threads);

}  // namespace fp8lab::gemm_detail
