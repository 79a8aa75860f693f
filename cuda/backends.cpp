#include "backends.hpp"

#include <algorithm>
#include <vector>

#include "casts.hpp"
#include "check.cuh"
#include "chip_products.hpp"
#include "device_buffer.hpp"
#include "device_gemm.hpp"
#include "emulated_model.hpp"
#include "fp8lab/gemm/c_placement.hpp"

namespace fp8lab::cuda {
namespace {

constexpr int kLeastForCasts = 89;  // cvt to FP8
constexpr int kNewest = 999;

bool gemm_on_chip(const GemmProblem& problem, std::span<float> d, int threads) {
  if (!has_tensor_core_product(problem)) return false;
  require_hopper();
  gemm_on_tensor_cores(problem, d, threads);
  return true;
}

bool gemm_on_emulator(const GemmProblem& problem, std::span<float> d, int threads) {
  if (!can_emulate(problem.model, problem.a.format, problem.b.format)) return false;
  if (!gemm_detail::enters_in_passing(problem)) return false;
  require_device();
  gemm_emulated(problem, d, threads);
  return true;
}

bool cast_on_chip(FormatId format, const CastPolicy& policy, std::span<const float> values,
                  std::span<std::uint8_t> codes) {
  if (!fits_satfinite(format, policy, values)) return false;
  require_capability(kLeastForCasts, kNewest);
  // The instruction makes two codes: an odd tensor has a pair with one that is left out.
  const std::size_t even = (values.size() + 1) / 2 * 2;
  DeviceBuffer<float> from(even);
  from.fill(0);
  from.copy_in(values);
  DeviceBuffer<std::uint8_t> to(even);
  launch_cast_of_values(format == FormatId::e4m3fn ? Fp8::e4m3 : Fp8::e5m2, from.data(), even,
                        to.data());
  const std::vector<std::uint8_t> made = to.copy_out(codes.size());
  std::copy(made.begin(), made.end(), codes.begin());
  return true;
}

}  // namespace

std::vector<Backend> backends() {
  return {{}, {"cuda", gemm_on_chip, cast_on_chip}, {"cuda-emulated", gemm_on_emulator, nullptr}};
}

}  // namespace fp8lab::cuda
