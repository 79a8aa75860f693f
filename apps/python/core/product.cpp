#include "product.hpp"

#include <fmt/format.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>

#include "fp8lab/core/argument.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/product/calls.hpp"

namespace fp8lab::python {
namespace {

using Given = std::optional<ProductTensor>;

/// The distances of a matrix that is not dense by rows.
std::optional<std::array<std::int64_t, 2>> strides_of(const ProductTensor::Array& words) {
  if (words.ndim() != 2 || words.shape(0) == 0 || words.shape(1) == 0) return std::nullopt;
  const bool columns = words.shape(1) == 1 || words.stride(1) == 1;
  const bool rows =
      words.shape(0) == 1 || words.stride(0) == static_cast<std::int64_t>(words.shape(1));
  if (columns && rows) return std::nullopt;
  return std::array{words.stride(0), words.stride(1)};
}

ProductTensor make_tensor(const ProductTensor::Array& words, std::string_view type) {
  const ElementType element = type == "tf32" ? ElementType::f32 : find_element_type(type);
  require(words.itemsize() == element_bytes(element), "array",
          fmt::format("words of {} bytes for {}", element_bytes(element), type), words.itemsize());
  TensorView view{
      element, {}, {static_cast<const std::byte*>(words.data()), words.nbytes()}, false};
  for (std::size_t i = 0; i < words.ndim(); ++i)
    view.shape.push_back(static_cast<std::int64_t>(words.shape(i)));
  return {words, std::move(view), std::string(type), strides_of(words)};
}

/// An operand and the arrays that it points into.
struct ArrayOperand {
  ProductTensor codes;
  Given scales;
  ProductOperand operand;
};

ArrayOperand make_operand(const ProductTensor& codes, const Given& scales,
                          std::optional<std::int64_t> tile_rows, std::optional<std::int64_t> tile_k,
                          std::string_view layout, std::vector<float> tensor_scales) {
  ArrayOperand made{codes, scales, {}};
  ProductOperand& operand = made.operand;
  operand.codes = codes.view;
  operand.strides = codes.strides;
  operand.layout = find_scale_layout(layout);
  if (scales) operand.scales = scales->view;
  if (tile_rows && tile_k) {
    require(*tile_rows >= 0 && *tile_k >= 0, "scales", "blocks of 0 (all) or more",
            fmt::format("{}, {}", *tile_rows, *tile_k));
    operand.tiles = ScaleTiles{*tile_rows, *tile_k};
  }
  if (tensor_scales.size() == 1)
    operand.tensor_scale = tensor_scales.front();
  else
    operand.group_tensor_scales = std::move(tensor_scales);
  return made;
}

ProductInputs make_inputs(const ArrayOperand& a, const ArrayOperand& b, const Given& c,
                          const Given& bias, const Given& row_scales, const Given& column_scales,
                          std::string recipe) {
  ProductInputs made{{a.codes, b.codes}, {}};
  GemmOperands& operands = made.operands;
  operands.a = a.operand;
  operands.b = b.operand;
  for (const ArrayOperand* one : {&a, &b})
    if (one->scales) made.arrays.push_back(*one->scales);
  const auto keep = [&](const Given& given) -> std::optional<TensorView> {
    if (!given) return std::nullopt;
    made.arrays.push_back(*given);
    return given->view;
  };
  operands.c = keep(c);
  operands.bias = keep(bias);
  operands.row_scales = keep(row_scales);
  operands.column_scales = keep(column_scales);
  operands.recipe = std::move(recipe);
  return made;
}

/// `output` empty: what a call in a table says, or f32.
FormatId output_of(std::string_view output, const std::string& call) {
  if (!output.empty()) return find_format(output).id;
  if (!is_table_call(call)) return FormatId::f32;
  const std::optional<FormatId> stated = parse_table_call(call).output;
  require(stated.has_value(), "call", "the output's format with a table, as ,output=bf16", call);
  return *stated;
}

GemmSpec make_spec(std::string model, std::string call, std::int64_t promotion_interval,
                   std::string_view scale_order, std::optional<std::string_view> c_enters,
                   std::string_view output, EpilogueSpec epilogue, const SplitK& split) {
  GemmSpec spec;
  spec.model = std::move(model);
  spec.output = default_output(output_of(output, call));
  spec.call = std::move(call);
  spec.promotion_interval = promotion_interval;
  spec.scale_order = find_scale_order(scale_order);
  if (c_enters) spec.c_enters = find_c_placement(*c_enters);
  spec.epilogue = epilogue;
  spec.split = split;
  return spec;
}

GroupKind find_kind(std::string_view name) {
  for (const GroupKind kind : {GroupKind::batched, GroupKind::row_ends, GroupKind::row_indices,
                               GroupKind::row_counts, GroupKind::k_ends})
    if (to_string(kind) == name) return kind;
  throw Error("kind", "batched, row_ends, row_indices, row_counts or k_ends", name);
}

/// What `make` returns: a recipe casts there, and the scale of an amax needs the whole product.
template <class Make>
auto without_gil(const Make& make) {
  const nb::gil_scoped_release release;
  return make();
}

ArrayProduct make_array_product(const ProductInputs& inputs, const GemmSpec& spec) {
  return {inputs, without_gil([&] { return make_product(inputs.operands, spec); })};
}

ArrayProduct make_unknown(const ProductInputs& inputs, const GemmSpec& spec) {
  return {inputs, without_gil([&] {
            return make_product_of_unknown_model(inputs.operands, spec.output, spec.epilogue);
          })};
}

ArrayGroups make_groups(const ProductInputs& inputs, const GemmSpec& spec, std::string_view kind,
                        std::vector<std::int64_t> values, std::int64_t alignment) {
  const Groups groups{find_kind(kind), std::move(values), alignment};
  return {inputs, without_gil([&] { return make_grouped_product(inputs.operands, spec, groups); })};
}

ArrayGroups make_unknown_groups(const ProductInputs& inputs, const GemmSpec& spec,
                                std::string_view kind, std::vector<std::int64_t> values,
                                std::int64_t alignment) {
  const Groups groups{find_kind(kind), std::move(values), alignment};
  return {inputs, without_gil([&] {
            return make_grouped_product_of_unknown_model(inputs.operands, spec.output, groups,
                                                         spec.epilogue);
          })};
}

void bind_spec(nb::module_& m) {
  nb::class_<EpilogueSpec>(m, "Epilogue")
      .def(nb::new_([](float alpha, std::optional<float> beta, std::string_view activation,
                       float slope, float activation_ulps, std::optional<float> output_scale,
                       bool scale_by_amax) {
             return EpilogueSpec{
                 alpha,        beta,         find_activation(activation), slope, activation_ulps,
                 output_scale, scale_by_amax};
           }),
           nb::kw_only(), "alpha"_a, "beta"_a.none(), "activation"_a, "slope"_a,
           "activation_ulps"_a, "output_scale"_a.none(), "scale_by_amax"_a);
  nb::class_<SplitK>(m, "SplitK")
      .def(nb::new_([](int parts, std::int64_t tile, std::string_view cut, std::string_view order) {
             return SplitK{parts, tile, find_split_cut(cut), find_split_order(order)};
           }),
           nb::kw_only(), "parts"_a, "tile"_a, "cut"_a, "order"_a);
  nb::class_<GemmSpec>(m, "GemmSpec")
      .def(nb::new_(&make_spec), nb::kw_only(), "model"_a, "call"_a, "promotion_interval"_a,
           "scale_order"_a, "c_enters"_a.none(), "output"_a, "epilogue"_a, "split"_a);
}

}  // namespace

Operand operand_of(const ProductTensor& got) { return {"got", got.view, nullptr}; }

void bind_product(nb::module_& m) {
  nb::class_<ProductTensor>(m, "Tensor")
      .def(nb::new_(&make_tensor), "words"_a.noconvert(), "type"_a);
  nb::class_<ArrayOperand>(m, "Operand")
      .def(nb::new_(&make_operand), nb::kw_only(), "codes"_a, "scales"_a.none(),
           "tile_rows"_a.none(), "tile_k"_a.none(), "layout"_a, "tensor_scales"_a);
  nb::class_<ProductInputs>(m, "Inputs")
      .def(nb::new_(&make_inputs), nb::kw_only(), "a"_a, "b"_a, "c"_a.none(), "bias"_a.none(),
           "row_scales"_a.none(), "column_scales"_a.none(), "recipe"_a)
      .def_prop_ro("formats", [](const ProductInputs& inputs) {
        return nb::make_tuple(inputs.arrays[0].format, inputs.arrays[1].format);
      });
  bind_spec(m);
  nb::class_<ArrayProduct>(m, "Product")
      .def(nb::new_(&make_array_product), "inputs"_a, "spec"_a)
      .def_static("of_unknown_model", &make_unknown, "inputs"_a, "spec"_a);
  nb::class_<ArrayGroups>(m, "GroupedProduct")
      .def(nb::new_(&make_groups), "inputs"_a, "spec"_a, nb::kw_only(), "kind"_a, "values"_a,
           "alignment"_a)
      .def_static("of_unknown_model", &make_unknown_groups, "inputs"_a, "spec"_a, nb::kw_only(),
                  "kind"_a, "values"_a, "alignment"_a)
      .def_prop_ro("shape", [](const ArrayGroups& groups) { return groups.product.shape; });
}

}  // namespace fp8lab::python
