#pragma once
// The seam between NumPy and the library. Python prepares arrays of the exact type (so no
// caster ever copies) and allocates what is written; C++ computes without the GIL.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/metrics/comparison.hpp"
#include "fp8lab/scaling/quantize.hpp"

namespace fp8lab::python {

namespace nb = nanobind;
using namespace nb::literals;  // NOLINT(google-build-using-namespace): "name"_a

template <typename T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Matrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
/// Words of any width and strides.
using Words = nb::ndarray<nb::ro, nb::ndim<2>, nb::device::cpu>;

template <typename T, typename... Args>
std::span<T> span_of(const nb::ndarray<T, Args...>& array) {
  return {array.data(), array.size()};
}

template <typename T>
using OwnedArray = nb::ndarray<nb::numpy, T>;

/// A row-major NumPy array that owns `values`.
template <typename T, typename Allocator>
OwnedArray<T> array_of(std::vector<T, Allocator>&& values,
                       std::initializer_list<std::size_t> shape) {
  using Values = std::vector<T, Allocator>;
  auto held = std::make_unique<Values>(std::move(values));
  T* data = held->data();
  const nb::capsule owner(held.release(), [](void* p) noexcept { delete static_cast<Values*>(p); });
  return OwnedArray<T>(data, shape, owner);
}

using WithoutGil = nb::call_guard<nb::gil_scoped_release>;

void bind_registry(nb::module_& m);  ///< formats, profiles, models
void bind_arrays(nb::module_& m);    ///< DLPack
void bind_float_mode(nb::module_& m);
void bind_casts(nb::module_& m);
void bind_recipes(nb::module_& m);
void bind_auto_scaling(nb::module_& m);
void bind_kill_switch(nb::module_& m);
void bind_product(nb::module_& m);  ///< tensors, operands and settings of products
void bind_gemm(nb::module_& m);
void bind_checks(nb::module_& m);  ///< compare
void bind_verify(nb::module_& m);
void bind_identify(nb::module_& m);
void bind_grouped(nb::module_& m);  ///< batched and grouped products
void bind_attention(nb::module_& m);
void bind_device(nb::module_& m);  ///< products of tensors on a CUDA device
void bind_linear(nb::module_& m);  ///< linear layers of frameworks
void bind_grouped_linear(nb::module_& m);
void bind_results(nb::module_& m);  ///< result folders
void bind_vectors(nb::module_& m);  ///< vectors, separate, replay
void bind_command(nb::module_& m);

/// Keyword arguments of the Python class.
nb::dict to_dict(const Comparison& comparison);
nb::dict to_dict(const Recipe& recipe);
nb::dict to_dict(const AccumulatorModel& model);

}  // namespace fp8lab::python
