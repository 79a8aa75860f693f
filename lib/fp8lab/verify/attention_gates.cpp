#include "fp8lab/verify/attention_gates.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "fp8lab/attention/shape.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/cast/encode.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/parallel.hpp"
#include "fp8lab/product/product.hpp"
#include "fp8lab/scaling/scale_rule.hpp"
#include "fp8lab/verify/gates.hpp"

namespace fp8lab {
namespace {

/// |y - x| <= absolute + relative |x| for every pair.
struct CloseGate {
  AttentionGateText text;
  Tolerance of_8_bits;  ///< of outputs in FP8
  Tolerance wider;      ///< of outputs in 16 or 32 bits
};

// Read in ROCm/rocm-libraries as its pull request 10988 quotes it (get_elimit<FmhaFwdFp8>: 32 as
// the distance of FP8 outputs, or equal codes; 0.01 and 0.18 of BF16 and FP32) and in ROCm/aiter at
// e4048607 (max |out - ref| < 0.055).
constexpr std::array<CloseGate, 2> kCloseGates{
    {{{"ck_tile.fmha_fp8", "|y - x| <= 32; BF16, FP32: rtol 0.01, atol 0.18",
       "ROCm/rocm-libraries example/ck_tile/01_fmha (get_elimit, before pull request 11003)"},
      {0.0, 32.0},
      {1e-2, 0.18}},
     {{"aiter.mha_fp8", "max |y - x| <= 0.055", "ROCm/aiter op_tests/test_mha_fp8.py"},
      {0.0, 0.055},
      {0.0, 0.055}}}};

// Read in Dao-AILab/flash-attention at 0251105a (hopper/test_flash_attn.py and test_util.py,
// attention_ref; tests/cute has the same rule).
constexpr AttentionGateText kFlashAttention{
    "flashattention.fp8", "max |y - x| <= 2 max |PyTorch in BF16, P in E4M3 - x| and a small value",
    "Dao-AILab/flash-attention hopper/test_flash_attn.py (test_flash_attn_output)"};

std::vector<Tolerance> all_tolerances(FormatId output) {
  std::vector<Tolerance> found = gate_tolerances(output);
  for (const CloseGate& gate : kCloseGates)
    found.push_back(format(output).storage_bits == 8 ? gate.of_8_bits : gate.wider);
  return found;
}

float to_bf16(double value) { return rounded_to_bf16(static_cast<float>(value)); }

float product_in_bf16(float a, float b) {
  return to_bf16(static_cast<double>(a) * static_cast<double>(b));
}

/// The attention that FlashAttention's FP8 tests compute with PyTorch.
class TorchAttention {
 public:
  TorchAttention(const AttentionInputs& inputs, const AttentionOptions& options)
      : options_(options),
        shape_(attention_shape(inputs)),
        softmax_scale_(softmax_scale(inputs, options)),
        q_(rounded(inputs.q, 1.0F)),
        k_(rounded(inputs.k, softmax_scale_)),
        v_(rounded(inputs.v, 1.0F)) {}

  [[nodiscard]] std::vector<float> run() const {
    std::vector<float> o(static_cast<std::size_t>(shape_.heads * shape_.m * shape_.d_v), 0.0F);
    parallel_for(shape_.heads * shape_.m, threads_of(options_),
                 [&](std::int64_t row) { add_row(row, o.data() + row * shape_.d_v); });
    return o;
  }

 private:
  static std::vector<float> rounded(const AttentionOperand& x, float factor) {
    std::vector<float> values = dequantize(x);
    for (float& value : values) {
      value = to_bf16(static_cast<double>(value));
      if (factor != 1.0F) value = product_in_bf16(value, factor);
    }
    return values;
  }

  [[nodiscard]] float score(const float* q, const float* k) const {
    double sum = 0.0;
    for (std::int64_t i = 0; i < shape_.d; ++i)
      sum += static_cast<double>(q[i]) * static_cast<double>(k[i]);
    const float plain = to_bf16(sum);
    if (options_.soft_cap == 0.0F) return plain;
    const float inner =
        to_bf16(static_cast<double>(plain) / static_cast<double>(options_.soft_cap));
    return product_in_bf16(to_bf16(std::tanh(static_cast<double>(inner))), options_.soft_cap);
  }

