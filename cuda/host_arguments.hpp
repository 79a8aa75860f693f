#pragma once
// The arguments of a product with everything in host memory, as the device's
// buffers hold it: what DeviceGemm copies, and what tests of kernels run on.

#include <span>
#include <vector>

#include "gemm_arguments.hpp"

namespace fp8lab::cuda {

/// Sizes and blocks of a problem, without any pointer. Throws `Error` for
/// shapes beyond 2^23 or operands of different storage widths.
GemmArguments shape_arguments(const GemmProblem& problem);

class HostArguments {
 public:
  explicit HostArguments(const GemmProblem& problem);
  HostArguments(const HostArguments&) = delete;
  HostArguments& operator=(const HostArguments&) = delete;

  [[nodiscard]] const GemmArguments& arguments() const { return arguments_; }
  [[nodiscard]] const std::vector<float>& result() const { return d_; }

 private:
  std::vector<std::uint8_t> a_;
  std::vector<std::uint8_t> b_;
  std::vector<float> d_;
  GemmArguments arguments_;
};

}  // namespace fp8lab::cuda
