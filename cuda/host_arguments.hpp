#pragma once
// The arguments of a product with everything in host memory, as the device's
// buffers hold it: what DeviceGemm copies, and what tests of kernels run on.

#include <span>
#include <vector>

#include "gemm_arguments.hpp"

namespace fp8lab::cuda {

/// A grid has at most 65535 rows of blocks, each of 64 rows of outputs or more.
inline constexpr std::int64_t kMostRows = 65535 * 64;

/// Sizes and blocks of a problem, without any pointer. Throws `Error` for
/// sizes beyond 2^23, more than kMostRows rows, or operands of different storage widths.
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
