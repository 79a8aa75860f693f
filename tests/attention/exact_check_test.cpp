// Attention's gradients in every bit, with windows and heads that share K and V, and the ends of
// what a check of attention tolerates.

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/attention/backward.hpp"
#include "fp8lab/attention/quantize.hpp"
#include "fp8lab/attention/verify.hpp"
#include "fp8lab/core/random.hpp"

namespace fp8lab::exact_check_test {
namespace {

constexpr std::int64_t kHeads = 6, kShared = 3, kM = 5, kN = 9, kD = 32, kDv = 16;
constexpr float kScale = 0.3F;

std::vector<float> draw(const std::string& name, std::int64_t size) {
  const RandomStream stream(23, name);
  std::vector<float> values;
  for (std::int64_t i = 0; i < size; ++i)
    values.push_back(static_cast<float>(stream.normal(static_cast<std::uint64_t>(i))));
  return values;
}

/// Rows of one tensor [heads, rows, columns].
double at(const std::vector<float>& x, std::int64_t row, std::int64_t column,
          std::int64_t columns) {
  return static_cast<double>(x[static_cast<std::size_t>(row * columns + column)]);
}

struct Tensors {
  std::vector<float> q = draw("q", kHeads* kM* kD);
  std::vector<float> k = draw("k", kHeads / kShared * kN * kD);
  std::vector<float> v = draw("v", kHeads / kShared * kN * kDv);
  std::vector<float> o = draw("o", kHeads* kM* kDv);
  std::vector<float> d_o = draw("d_o", kHeads* kM* kDv);
  QuantizedHeads q_codes = quantize_heads(q, kHeads, kM, kD);
  QuantizedHeads k_codes = quantize_heads(k, kHeads / kShared, kN, kD);
  QuantizedHeads v_codes = quantize_heads(v, kHeads / kShared, kN, kDv);
  [[nodiscard]] AttentionInputs inputs() const {
    return {q_codes.operand(), k_codes.operand(), v_codes.operand()};
  }
};

/// dQ, dK and dV of backward.hpp's formulas, a term at a time.
AttentionGradients written_down(const Tensors& x, const AttentionOptions& options) {
  std::vector<double> dq(x.q.size()), dk(x.k.size()), dv(x.v.size());
  const auto scale = static_cast<double>(options.softmax_scale);
  for (std::int64_t row = 0; row < kHeads * kM; ++row) {
    const std::int64_t own = row % kM + kN - kM;
    const std::int64_t columns = row / (kM * kShared) * kN;  // of the shared head
    std::vector<std::int64_t> seen;
    for (std::int64_t j = 0; j < kN; ++j) {
      const bool left = options.window_left == kNoWindow || j >= own - options.window_left;
      const bool right = options.window_right == kNoWindow || j <= own + options.window_right;
      if (left && right && (!options.causal || j <= own)) seen.push_back(columns + j);
    }
    std::vector<double> p;
    for (const std::int64_t j : seen) {
      double sum = 0.0;
      for (std::int64_t d = 0; d < kD; ++d) sum += at(x.q, row, d, kD) * at(x.k, j, d, kD);
      p.push_back(scale * sum);
    }
    double maximum = -std::numeric_limits<double>::infinity();
    for (const double one : p) maximum = std::max(maximum, one);
    double total = 0.0;
    for (double& one : p) {
      one = std::exp(one - maximum);
      total += one;
    }
    double delta = 0.0;
    for (std::int64_t d = 0; d < kDv; ++d) delta += at(x.d_o, row, d, kDv) * at(x.o, row, d, kDv);
    for (std::size_t i = 0; i < seen.size(); ++i) {
      const double weight = p[i] / total;
      double d_p = 0.0;
      for (std::int64_t d = 0; d < kDv; ++d) {
        dv[static_cast<std::size_t>(seen[i] * kDv + d)] += weight * at(x.d_o, row, d, kDv);
        d_p += at(x.d_o, row, d, kDv) * at(x.v, seen[i], d, kDv);
      }
      const double d_s = scale * weight * (d_p - delta);
      for (std::int64_t d = 0; d < kD; ++d) {
        dq[static_cast<std::size_t>(row * kD + d)] += d_s * at(x.k, seen[i], d, kD);
        dk[static_cast<std::size_t>(seen[i] * kD + d)] += d_s * at(x.q, row, d, kD);
      }
    }
  }
  return {{dq.begin(), dq.end()}, {dk.begin(), dk.end()}, {dv.begin(), dv.end()}};
}

}  // namespace

TEST_CASE("attention backward: every bit is that of the formulas in FP64", "[attention]") {
  const Tensors x;
  for (const std::int64_t left : {kNoWindow, std::int64_t{0}, std::int64_t{2}})
    for (const std::int64_t right : {kNoWindow, std::int64_t{0}, std::int64_t{1}})
      for (const int threads : {1, 2}) {
        AttentionOptions options;
        options.softmax_scale = kScale;
        options.window_left = left;
        options.window_right = right;
        options.causal = threads == 2 && right == kNoWindow;
        options.threads = threads;
        const AttentionGradients got =
            attention_backward(x.inputs(), x.q, x.k, x.v, x.o, x.d_o, options);
        const AttentionGradients want = written_down(x, options);
        INFO("window " << left << ", " << right << ", threads " << threads);
        CHECK(got.dq == want.dq);
        CHECK(got.dk == want.dk);
        CHECK(got.dv == want.dv);
      }
}

TEST_CASE("attention verify: a distance that is the tolerance passes, the next one does not",
          "[attention]") {
  const Tensors x;
  std::vector<float> got = attention(x.inputs(), {}).o;
  got[3] *= 1.25F;
  const AttentionVerdict strict = verify_attention(x.inputs(), {}, got, FormatId::f32, 0.0);
  CHECK_FALSE(strict.pass);
  CHECK(strict.mismatches == 1);
  REQUIRE(strict.distance > 0.0);
  CHECK(verify_attention(x.inputs(), {}, got, FormatId::f32, strict.distance).pass);
  CHECK_FALSE(
      verify_attention(x.inputs(), {}, got, FormatId::f32, std::nextafter(strict.distance, 0.0))
          .pass);
}

}  // namespace fp8lab::exact_check_test
