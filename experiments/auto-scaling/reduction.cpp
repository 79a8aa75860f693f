#include "auto-scaling/reduction.hpp"

#include <algorithm>
#include <cmath>

#include "common/tensors.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/metrics/comparison.hpp"
#include "fp8lab/metrics/sum.hpp"
#include "fp8lab/scaling/scale_rule.hpp"

namespace fp8lab::experiments {
namespace {

/// Sums of two FP8 codes, cast back, for every pair: the exact sum of two FP8
/// numbers is rounded to FP16 and then to FP8, as NCCL's FP8 sum does.
class HopTable {
 public:
  explicit HopTable(const Format& f) : codes_(65536) {
    const Format& half = format(FormatId::f16);
    for (std::uint32_t a = 0; a < 256; ++a)
      for (std::uint32_t b = 0; b < 256; ++b) {
        const auto exact = static_cast<float>(decode(f, a) + decode(f, b));
        const Unpacked sum = unpack(half, encode(half, kNvidiaNosat, exact));
        codes_[a << 8 | b] = static_cast<std::uint8_t>(cast(f, kNvidiaSatfinite, sum).code);
      }
  }
  [[nodiscard]] std::uint8_t add(std::uint8_t a, std::uint8_t b) const {
    return codes_[static_cast<std::size_t>(a) << 8 | b];
  }

 private:
  std::vector<std::uint8_t> codes_;
};

const HopTable& hop_table(const Format& f) {
  static const HopTable kE4m3(format(FormatId::e4m3fn));
  static const HopTable kE5m2(format(FormatId::e5m2));
  return f.id == FormatId::e5m2 ? kE5m2 : kE4m3;
}

}  // namespace

Gradients::Gradients(const RandomStream& random, const GradientShape& shape, std::int64_t ranks) {
  const std::vector<float> common = log_normal(random, shape.elements, shape.decades);
  for (std::int64_t r = 0; r < ranks; ++r) {
    // Far from the counters that the common part has used.
    const std::uint64_t first = (static_cast<std::uint64_t>(r) + 1) << 32;
    std::vector<float> x(shape.elements);
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(static_cast<double>(common[i]) *
                                (1.0 + shape.noise_to_signal * random.normal(first + i)));
    ranks_.push_back(std::move(x));
  }
}

std::vector<float> Gradients::mean() const {
  std::vector<float> result(ranks_.front().size());
  for (std::size_t i = 0; i < result.size(); ++i) {
    PairwiseSum sum;
    for (const std::vector<float>& x : ranks_) sum.add(static_cast<double>(x[i]));
    result[i] = static_cast<float>(sum.total() / static_cast<double>(ranks_.size()));
  }
  return result;
}

float Gradients::amax() const {
  float largest = 0.0F;
  for (const std::vector<float>& x : ranks_) largest = std::max(largest, fp8lab::amax(x, true));
  return largest;
}

std::vector<std::uint8_t> ring_sum(const Gradients& gradients, double factor, const Format& f) {
  const HopTable& hop = hop_table(f);
  const auto scale = static_cast<float>(factor);
  std::vector<std::uint8_t> sum(gradients.of_rank(0).size());
  for (std::int64_t r = 0; r < gradients.ranks(); ++r) {
    const std::vector<float>& x = gradients.of_rank(r);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      const auto code = static_cast<std::uint8_t>(encode(f, kNvidiaSatfinite, x[i] * scale));
      sum[i] = r == 0 ? code : hop.add(sum[i], code);
    }
  }
  return sum;
}

ReductionLoss measure_reduction(const Gradients& gradients, const std::vector<std::uint8_t>& codes,
                                double inverse, const Format& f) {
  const std::vector<float> mean = gradients.mean();
  std::vector<float> got(mean.size());
  ReductionLoss loss;
  const double percent = 100.0 / static_cast<double>(mean.size());
  for (std::size_t i = 0; i < mean.size(); ++i) {
    got[i] = static_cast<float>(decode(f, codes[i]) * inverse);
    const std::uint32_t magnitude = codes[i] & f.magnitude_mask();
    if (mean[i] != 0.0F && magnitude == 0) loss.underflow_percent += percent;
    if (magnitude == f.max_finite_code()) loss.overflow_percent += percent;
  }
  loss.snr_db = compare(mean, got).sqnr_db;
  return loss;
}

}  // namespace fp8lab::experiments
