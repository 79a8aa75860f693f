#include "device_gemm.hpp"

#include <fmt/format.h>

#include <cstring>
#include <limits>

#include "fp8lab/core/error.hpp"

namespace fp8lab::cuda {
namespace {

template <typename T>
T round_up(T value, T unit) {
  return (value + unit - 1) / unit * unit;
}

int checked_int(std::int64_t value, const char* name) {
  require(value <= std::numeric_limits<int>::max() / 256, name, "a size below 2^23",
          fmt::format("{}", value));
  return static_cast<int>(value);
}

ScaleArguments scale_arguments(const InverseScales& scales, const CodeMatrix& matrix,
                               const DeviceBuffer<float>& values) {
  if (scales.empty()) return {};
  const std::int64_t k_block = scales.k_block == 0 ? matrix.k : scales.k_block;
  const auto fitted = [](std::int64_t block, std::int64_t size) {
    return static_cast<int>(std::min(block, std::max<std::int64_t>(size, 1)));
  };
  return {values.data(), fitted(scales.row_block, matrix.rows), fitted(k_block, matrix.k),
          static_cast<int>((matrix.k + k_block - 1) / k_block)};
}

void check_problem(const GemmProblem& problem, std::span<float> d) { validate(problem, d.size()); }

bool has_elements(const GemmProblem& p) { return p.a.rows > 0 && p.b.rows > 0 && p.a.k > 0; }

}  // namespace

int padded_row_bytes(const CodeMatrix& matrix) {
  return checked_int(
      round_up<std::int64_t>(matrix.k * format(matrix.format).storage_bits / 8, kPaddedBytes), "k");
}

std::vector<std::uint8_t> padded_rows(const CodeMatrix& matrix, int row_bytes) {
  const auto bytes = static_cast<std::size_t>(format(matrix.format).storage_bits / 8);
  const auto rows = round_up(static_cast<std::size_t>(matrix.rows), std::size_t{kPaddedRows});
  std::vector<std::uint8_t> padded(rows * static_cast<std::size_t>(row_bytes));
  const auto* from = static_cast<const std::uint8_t*>(matrix.data);
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    std::uint8_t* to = padded.data() + static_cast<std::size_t>(row * row_bytes);
    const std::uint8_t* source = from + row * matrix.row_stride * static_cast<std::int64_t>(bytes);
    if (matrix.k_stride == 1) {
      std::memcpy(to, source, static_cast<std::size_t>(matrix.k) * bytes);
      continue;
    }
    for (std::int64_t k = 0; k < matrix.k; ++k)
      std::memcpy(to + static_cast<std::size_t>(k) * bytes,
                  source + k * matrix.k_stride * static_cast<std::int64_t>(bytes), bytes);
  }
  return padded;
}

DeviceGemm::DeviceGemm(const GemmProblem& p)
    : a_scales_(p.a_scales.values),
      b_scales_(p.b_scales.values),
      d_(static_cast<std::size_t>(p.a.rows * p.b.rows)) {
  const int row_bytes = padded_row_bytes(p.a);
  require(padded_row_bytes(p.b) == row_bytes, "b", "the storage width of a",
          format(p.b.format).name);
  a_ = DeviceBuffer<std::uint8_t>(std::span<const std::uint8_t>(padded_rows(p.a, row_bytes)));
  b_ = DeviceBuffer<std::uint8_t>(std::span<const std::uint8_t>(padded_rows(p.b, row_bytes)));
  if (p.c != nullptr) c_ = DeviceBuffer<float>(std::span<const float>(p.c, d_.size()));
  d_.fill(0xab);
  GemmArguments& g = arguments_;
  g.a = a_.data();
  g.b = b_.data();
  g.c = c_.data();
  g.d = d_.data();
  g.m = checked_int(p.a.rows, "m");
  g.n = checked_int(p.b.rows, "n");
  g.k = checked_int(p.a.k, "k");
  g.row_bytes = row_bytes;
  g.promotion_interval = checked_int(p.promotion_interval, "promotion_interval");
  g.a_scales = scale_arguments(p.a_scales, p.a, a_scales_);
  g.b_scales = scale_arguments(p.b_scales, p.b, b_scales_);
  g.order = p.scale_order;
  g.scaled_along_k = (!p.a_scales.empty() && g.a_scales.columns > 1) ||
                     (!p.b_scales.empty() && g.b_scales.columns > 1);
  g.scaled_at_end = (!p.a_scales.empty() || !p.b_scales.empty()) && !g.scaled_along_k;
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
