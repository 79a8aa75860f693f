// Products of tensors that already lie on a CUDA device. Python passes addresses: DLPack would
// order the work behind another stream than the framework's current one.

#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>

#include "bindings.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/gemm/gemm.hpp"
#ifdef FP8LAB_WITH_CUDA
#include "stream_calls.hpp"
#endif

namespace fp8lab::python {
namespace {

/// Address of the first element, format, rows, k, strides of rows and of k in elements.
using DeviceMatrix = std::tuple<std::uintptr_t, std::string_view, std::int64_t, std::int64_t,
                                std::int64_t, std::int64_t>;
/// Address of float32 values, how many, and the rows and k of a tile (0: all of k).
using DeviceScales =
    std::optional<std::tuple<std::uintptr_t, std::int64_t, std::int64_t, std::int64_t>>;
/// Address and number of elements.
using DeviceArray = std::tuple<std::uintptr_t, std::int64_t>;

#ifdef FP8LAB_WITH_CUDA

template <typename T>
T* pointer_to(std::uintptr_t address) {
  return std::bit_cast<T*>(address);
}

template <typename T>
std::span<T> device_span(std::string_view name, const DeviceArray& array) {
  const auto [address, size] = array;
  require(size >= 0, name, "0 or more elements", size);
  return {pointer_to<T>(address), static_cast<std::size_t>(size)};
}

CodeMatrix matrix_of(const DeviceMatrix& m) {
  const auto& [address, name, rows, k, row_stride, k_stride] = m;
  return {find_format(name).id, pointer_to<const void>(address), rows, k, row_stride, k_stride};
}

InverseScales scales_of(std::string_view name, const DeviceScales& scales) {
  if (!scales) return {};
  const auto& [address, size, row_block, k_block] = *scales;
  return {device_span<const float>(name, {address, size}), row_block, k_block};
}

std::int64_t device_workspace(const DeviceMatrix& a, const DeviceMatrix& b) {
  GemmProblem problem;
  problem.a = matrix_of(a);
  problem.b = matrix_of(b);
  return static_cast<std::int64_t>(cuda::workspace_bytes(problem));
}

void device_gemm(const AccumulatorModel& model, const DeviceMatrix& a, const DeviceMatrix& b,
                 const DeviceScales& scale_a, const DeviceScales& scale_b,
                 std::int64_t promotion_interval, std::string_view scale_order,
                 const DeviceArray& d, const DeviceArray& workspace, int device,
                 std::uintptr_t stream) {
  GemmProblem problem;
  problem.model = model;
  problem.a = matrix_of(a);
  problem.b = matrix_of(b);
  problem.scale_a = scales_of("scale_a", scale_a);
  problem.scale_b = scales_of("scale_b", scale_b);
  problem.promotion_interval = promotion_interval;
  problem.scale_order = find_scale_order(scale_order);
  cuda::gemm_on_stream(
      {problem, device_span<float>("d", d), device_span<std::uint8_t>("workspace", workspace)},
      {device, stream}, cuda::device_calls());
}

void device_column_sums(std::uintptr_t x, std::int64_t rows, std::int64_t columns,
                        std::int64_t row_stride, std::uintptr_t sums, int device,
                        std::uintptr_t stream) {
  cuda::sum_columns_on_stream(
      {pointer_to<const float>(x), pointer_to<float>(sums), rows, columns, row_stride},
      {device, stream}, cuda::device_calls());
}

#else

[[noreturn]] void without_cuda() {
  throw Error("device", "a build with CUDA (FP8LAB_ENABLE_CUDA=ON)", "one without");
}

std::int64_t device_workspace(const DeviceMatrix& /*a*/, const DeviceMatrix& /*b*/) {
  without_cuda();
}
void device_gemm(const AccumulatorModel& /*model*/, const DeviceMatrix& /*a*/,
                 const DeviceMatrix& /*b*/, const DeviceScales& /*scale_a*/,
                 const DeviceScales& /*scale_b*/, std::int64_t /*promotion_interval*/,
                 std::string_view /*scale_order*/, const DeviceArray& /*d*/,
                 const DeviceArray& /*workspace*/, int /*device*/, std::uintptr_t /*stream*/) {
  without_cuda();
}
void device_column_sums(std::uintptr_t /*x*/, std::int64_t /*rows*/, std::int64_t /*columns*/,
                        std::int64_t /*row_stride*/, std::uintptr_t /*sums*/, int /*device*/,
                        std::uintptr_t /*stream*/) {
  without_cuda();
}

#endif

}  // namespace

void bind_device(nb::module_& m) {
  m.def("device_workspace", device_workspace, nb::kw_only(), "a"_a, "b"_a,
        "Bytes that `device_gemm` needs for operands that it cannot read where they are.");
  m.def("device_gemm", device_gemm, nb::kw_only(), "model"_a, "a"_a, "b"_a, "scale_a"_a.none(),
        "scale_b"_a.none(), "promotion_interval"_a, "scale_order"_a, "d"_a, "workspace"_a,
        "device"_a, "stream"_a, WithoutGil(),
        "Queues D = scales * A . B^T on a stream; all addresses are of the device's memory.");
  m.def("device_column_sums", device_column_sums, nb::kw_only(), "x"_a, "rows"_a, "columns"_a,
        "row_stride"_a, "sums"_a, "device"_a, "stream"_a, WithoutGil(),
        "Queues the sum of each column in binary32, in the order of the rows.");
}

}  // namespace fp8lab::python
