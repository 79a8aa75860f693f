#include "auto-scaling/reduction.hpp"

#include <algorithm>
#include <cmath>

#include "common/cast.hpp"
#include "common/tensors.hpp"
#include "fp8lab/collectives/wire.hpp"
#include "fp8lab/metrics/comparison.hpp"
#include "fp8lab/metrics/sum.hpp"
#include "fp8lab/scaling/scale_rule.hpp"

namespace fp8lab::experiments {
namespace {

/// NCCL's sum of two FP8 codes, and whether it saturated, for every pair.
class HopTable {
 public:
  explicit HopTable(const Format& f) : codes_(65536), overflowed_(65536) {
    const WireFormat& wire = find_wire_format(f.name);
    for (std::uint32_t a = 0; a < 256; ++a)
      for (std::uint32_t b = 0; b < 256; ++b) {
        const CastResult result = add_codes(wire, a, b);
        codes_[a << 8 | b] = static_cast<std::uint8_t>(result.code);
        overflowed_[a << 8 | b] = result.overflowed;
      }
  }
  /// Adds `code` to element i of the sum.
  void add(std::uint8_t code, std::size_t i, RingSum& sum) const {
    const std::size_t at = static_cast<std::size_t>(sum.codes[i]) << 8 | code;
    sum.codes[i] = codes_[at];
    if (overflowed_[at]) sum.overflowed[i] = true;
  }

 private:
  std::vector<std::uint8_t> codes_;
  std::vector<bool> overflowed_;
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

RingSum ring_sum(const Gradients& gradients, double factor, const Format& f) {
  const HopTable& hop = hop_table(f);
  const auto scale = static_cast<float>(factor);
  const std::size_t size = gradients.of_rank(0).size();
  RingSum sum{std::vector<std::uint8_t>(size), std::vector<bool>(size)};
  std::vector<float> scaled(size);
  for (std::int64_t r = 0; r < gradients.ranks(); ++r) {
    const std::vector<float>& x = gradients.of_rank(r);
    std::transform(x.begin(), x.end(), scaled.begin(), [&](float v) { return v * scale; });
    const std::vector<CastResult> results = cast_all(f, kNvidiaSatfinite, scaled);
    for (std::size_t i = 0; i < size; ++i) {
      if (results[i].overflowed) sum.overflowed[i] = true;
      const auto code = static_cast<std::uint8_t>(results[i].code);
      if (r == 0)
        sum.codes[i] = code;
      else
        hop.add(code, i, sum);
    }
  }
  return sum;
}

double share_at_max(const std::vector<std::uint8_t>& codes, const Format& f) {
  const auto count = std::count_if(codes.begin(), codes.end(), [&](std::uint8_t code) {
    return (code & f.magnitude_mask()) == f.max_finite_code();
  });
  return static_cast<double>(count) / static_cast<double>(codes.size());
}

ReductionLoss measure_reduction(const Gradients& gradients, const RingSum& sum, double inverse,
                                const Format& f) {
  const std::vector<float> mean = gradients.mean();
  std::vector<float> got(mean.size());
  ReductionLoss loss;
  const double percent = 100.0 / static_cast<double>(mean.size());
  for (std::size_t i = 0; i < mean.size(); ++i) {
    got[i] = static_cast<float>(decode(f, sum.codes[i]) * inverse);
    if (mean[i] != 0.0F && (sum.codes[i] & f.magnitude_mask()) == 0)
      loss.underflow_percent += percent;
    if (sum.overflowed[i]) loss.overflow_percent += percent;
  }
  loss.snr_db = compare(mean, got).sqnr_db;
  return loss;
}

}  // namespace fp8lab::experiments
