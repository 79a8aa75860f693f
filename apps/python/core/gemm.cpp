#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/gemm/backend.hpp"
#include "fp8lab/product/non_finite.hpp"
#include "product.hpp"
#ifdef FP8LAB_WITH_CUDA
#include "backends.hpp"
#endif

namespace fp8lab::python {
namespace {

/// What `backend` may name, the CPU first.
const std::vector<Backend>& backends() {
#ifdef FP8LAB_WITH_CUDA
  static const std::vector<Backend> all = cuda::backends();
#else
  static const std::vector<Backend> all{Backend{}};
#endif
  return all;
}

std::vector<float> run(const Product& product, int threads, std::string_view name) {
  require(threads >= 0, "threads", "0 (all) or more", fmt::format("{}", threads));
  const Backend& backend = find_backend(backends(), name);
  if (name == "cpu") return compute(product, threads);
  require(product.split.parts == 1 && product.epilogue.empty(), "backend",
          "cpu, for an epilogue or K in parts", name);
  std::vector<float> d(product.size());
  if (!try_gemm_on(backend, product.problem, d, threads))
    throw Error("backend", "one that has the product of this model and these formats, such as cpu",
                fmt::format("'{}'", name));
  return d;
}

}  // namespace

void bind_gemm(nb::module_& m) {
  m.def(
      "warning_of_product",
      [](const ArrayProduct& product, const std::optional<Matrix<const float>>& d) {
        NonFiniteReport report = count_non_finite(product.product);
        if (d) report.push_back({"D", count_non_finite(span_of(*d))});
        return describe(report);
      },
      "product"_a, "d"_a.noconvert().none(), WithoutGil());
  m.def(
      "warning_of_quantization",
      [](const Matrix<const float>& x, std::string_view name,
         const Matrix<const std::uint8_t>& codes) {
        const FormatId id = find_format(name).id;
        return describe(
            {{"x", count_non_finite(span_of(x))},
             {"its quantized form", count_non_finite(id, std::as_bytes(span_of(codes)))}});
      },
      "x"_a.noconvert(), "format"_a, "codes"_a.noconvert(), WithoutGil());
  m.def("backends", [] {
    nb::list names;
    for (const std::string& name : backend_names(backends())) names.append(name);
    return names;
  });
  m.def(
      "gemm",
      [](const ArrayProduct& given, int threads, std::string_view backend) {
        const Product& product = given.product;
        std::vector<float> d;
        {
          const nb::gil_scoped_release release;
          d = run(product, threads, backend);
        }
        return array_of(std::move(d), {static_cast<std::size_t>(product.rows()),
                                       static_cast<std::size_t>(product.columns())});
      },
      "product"_a, "threads"_a, "backend"_a);
}

}  // namespace fp8lab::python
