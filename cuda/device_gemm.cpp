#include "device_gemm.hpp"

#include <fmt/format.h>

#include "fp8lab/core/error.hpp"
#include "fp8lab/gemm/c_placement.hpp"
#include "host_arguments.hpp"

namespace fp8lab::cuda {
namespace {

void check_problem(const GemmProblem& problem, std::span<float> d) {
  validate(problem, d.size());
  const CPlacement place = gemm_detail::passing_place(problem);
  require(gemm_detail::enters_in_passing(problem), "c_enters",
          fmt::format("{}, the only place that the device supports", to_string(place)),
          to_string(problem.c_enters));
}

bool has_elements(const GemmProblem& p) { return p.a.rows > 0 && p.b.rows > 0 && p.a.k > 0; }

}  // namespace

DeviceGemm::DeviceGemm(const GemmProblem& p)
    : a_scales_(p.scale_a.values),
      b_scales_(p.scale_b.values),
      d_(static_cast<std::size_t>(p.a.rows * p.b.rows)),
      arguments_(shape_arguments(p)) {
  const auto copied = [&](const CodeMatrix& matrix) {
    const std::vector<std::uint8_t> rows = padded_rows(matrix, arguments_.row_bytes);
    return DeviceBuffer<std::uint8_t>(std::span<const std::uint8_t>(rows));
  };
  a_ = copied(p.a);
  b_ = copied(p.b);
  if (p.c != nullptr) c_ = DeviceBuffer<float>(std::span<const float>(p.c, d_.size()));
  d_.fill(0xab);
  arguments_.a = a_.data();
  arguments_.b = b_.data();
  arguments_.c = c_.data();
  arguments_.d = d_.data();
  arguments_.scale_a.values = a_scales_.data();
  arguments_.scale_b.values = b_scales_.data();
}

void DeviceGemm::copy_result(std::span<float> d) const {
  FP8LAB_CUDA_CHECK(cudaMemcpy(d.data(), d_.data(), d_.bytes(), cudaMemcpyDeviceToHost));
}

void gemm_on_tensor_cores(const GemmProblem& problem, std::span<float> d, int threads) {
  check_problem(problem, d);
  require(problem.model.output_format == FormatId::f32, "model", "binary32 sums", "FP16 sums");
  if (!has_elements(problem)) return gemm(problem, d, threads);
  const DeviceGemm device(problem);
  launch_gemm_wgmma(device.arguments(), problem.a.format, problem.b.format);
  device.copy_result(d);
}

void gemm_emulated(const GemmProblem& problem, std::span<float> d, int threads) {
  check_problem(problem, d);
  if (!has_elements(problem)) return gemm(problem, d, threads);
  const DeviceGemm device(problem);
  launch_gemm_emulated(device.arguments(), problem.model, problem.a.format, problem.b.format);
  device.copy_result(d);
}

}  // namespace fp8lab::cuda
