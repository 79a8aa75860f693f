#pragma once
// Stochastic quadratics whose elements differ in curvature alone.

#include <cstdint>
#include <vector>

#include "fp8lab/core/random.hpp"
#include "training/optim/adamw.hpp"

namespace fp8lab::experiments {

struct Problem {
  std::size_t elements = 1024;
  double decades = 4.0;  ///< of curvature, log-uniform below 1, in random order
  double noise = 0.5;    ///< of the gradient, in units of curvature
  double start = 1.0;    ///< every x at first
};

/// Curvatures and gradients; element i and step t are functions of the stream alone.
class Quadratic {
 public:
  Quadratic(const RandomStream& random, const Problem& problem);

  /// h_i (x_i + noise n_i,t).
  void gradient(std::int64_t step, const std::vector<float>& x, std::vector<float>& g) const;
  [[nodiscard]] std::vector<float> start() const;

 private:
  RandomStream random_;
  Problem problem_;
  std::vector<double> curvature_;
};

/// Mean x^2: 1 at the start, and the same for elements of any curvature.
double mean_square(const std::vector<float>& x);

struct Trajectory {
  std::vector<double> loss;     ///< mean x^2 after each step; Inf once it is not finite
  double largest_update = 0.0;  ///< max |dx| / lr over all steps after the 10th
  double zero_v_percent = 0.0;  ///< elements whose stored v is 0, at the end
};

/// `steps` steps of AdamW on the quadratic.
Trajectory run_trajectory(const Quadratic& problem, const AdamWOptions& options, double lr,
                          std::int64_t steps);

/// Stored v over the v of FP32 states, the mean over the elements, after `steps` gradients of
/// normal(0, 1). 1 where the format keeps up.
double v_ratio(const RandomStream& random, const AdamWOptions& options, std::size_t elements,
               std::int64_t steps);

}  // namespace fp8lab::experiments
