#include "fp8lab/gemm/methods/methods.hpp"

#include <array>

namespace fp8lab::gemm_detail {
namespace {

using Planner = MethodPtr (*)(const MethodRequest&);

/// In order of preference: where several fit, the first is the fastest.
constexpr std::array<Planner, 19> kMethods{plan_fused_float,
                                           plan_fused_words,
                                           plan_fused_double,
                                           plan_exact_steps,
                                           plan_checked_steps,
                                           plan_half_steps,
                                           plan_exact,
                                           plan_float32,
                                           plan_sequential,
                                           plan_multiply_adds,
                                           plan_flushed_pairs,
                                           plan_two_stage,
                                           plan_scaled_groups,
                                           plan_multiply_add_chains,
                                           plan_multiply_add_pairs,
                                           plan_rounded_pairs,
                                           plan_exact_pairs,
                                           plan_rounded_sums,
                                           plan_scaled_sums};

}  // namespace

MethodPtr plan_method(const MethodRequest& request) {
  for (const Format* f : {request.a, request.b})
    if (!f->has_sign || !is_built_in(f->id)) return nullptr;
  for (const Planner plan : kMethods)
    if (MethodPtr method = plan(request)) return method;
  return nullptr;
}

}  // namespace fp8lab::gemm_detail
