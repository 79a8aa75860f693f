#include <fmt/format.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "bindings.hpp"
#include "fp8lab/identify/grouped.hpp"
#include "fp8lab/product/grouped_product.hpp"
#include "fp8lab/verify/grouped.hpp"
#include "problem.hpp"

namespace fp8lab::python {

// Bound types have names of their own: those of unnamed namespaces are one to nanobind.

/// A row-major array of words, and what they are.
struct ProductTensor {
  using Array = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

  Array words;
  ElementType type = ElementType::u8;

  [[nodiscard]] TensorView view() const {
    TensorView tensor{
        type, {}, {static_cast<const std::byte*>(words.data()), words.nbytes()}, false};
    for (std::size_t i = 0; i < words.ndim(); ++i)
      tensor.shape.push_back(static_cast<std::int64_t>(words.shape(i)));
    return tensor;
  }
};

struct ScaleTensor {
  std::optional<ProductTensor> values;
  std::optional<ScaleTiles> tiles;
  ScaleLayout layout = ScaleLayout::row_major;
};

/// A product in groups, and the arrays that it points into.
struct GroupedProblem {
  std::vector<ProductTensor> arrays;
  GroupedProduct product;
};

namespace {

ProductTensor make_tensor(const ProductTensor::Array& words, std::string_view type) {
  const ElementType element = find_element_type(type);
  require(words.itemsize() == element_bytes(element), "array",
          fmt::format("words of {} bytes for {}", element_bytes(element), type),
          fmt::format("{}", words.itemsize()));
  return {words, element};
}

GroupKind find_kind(std::string_view name) {
  for (const GroupKind kind : {GroupKind::batched, GroupKind::row_ends, GroupKind::row_indices,
                               GroupKind::row_counts, GroupKind::k_ends})
    if (to_string(kind) == name) return kind;
  throw Error("kind", "batched, row_ends, row_indices, row_counts or k_ends", name);
}

using Given = std::optional<ProductTensor>;

ScaleTensor make_scaled(const Given& values, std::optional<std::int64_t> rows,
                        std::optional<std::int64_t> k, std::string_view layout) {
  ScaleTensor scaled{values, {}, find_scale_layout(layout)};
  if (rows && k) scaled.tiles = ScaleTiles{*rows, *k};
  return scaled;
}

std::optional<TensorView> view_of(const Given& tensor) {
  if (!tensor) return std::nullopt;
  return tensor->view();
}

/// One for all groups, or one a group.
void set_tensor_scales(std::vector<float> given, float& all, std::vector<float>& each) {
  if (given.size() == 1)
    all = given.front();
  else
    each = std::move(given);
}

GroupedProblem make_problem(std::string_view kind, std::vector<std::int64_t> values,
                            std::int64_t alignment, const ProductTensor& a, const ProductTensor& b,
                            const ScaleTensor& a_scales, const ScaleTensor& b_scales,
                            std::vector<float> a_tensor_scales, std::vector<float> b_tensor_scales,
                            const Given& c, const Given& bias, const Given& row_scales,
                            const Given& column_scales, std::optional<std::string> model,
                            std::optional<std::string> call, std::int64_t promotion_interval,
                            std::string_view scale_order, std::optional<std::string_view> c_enters,
                            std::string_view output, float alpha, std::optional<float> beta,
                            std::string_view activation, float slope, float activation_ulps,
                            std::optional<float> output_scale, int parts, std::int64_t tile,
                            std::string_view cut, std::string_view order) {
  GroupedProblem made;
  made.arrays = {a, b};
  for (const Given* one :
       {&a_scales.values, &b_scales.values, &c, &bias, &row_scales, &column_scales})
    if (*one) made.arrays.push_back(**one);
  GemmOperands operands;
  operands.a = a.view();
  operands.b = b.view();
  operands.scale_a = view_of(a_scales.values);
  operands.scale_b = view_of(b_scales.values);
  operands.tiles_a = a_scales.tiles;
  operands.tiles_b = b_scales.tiles;
  operands.layout_a = a_scales.layout;
  operands.layout_b = b_scales.layout;
  set_tensor_scales(std::move(a_tensor_scales), operands.tensor_scale_a,
                    operands.group_tensor_scales_a);
  set_tensor_scales(std::move(b_tensor_scales), operands.tensor_scale_b,
                    operands.group_tensor_scales_b);
  operands.c = view_of(c);
  operands.bias = view_of(bias);
  operands.row_scales = view_of(row_scales);
  operands.column_scales = view_of(column_scales);
  GemmSpec spec;
  spec.promotion_interval = promotion_interval;
  spec.scale_order = find_scale_order(scale_order);
  if (c_enters) spec.c_enters = find_c_placement(*c_enters);
  spec.output = default_output(find_format(output).id);
  spec.epilogue.alpha = alpha;
  spec.epilogue.beta = beta;
  spec.epilogue.activation = find_activation(activation);
  spec.epilogue.slope = slope;
  spec.epilogue.activation_ulps = activation_ulps;
  spec.epilogue.output_scale = output_scale;
  spec.split = {parts, tile, find_split_cut(cut), find_split_order(order)};
  const Groups groups{find_kind(kind), std::move(values), alignment};
  if (!model && !call) {
    made.product =
        make_grouped_product_of_unknown_model(operands, spec.output, groups, spec.epilogue);
    return made;
  }
  if (model) spec.model = *model;
  made.product =
      make_grouped_product(operands, spec, groups, call ? &find_library_call(*call) : nullptr);
  return made;
}

Operand operand_of(const ProductTensor& got) { return {"got", got.view(), nullptr}; }

nb::list list_of(const std::vector<Cause>& causes) {
  nb::list list;
  for (const Cause& cause : causes) list.append(nb::make_tuple(cause.name, cause.text));
  return list;
}

nb::dict fields_of(const GroupedReport& report) {
  nb::dict d;
  nb::list groups;
  for (const GroupOutcome& one : report.groups) {
    nb::dict group;
    group["group"] = one.group;
    group["first_row"] = one.first_row;
    group["rows"] = one.report.rows;
    group["report"] = to_dict(one.report);
    group["findings"] = list_of(one.findings);
    groups.append(group);
  }
  nb::list ungrouped;
  for (const UngroupedOutcome& one : report.ungrouped_wrong)
    ungrouped.append(nb::make_tuple(one.first_row, one.rows, one.wrong,
                                    one.cause ? one.cause->name : std::string()));
  d["verdict"] = to_string(report.verdict);
  d["bit_mismatches"] = report.mismatches;
  d["groups"] = groups;
  d["ungrouped_wrong"] = ungrouped;
  d["text"] = summary(report);
  d["details"] = describe(report);
  d["warning"] = describe(report.non_finite);
  return d;
}

nb::dict fields_of(const GroupedIdentification& result) {
  nb::dict d;
  nb::list groups;
  for (const GroupMatch& one : result.groups)
    groups.append(nb::make_tuple(one.group, one.first_row, one.matches, one.compared));
  d["explained"] = result.explained();
  d["group"] = result.group;
  d["found"] = to_dict(result.found);
  d["groups"] = groups;
  d["text"] = describe(result);
  return d;
}

}  // namespace

void bind_grouped(nb::module_& m) {
  nb::class_<ProductTensor>(m, "Tensor")
      .def(nb::new_(&make_tensor), "words"_a.noconvert(), "type"_a);
  nb::class_<ScaleTensor>(m, "ScaleTensor")
      .def(nb::new_(&make_scaled), "values"_a.none(), "rows"_a.none(), "k"_a.none(), "layout"_a);
  nb::class_<GroupedProblem>(m, "GroupedProblem")
      .def(nb::new_(&make_problem), nb::kw_only(), "kind"_a, "values"_a, "alignment"_a, "a"_a,
           "b"_a, "a_scales"_a, "b_scales"_a, "a_tensor_scales"_a, "b_tensor_scales"_a,
           "c"_a.none(), "bias"_a.none(), "row_scales"_a.none(), "column_scales"_a.none(),
           "model"_a.none(), "call"_a.none(), "promotion_interval"_a, "scale_order"_a,
           "c_enters"_a.none(), "output"_a, "alpha"_a, "beta"_a.none(), "activation"_a, "slope"_a,
           "activation_ulps"_a, "output_scale"_a.none(), "parts"_a, "tile"_a, "cut"_a, "order"_a)
      .def_prop_ro("shape", [](const GroupedProblem& problem) { return problem.product.shape; });
  m.def(
      "grouped_gemm",
      [](const GroupedProblem& problem, int threads) {
        std::vector<float> d;
        {
          const nb::gil_scoped_release release;
          d = compute(problem.product, threads);
        }
        return array_of(std::move(d), {problem.product.size()});
      },
      "problem"_a, "threads"_a);
  m.def(
      "warning_of_groups",
      [](const GroupedProblem& problem) { return describe(count_non_finite(problem.product)); },
      "problem"_a, WithoutGil());
  m.def(
      "verify_groups",
      [](const GroupedProblem& problem, const ProductTensor& got, std::string_view check,
         std::string_view ungrouped, int threads) {
        GroupedReport report;
        {
          const nb::gil_scoped_release release;
          VerifyOptions options;
          options.check = find_check(check);
          options.threads = threads;
          report =
              verify(problem.product, operand_of(got), options, find_ungrouped_rule(ungrouped));
        }
        return fields_of(report);
      },
      nb::kw_only(), "problem"_a, "got"_a, "check"_a, "ungrouped"_a, "threads"_a);
  m.def(
      "identify_groups",
      [](const GroupedProblem& problem, const ProductTensor& got, int threads,
         const std::vector<std::string>& models) {
        GroupedIdentification result;
        {
          const nb::gil_scoped_release release;
          result = identify(problem.product, operand_of(got), threads, models);
        }
        return fields_of(result);
      },
      nb::kw_only(), "problem"_a, "got"_a, "threads"_a, "models"_a);
  m.def(
      "read_scales",
      [](const ProductTensor& scales, std::string_view layout, std::int64_t row_block,
         std::int64_t k_block, std::int64_t rows, std::int64_t k, std::string_view argument) {
        ScaleGrid grid = read_scales(argument, scales.view(), find_scale_layout(layout),
                                     ScaleTiles{row_block, k_block}, rows, k);
        const std::size_t count = grid.values.size();
        return nb::make_tuple(array_of(std::move(grid.values), {count}), grid.tiles.rows,
                              grid.tiles.columns, format(grid.format).name);
      },
      nb::kw_only(), "scales"_a, "layout"_a, "row_block"_a, "k_block"_a, "rows"_a, "k"_a,
      "argument"_a);
}

}  // namespace fp8lab::python
