#pragma once
// How far outputs are from exact ones.

#include <vector>

namespace fp8lab::cuda {

struct Errors {
  double max_to_largest = 0.0;  ///< largest error, of the largest exact output
  double relative_l2 = 0.0;     ///< norm of the errors, of the norm of the exact outputs
  double bias = 0.0;  ///< mean error away from zero, of the mean magnitude; below 0: toward zero
};

/// All zero where every exact output is.
Errors errors_of(const std::vector<float>& got, const std::vector<float>& exact);

}  // namespace fp8lab::cuda