  /// P of a row, rounded to BF16 and then to E4M3.
  [[nodiscard]] std::vector<float> weights(const float* q, const float* k, std::int64_t seen,
                                           double sink) const {
    std::vector<float> p(static_cast<std::size_t>(seen));
    for (std::int64_t j = 0; j < seen; ++j)
      p[static_cast<std::size_t>(j)] = score(q, k + j * shape_.d);
    const double maximum =
        std::max(static_cast<double>(*std::max_element(p.begin(), p.end())), sink);
    double total = std::exp(sink - maximum);
    for (const float s : p) total += std::exp(static_cast<double>(s) - maximum);
    for (float& s : p) s = to_bf16(std::exp(static_cast<double>(s) - maximum) / total);
    std::vector<std::uint8_t> codes(p.size());
    encode(p, codes, {.format = FormatId::e4m3fn, .policy = kNvidiaSatfinite});
    const std::span<const float> table = decode_table(FormatId::e4m3fn);
    std::ranges::transform(codes, p.begin(), [&](std::uint8_t code) { return table[code]; });
    return p;
  }

  void add_row(std::int64_t row, float* o) const {
    const std::int64_t head = row / shape_.m;
    const SeenColumns seen = seen_columns(shape_, options_, row % shape_.m);
    if (seen.begin >= seen.end) return;
    const std::int64_t first = head / shape_.group * shape_.n + seen.begin;
    const double sink = options_.sinks.empty()
                            ? -std::numeric_limits<double>::infinity()
                            : static_cast<double>(options_.sinks[static_cast<std::size_t>(head)]);
    const std::vector<float> p = weights(q_.data() + row * shape_.d, k_.data() + first * shape_.d,
                                         seen.end - seen.begin, sink);
    std::vector<double> sums(static_cast<std::size_t>(shape_.d_v), 0.0);
    const float* v = v_.data() + first * shape_.d_v;
    for (const float one : p)
      for (double& sum : sums) sum += static_cast<double>(one) * static_cast<double>(*v++);
    std::ranges::transform(sums, o, to_bf16);
  }

  const AttentionOptions& options_;
  AttentionShape shape_;
  float softmax_scale_;
  std::vector<float> q_;
  std::vector<float> k_;  // times the softmax's scale
  std::vector<float> v_;
};

/// 2 max |t - x| (3 with a soft cap) plus twice what adding and subtracting 0.3 changes.
double limit_of(const std::vector<double>& exact, const std::vector<float>& torch, float soft_cap) {
  double apart = 0.0;
  double slack = 0.0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const auto x = static_cast<double>(to_bf16(exact[i]));
    apart = std::max(apart, std::abs(static_cast<double>(torch[i]) - x));
    const auto there = static_cast<double>(to_bf16(x + 0.3));
    slack = std::max(slack, std::abs(static_cast<double>(to_bf16(there - 0.3)) - x));
  }
  return (soft_cap > 0.0F ? 3.0 : 2.0) * static_cast<double>(to_bf16(apart)) +
         2.0 * static_cast<double>(to_bf16(slack));
}

}  // namespace

std::span<const AttentionGateText> attention_gate_texts() {
  static const std::vector<AttentionGateText> texts = [] {
    std::vector<AttentionGateText> all;
    for (const Gate& gate : gates()) all.push_back({gate.name, gate.text, gate.source});
    for (const CloseGate& gate : kCloseGates) all.push_back(gate.text);
    all.push_back(kFlashAttention);
    return all;
  }();
  return texts;
}

AttentionGates::AttentionGates(const AttentionInputs& inputs, const AttentionOptions& options,
                               FormatId output)
    : output_(output), threads_(options.threads) {
  const FloatEnvironment environment;
  const std::vector<double> exact = attention_reference(
      inputs, dequantize(inputs.q), dequantize(inputs.k), dequantize(inputs.v), options);
  const std::vector<float> rounded(exact.begin(), exact.end());
  reference_ = cast_output(rounded, default_output(output), threads_);
  flash_attention_limit_ = limit_of(exact, TorchAttention(inputs, options).run(), options.soft_cap);
}

CodeComparison AttentionGates::compare(std::span<const float> o) const {
  const FloatEnvironment environment;
  return compare_codes(format(output_), reference_,
                       cast_output(o, default_output(output_), threads_),
                       {.tolerances = all_tolerances(output_), .threads = threads_});
}

std::vector<bool> AttentionGates::pass(const CodeComparison& c) const {
  const FloatEnvironment environment;
  std::vector<bool> passes;
  for (std::size_t g = 0; g < gates().size(); ++g) passes.push_back(gate_passes(g, c));
  const bool finite = c.values.non_finite_mismatches == 0;
  for (std::size_t g = 0; g < kCloseGates.size(); ++g)
    passes.push_back(finite && c.far.at(gates().size() + g) == 0);
  const double farthest = output_ == FormatId::bf16
                              ? static_cast<double>(to_bf16(c.values.max_absolute))
                              : c.values.max_absolute;
  passes.push_back(c.bitwise() || (finite && farthest <= flash_attention_limit_));
  return passes;
}

}  // namespace fp8lab
