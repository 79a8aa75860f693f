#pragma once
// The gradients of attention for a forward pass in FP8. They are those of exact attention at the
// given values, since every cast counts as the identity (straight through).

#include <span>
#include <vector>

#include "fp8lab/attention/attention.hpp"

namespace fp8lab {

/// In the shapes of Q, K and V, and of the sinks.
struct AttentionGradients {
  std::vector<float> dq;
  std::vector<float> dk;
  std::vector<float> dv;
  std::vector<float> d_sinks{};  ///< [heads]; empty without sinks
};

/// With P = softmax(softmax_scale Q K^T) of the given values and delta the row sums of dO * O:
///   dV = P^T dO,   dS = P * (dO V^T - delta),   dQ = softmax_scale dS K,   dK = softmax_scale dS^T
///   Q,
/// in FP64, rounded to binary32 once. `o` [heads, m, d_v] is the output of the forward pass, as in
/// FlashAttention's backward kernels. With a soft cap c, dS is multiplied by 1 - tanh(s / c)^2 of
/// each score s; P of a head with a sink leaves out the sink's share p, whose gradient is -p delta,
/// summed over rows. dK and dV of a group of heads are summed. A row that attends
/// to no column has no gradient. FlashAttention-3 has no FP8 backward pass; it is *assumed* that
/// one in higher precision follows an FP8 forward pass. The result does not depend on threads; the
/// last bit of a P depends on the C library's `exp`. Throws `Error` for shapes that do not fit.
AttentionGradients attention_backward(const AttentionInputs& shapes, std::span<const float> q,
                                      std::span<const float> k, std::span<const float> v,
                                      std::span<const float> o, std::span<const float> d_o,
                                      const AttentionOptions& options);

}  // namespace fp8lab
