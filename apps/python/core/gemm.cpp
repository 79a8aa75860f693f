#include "fp8lab/gemm/gemm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "fp8lab/gemm/backend.hpp"
#include "fp8lab/product/non_finite.hpp"
#include "fp8lab/tensors/packed.hpp"
#include "problem.hpp"
#ifdef FP8LAB_WITH_CUDA
#include "backends.hpp"
#endif

namespace fp8lab::python {
namespace {

/// One code a word: no bits above it.
void require_codes(const Words& words, std::string_view argument, const Format& f) {
  const auto* data = static_cast<const std::byte*>(words.data());
  const std::size_t width = words.itemsize();
  for (std::size_t i = 0; i < words.shape(0); ++i)
    for (std::size_t k = 0; k < words.shape(1); ++k) {
      const std::int64_t at = static_cast<std::int64_t>(i) * words.stride(0) +
                              static_cast<std::int64_t>(k) * words.stride(1);
      require_narrow_codes(f.id, {data + at * static_cast<std::int64_t>(width), width}, argument);
    }
}

CodeMatrix matrix_of(const Words& words, std::string_view argument, std::string_view name) {
  const Format& f = find_format(name);
  require(words.itemsize() * 8 == static_cast<std::size_t>(f.storage_bits), argument,
          fmt::format("words of {} bits, as {} has", f.storage_bits, f.name),
          fmt::format("{} bits", words.itemsize() * 8));
  if (f.is_padded()) require_codes(words, argument, f);
  return {f.id,
          words.data(),
          static_cast<std::int64_t>(words.shape(0)),
          static_cast<std::int64_t>(words.shape(1)),
          words.stride(0),
          words.stride(1)};
}

InverseScales scales_of(const Scales& scales, std::int64_t row_block, std::int64_t k_block,
                        std::string_view coded, float tensor_scale) {
  if (!scales) return {};
  return {span_of(*scales), row_block, k_block, find_format(coded).id, tensor_scale};
}

Problem make_problem(const AccumulatorModel& model, const Words& a, std::string_view a_format,
                     const Words& b, std::string_view b_format,
                     const std::optional<Matrix<const float>>& c, const Scales& a_scales,
                     std::int64_t a_row_block, std::int64_t a_k_block, std::string_view a_coded,
                     float a_tensor_scale, const Scales& b_scales, std::int64_t b_row_block,
                     std::int64_t b_k_block, std::string_view b_coded, float b_tensor_scale,
                     std::int64_t promotion_interval, std::string_view scale_order,
                     std::optional<std::string_view> c_enters) {
  Problem made{{}, a, b, c, a_scales, b_scales};
  GemmProblem& problem = made.problem;
  problem.model = model;
  problem.a = matrix_of(a, "a", a_format);
  problem.b = matrix_of(b, "b", b_format);
  if (c) {
    require(c->shape(0) == a.shape(0) && c->shape(1) == b.shape(0), "c",
            fmt::format("[m, n] = [{}, {}]", a.shape(0), b.shape(0)),
            fmt::format("[{}, {}]", c->shape(0), c->shape(1)));
    problem.c = c->data();
  }
  problem.a_scales = scales_of(a_scales, a_row_block, a_k_block, a_coded, a_tensor_scale);
  problem.b_scales = scales_of(b_scales, b_row_block, b_k_block, b_coded, b_tensor_scale);
  problem.promotion_interval = promotion_interval;
  problem.scale_order = find_scale_order(scale_order);
  if (c_enters) problem.c_enters = find_c_placement(*c_enters);
  return made;
}

/// What stands around the sum, of the fields of Python's `Epilogue` and `SplitK`.
void set_kernel(Problem& problem, float alpha, const Scales& bias, const Scales& row_scales,
                const Scales& column_scales, std::optional<float> beta, std::string_view activation,
                float slope, float activation_ulps, std::optional<float> output_scale,
                const SplitK& split) {
  const auto floats = [](const Scales& values) {
    return values ? std::span<const float>(span_of(*values)) : std::span<const float>();
  };
  GemmProblem& p = problem.problem;
  Epilogue& e = problem.epilogue;
  problem.bias = bias;
  problem.row_scales = row_scales;
  problem.column_scales = column_scales;
  problem.split = split;
  e.alpha = alpha;
  e.bias = floats(bias);
  e.row_scales = floats(row_scales);
  e.column_scales = floats(column_scales);
  e.activation = find_activation(activation);
  e.slope = slope;
  e.activation_ulps = activation_ulps;
  e.output_scale = output_scale;
  if (beta) {
    require(p.c != nullptr, "beta", "a c that it multiplies", "none");
    require(p.c_enters == CPlacement::unnamed, "c_enters",
            "no value with beta, which adds c after alpha and bias", to_string(p.c_enters));
    e.beta = *beta;
    e.c = std::exchange(p.c, nullptr);
  }
  validate(e, p.a.rows, p.b.rows);
  validate(p, static_cast<std::size_t>(p.a.rows * p.b.rows));
  Product product;
  product.problem = p;
  product.split = split;
  validate_split(product);
}

/// What `backend` may name, the CPU first.
const std::vector<Backend>& backends() {
#ifdef FP8LAB_WITH_CUDA
  static const std::vector<Backend> all = cuda::backends();
#else
  static const std::vector<Backend> all{Backend{}};
#endif
  return all;
}

void run(const Problem& problem, const Matrix<float>& d, int threads, std::string_view name) {
  require(threads >= 0, "threads", "0 (all) or more", fmt::format("{}", threads));
  const Backend& backend = find_backend(backends(), name);
  if (problem.split.parts > 1 || !problem.epilogue.empty()) {
    require(name == "cpu", "backend", "cpu, for an epilogue or K in parts", name);
    const std::vector<float> values = compute(product_of(problem, "", {}), threads);
    require(values.size() == d.size(), "d", fmt::format("{} values", values.size()),
            fmt::format("{}", d.size()));
    std::copy(values.begin(), values.end(), d.data());
    return;
  }
  validate(problem.problem, d.size());
  if (!try_gemm_on(backend, problem.problem, span_of(d), threads))
    throw Error("backend", "one that has the product of this model and these formats, such as cpu",
                fmt::format("'{}'", name));
}

}  // namespace

Product product_of(const Problem& problem, std::string model, const OutputCast& output) {
  Product product;
  product.model = std::move(model);
  product.problem = problem.problem;
  product.output = output;
  product.split = problem.split;
  product.epilogue = problem.epilogue;
  return product;
}

Operand operand_of(const Output& got, FormatId id) {
  require(got.itemsize() * 8 == static_cast<std::size_t>(format(id).storage_bits), "got",
          fmt::format("words of {} bits, as {} has", format(id).storage_bits, format(id).name),
          fmt::format("{} bits", got.itemsize() * 8));
  const auto* bytes = static_cast<const std::byte*>(got.data());
  const TensorView tensor{
      element_type_of(id),
      {static_cast<std::int64_t>(got.shape(0)), static_cast<std::int64_t>(got.shape(1))},
      {bytes, got.nbytes()},
      false};
  return {"got", tensor, nullptr};
}

void bind_gemm(nb::module_& m) {
  nb::class_<Problem>(m, "Problem")
      .def(nb::new_(&make_problem), nb::kw_only(), "model"_a, "a"_a.noconvert(), "a_format"_a,
           "b"_a.noconvert(), "b_format"_a, "c"_a.noconvert().none(),
           "a_scales"_a.noconvert().none(), "a_row_block"_a, "a_k_block"_a, "a_coded"_a,
           "a_tensor_scale"_a, "b_scales"_a.noconvert().none(), "b_row_block"_a, "b_k_block"_a,
           "b_coded"_a, "b_tensor_scale"_a, "promotion_interval"_a, "scale_order"_a,
           "c_enters"_a.none())
      .def(
          "set_kernel",
          [](Problem& problem, float alpha, const Scales& bias, const Scales& row_scales,
             const Scales& column_scales, std::optional<float> beta, std::string_view activation,
             float slope, float activation_ulps, std::optional<float> output_scale, int parts,
             std::int64_t tile, std::string_view cut, std::string_view order) {
            set_kernel(problem, alpha, bias, row_scales, column_scales, beta, activation, slope,
                       activation_ulps, output_scale,
                       {parts, tile, find_split_cut(cut), find_split_order(order)});
          },
          nb::kw_only(), "alpha"_a, "bias"_a.noconvert().none(), "row_scales"_a.noconvert().none(),
          "column_scales"_a.noconvert().none(), "beta"_a.none(), "activation"_a, "slope"_a,
          "activation_ulps"_a, "output_scale"_a.none(), "parts"_a, "tile"_a, "cut"_a, "order"_a)
      .def_prop_ro("columns",
                   [](const Problem& problem) { return product_of(problem, "", {}).columns(); });
  m.def(
      "warning_of_product",
      [](const Problem& problem, const std::optional<Matrix<const float>>& d) {
        Product product;
        product.problem = problem.problem;
        NonFiniteReport report = count_non_finite(product);
        if (d) report.push_back({"D", count_non_finite(span_of(*d))});
        return describe(report);
      },
      "problem"_a, "d"_a.noconvert().none(), WithoutGil());
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
  m.def("gemm", run, "problem"_a, "d"_a.noconvert(), "threads"_a, "backend"_a, WithoutGil());
}

}  // namespace fp8lab::python
