#pragma once
// Matrix products on the device: fp8lab::GemmProblem in, D out, host memory on
// both sides. Same results as fp8lab::gemm under the model, or what the chip gives.

#include <span>

#include "device_buffer.hpp"
#include "gemm_launch.hpp"

namespace fp8lab::cuda {

/// A problem copied to the device, with its output.
class DeviceGemm {
 public:
  explicit DeviceGemm(const GemmProblem& problem);

  [[nodiscard]] const GemmArguments& arguments() const { return arguments_; }
  /// D, after a launch; synchronises.
  void copy_result(std::span<float> d) const;

 private:
  DeviceBuffer<std::uint8_t> a_;
  DeviceBuffer<std::uint8_t> b_;
  DeviceBuffer<float> c_;
  DeviceBuffer<float> a_scales_;
  DeviceBuffer<float> b_scales_;
  DeviceBuffer<float> d_;
  GemmArguments arguments_;
};

/// Products with the signature of fp8lab::gemm, see gemm_launch.hpp for what each
/// takes. Products of no elements go to the library. `threads` is ignored.
void gemm_on_tensor_cores(const GemmProblem& problem, std::span<float> d, int threads);
void gemm_emulated(const GemmProblem& problem, std::span<float> d, int threads);

}  // namespace fp8lab::cuda
