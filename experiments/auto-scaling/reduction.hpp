#pragma once
// Gradients of many ranks, summed in FP8 as a ring does it.

#include <cstdint>
#include <tuple>
#include <vector>

#include "fp8lab/core/random.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/gemm/backend.hpp"
#include "lab/experiment/parameter_struct.hpp"

namespace fp8lab::experiments {

struct GradientShape {
  std::size_t elements = 2048;
  double decades = 3.0;          ///< of the common part's magnitudes, +-3 sigma
  double noise_to_signal = 2.0;  ///< a rank's noise over the common part, element by element

  /// The parameters that set it.
  static constexpr auto fields() {
    return std::tuple{field("elements", &GradientShape::elements),
                      field("decades", &GradientShape::decades),
                      field("noise_to_signal", &GradientShape::noise_to_signal)};
  }
};

/// One step's gradients: element i of rank r is a function of stream, r and i.
class Gradients {
 public:
  Gradients(const RandomStream& random, const GradientShape& shape, std::int64_t ranks,
            int threads = 1);
  /// Given ones: at least one rank, all of one length.
  explicit Gradients(std::vector<std::vector<float>> ranks) : ranks_(std::move(ranks)) {}

  [[nodiscard]] const std::vector<float>& of_rank(std::int64_t rank) const {
    return ranks_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] std::int64_t ranks() const { return static_cast<std::int64_t>(ranks_.size()); }
  [[nodiscard]] std::size_t elements() const { return ranks_.front().size(); }
  /// The mean over the ranks in FP64, rounded once.
  [[nodiscard]] std::vector<float> mean() const;
  [[nodiscard]] float amax() const;  ///< over all ranks

 private:
  std::vector<std::vector<float>> ranks_;
};

/// A sum in FP8, element by element.
struct RingSum {
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> overflowed;  ///< 1: some cast or hop rounded above max finite
};

/// Each rank casts `gradient * factor`; along the ring, rank after rank, two
/// codes are added in FP16 and the sum is cast to FP8 again (saturating).
/// `factor` multiplies into FP8, in binary32. `backend`: of the ranks' casts.
RingSum ring_sum(const Gradients& gradients, double factor, const Format& f,
                 const Backend& backend = {});

/// The share, 0 to 1, of codes at max finite: what a system can count.
double share_at_max(const std::vector<std::uint8_t>& codes, const Format& f);

/// What a reduction did to the mean gradient.
struct ReductionLoss {
  double snr_db = 0.0;
  double underflow_percent = 0.0;  ///< non-zero means whose sum is a zero code
  double overflow_percent = 0.0;   ///< sums that saturated at some hop, even if they came back
};

/// `mean`: of `Gradients::mean`. `inverse` multiplies the summed codes to give the mean.
ReductionLoss measure_reduction(const std::vector<float>& mean, const RingSum& sum, double inverse,
                                const Format& f);

}  // namespace fp8lab::experiments
