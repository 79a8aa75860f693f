#include "auto-scaling/reduction.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "common/parallel.hpp"
#include "common/tensors.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/cast/encode.hpp"
#include "fp8lab/metrics/sum.hpp"
#include "fp8lab/scaling/scale_rule.hpp"
#include "training/collectives/wire.hpp"

namespace fp8lab::experiments {
namespace {

/// NCCL's sum of two FP8 codes, and whether it saturated, for every pair.
class HopTable {
 public:
  explicit HopTable(const Format& f) : entries_(65536) {
    const WireFormat& wire = find_wire_format(f.name);
    for (std::uint32_t a = 0; a < 256; ++a)
      for (std::uint32_t b = 0; b < 256; ++b) {
        const CastResult result = add_codes(wire, a, b);
        const std::uint32_t overflowed = result.overflowed ? 256U : 0U;
        entries_[a << 8 | b] = static_cast<std::uint16_t>(overflowed | result.code);
      }
  }
  /// Adds `code` to element i of the sum.
  void add(std::uint8_t code, std::size_t i, RingSum& sum) const {
    const std::uint16_t entry = entries_[static_cast<std::size_t>(sum.codes[i]) << 8 | code];
    sum.codes[i] = static_cast<std::uint8_t>(entry);
    sum.overflowed[i] = static_cast<std::uint8_t>(sum.overflowed[i] | entry >> 8);
  }

 private:
  std::vector<std::uint16_t> entries_;  ///< the sum's code; bit 8: it overflowed
};

const HopTable& hop_table(const Format& f) {
  static const HopTable kE4m3(format(FormatId::e4m3fn));
  static const HopTable kE5m2(format(FormatId::e5m2));
  return f.id == FormatId::e5m2 ? kE5m2 : kE4m3;
}

/// The codes of `scaled`, on `backend` where that has the cast.
void cast_codes(const Backend& backend, const Format& f, const std::vector<float>& scaled,
                std::vector<std::uint8_t>& codes) {
  if (try_cast_on(backend, f.id, kNvidiaSatfinite, scaled, codes)) return;
  encode(scaled, codes, {.format = f.id});
}

/// Marks the elements whose cast rounded above max finite: only codes there can have.
void mark_overflows(const Format& f, const std::vector<float>& scaled,
                    const std::vector<std::uint8_t>& codes, RingSum& sum) {
  for (std::size_t i = 0; i < codes.size(); ++i)
    if ((codes[i] & f.magnitude_mask()) == f.max_finite_code() &&
        cast(f, kNvidiaSatfinite, scaled[i]).overflowed)
      sum.overflowed[i] = 1;
}

}  // namespace

Gradients::Gradients(const RandomStream& random, const GradientShape& shape, std::int64_t ranks,
                     int threads)
    : ranks_(static_cast<std::size_t>(ranks)) {
  const std::vector<float> common = log_normal(random, shape.elements, shape.decades);
  RunContext quiet;
  quiet.threads = threads;
  parallel_points(quiet, ranks_.size(), [&](std::size_t r) {
    // Far from the counters that the common part has used.
    const std::uint64_t first = (static_cast<std::uint64_t>(r) + 1) << 32;
    std::vector<float>& x = ranks_[r];
    x.resize(shape.elements);
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(static_cast<double>(common[i]) *
                                (1.0 + shape.noise_to_signal * random.normal(first + i)));
  });
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

RingSum ring_sum(const Gradients& gradients, double factor, const Format& f,
                 const Backend& backend) {
  const HopTable& hop = hop_table(f);
  const auto scale = static_cast<float>(factor);
  const std::size_t size = gradients.elements();
  RingSum sum{std::vector<std::uint8_t>(size), std::vector<std::uint8_t>(size)};
  std::vector<float> scaled(size);
  std::vector<std::uint8_t> codes(size);
  for (std::int64_t r = 0; r < gradients.ranks(); ++r) {
    const std::vector<float>& x = gradients.of_rank(r);
    std::transform(x.begin(), x.end(), scaled.begin(), [&](float v) { return v * scale; });
    cast_codes(backend, f, scaled, codes);
    mark_overflows(f, scaled, codes, sum);
    if (r == 0)
      sum.codes = codes;
    else
      for (std::size_t i = 0; i < size; ++i) hop.add(codes[i], i, sum);
  }
  return sum;
}

double share_at_max(const std::vector<std::uint8_t>& codes, const Format& f) {
  const auto count = std::count_if(codes.begin(), codes.end(), [&](std::uint8_t code) {
    return (code & f.magnitude_mask()) == f.max_finite_code();
  });
  return static_cast<double>(count) / static_cast<double>(codes.size());
}

ReductionLoss measure_reduction(const std::vector<float>& mean, const RingSum& sum, double inverse,
                                const Format& f) {
  std::array<double, 256> values{};
  for (std::uint32_t code = 0; code < 256; ++code)
    values[code] = static_cast<double>(static_cast<float>(decode(f, code) * inverse));
  PairwiseSum signal;
  PairwiseSum noise;
  std::size_t underflowed = 0;
  std::size_t overflowed = 0;
  for (std::size_t i = 0; i < mean.size(); ++i) {
    const auto exact = static_cast<double>(mean[i]);
    const double error = values[sum.codes[i]] - exact;
    signal.add(exact * exact);
    noise.add(error * error);
    if (mean[i] != 0.0F && (sum.codes[i] & f.magnitude_mask()) == 0) ++underflowed;
    overflowed += sum.overflowed[i];
  }
  const double percent = 100.0 / static_cast<double>(mean.size());
  const bool equal = noise.total() == 0.0;
  return {equal ? INFINITY : 10.0 * std::log10(signal.total() / noise.total()),
          percent * static_cast<double>(underflowed), percent * static_cast<double>(overflowed)};
}

}  // namespace fp8lab::experiments
