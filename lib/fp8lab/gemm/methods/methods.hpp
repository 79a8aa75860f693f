#pragma once
// All methods. Each is planned by one function: the method, with what it needs to know of the
// problem, or null where its kernels do not compute the model's bits for these formats.
// docs/lab/gemm.md derives every bound that they use.

#include "fp8lab/gemm/methods/method.hpp"

namespace fp8lab::gemm_detail {

/// Fused steps in binary32: FP8 and narrower, small F.
MethodPtr plan_fused_float(const MethodRequest& request);
/// Fused steps of few terms in 32-bit integers.
MethodPtr plan_fused_words(const MethodRequest& request);
/// Fused steps in binary64: any input, F <= 36.
MethodPtr plan_fused_double(const MethodRequest& request);
/// The same, for data whose products are multiples of binary32's least number.
MethodPtr plan_fused_double_of_words(const MethodRequest& request);
/// Steps that lose no product bit, in binary64, or two words of it.
MethodPtr plan_exact_steps(const MethodRequest& request);
/// Exact steps of any data, in binary64 as far as it is exact.
MethodPtr plan_checked_steps(const MethodRequest& request);
/// Rounded sums of exact products, added to c in binary32.
MethodPtr plan_rounded_sums(const MethodRequest& request);
/// The same of products with block scales; and of data whose sums binary64 does not hold.
MethodPtr plan_scaled_sums(const MethodRequest& request);
MethodPtr plan_wide_scaled_sums(const MethodRequest& request);
/// Exact steps rounded to FP16.
MethodPtr plan_half_steps(const MethodRequest& request);
/// One exact sum in binary64, or two words of it.
MethodPtr plan_exact(const MethodRequest& request);
/// Sequential binary32 FMAs of products that binary32 holds.
MethodPtr plan_float32(const MethodRequest& request);
/// Sequential sums, truncated or to nearest even, in binary32 or binary64.
MethodPtr plan_sequential(const MethodRequest& request);
/// Sequential binary32 FMAs with all special values and signs of zero.
MethodPtr plan_multiply_adds(const MethodRequest& request);
/// Binary32 sums of pairs without subnormals.
MethodPtr plan_flushed_pairs(const MethodRequest& request);
/// Two-stage steps in 32-bit integers, of all terms, or of even and odd ones apart.
MethodPtr plan_two_stage(const MethodRequest& request);
/// Fused steps of scaled exact sums, in binary32 and binary64.
MethodPtr plan_scaled_groups(const MethodRequest& request);
/// Units of processors in binary32: chains of FMAs, and pairs of products.
MethodPtr plan_multiply_add_chains(const MethodRequest& request);
MethodPtr plan_multiply_add_pairs(const MethodRequest& request);
MethodPtr plan_rounded_pairs(const MethodRequest& request);
/// The same of pairs whose sum is rounded once.
MethodPtr plan_exact_pairs(const MethodRequest& request);

/// The fastest method for the request; null where the reference computes all of it.
MethodPtr plan_method(const MethodRequest& request);

}  // namespace fp8lab::gemm_detail
