#include <nanobind/stl/map.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "fp8lab/accumulate/definition.hpp"
#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/cast/policy.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/formats/definition.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/product/calls.hpp"

namespace fp8lab::python {
namespace {

nb::dict to_dict(const Format& f) {
  nb::dict d;
  d["name"] = f.name;
  d["exponent_bits"] = f.exponent_bits;
  d["mantissa_bits"] = f.mantissa_bits;
  d["bias"] = f.bias;
  d["has_sign"] = f.has_sign;
  d["specials"] = to_string(f.specials);
  d["field_zero"] = to_string(f.field_zero);
  d["storage_bits"] = f.storage_bits;
  d["max_finite"] = f.max_finite();
  d["min_normal"] = f.min_normal();
  d["min_subnormal"] = f.min_subnormal();
  return d;
}

nb::dict to_dict(const CastProfile& profile) {
  const CastPolicy& policy = profile.policy;
  nb::dict d;
  d["name"] = profile.name;
  d["rounding"] = to_string(policy.rounding);
  d["overflow"] = to_string(policy.overflow);
  d["subnormals"] = to_string(policy.subnormals);
  d["infinity"] = to_string(policy.infinity);
  d["nan"] = to_string(policy.nan);
  d["max_magnitude"] = policy.max_magnitude;
  d["used_by"] = profile.used_by;
  return d;
}

nb::dict to_dict(const InstructionModel& model) {
  nb::dict d;
  d["name"] = model.name;
  d["a_format"] = format(model.a_format).name;
  d["b_format"] = format(model.b_format).name;
  d["accumulator"] = python::to_dict(model.accumulator);
  d["standing"] = to_string(model.standing);
  d["source"] = model.source;
  nb::list evidence;
  for (const ReplayedRows& one : model.evidence)
    evidence.append(nb::make_tuple(one.recording, one.gpu, one.rows));
  d["evidence"] = nb::tuple(evidence);
  return d;
}

nb::dict to_dict(const CallModel& model) {
  nb::dict d;
  d["promotion_interval"] = model.interval;
  d["parts"] = model.split.parts;
  d["tile"] = model.split.tile;
  d["cut"] = to_string(model.split.cut);
  d["order"] = to_string(model.split.order);
  d["scale_order"] = to_string(model.scale_order);
  d["rounding"] = to_string(model.rounding);
  return d;
}

nb::dict to_dict(const ObservedCall& observed) {
  nb::dict d;
  const CallShape& call = observed.call;
  d["m"] = call.m;
  d["n"] = call.n;
  d["k"] = call.k;
  d["a_format"] = format(call.a).name;
  d["b_format"] = format(call.b).name;
  d["output"] = format(call.output).name;
  d["fast"] = call.fast;
  d["outputs"] = observed.outputs;
  nb::list fitting;
  for (const CallModel& model : observed.fitting) fitting.append(to_dict(model));
  d["fitting"] = fitting;
  return d;
}

template <typename Range>
nb::list to_list(const Range& range) {
  nb::list list;
  for (const auto& item : range) list.append(to_dict(item));
  return list;
}

AccumulatorModel make_model(std::string_view kind, int terms, int alignment_fraction_bits,
                            int output_fraction_bits, std::string_view rounding,
                            std::string_view output_format, std::string_view product_exponent,
                            int product_fraction_bits, std::optional<int> min_alignment_exponent,
                            std::string_view half_c_exponent, std::string_view zero_sign,
                            std::string_view halves_order, int second_stage_fraction_bits,
                            bool takes_ue4m3_per_32, int chains, std::string_view subnormals,
                            std::string_view pair_rounding) {
  AccumulatorModel model;
  model.kind = find_accumulation_kind(kind);
  model.terms = terms;
  model.alignment_fraction_bits = alignment_fraction_bits;
  model.output_fraction_bits = output_fraction_bits;
  model.rounding = find_rounding_mode(rounding);
  model.output_format = find_format(output_format).id;
  model.product_exponent = find_product_exponent(product_exponent);
  model.product_fraction_bits = product_fraction_bits;
  model.min_alignment_exponent = min_alignment_exponent.value_or(kNoMinAlignmentExponent);
  model.half_c_exponent = find_half_c_exponent(half_c_exponent);
  model.zero_sign = find_zero_sign(zero_sign);
  model.halves_order = find_halves_order(halves_order);
  model.second_stage_fraction_bits = second_stage_fraction_bits;
  model.takes_ue4m3_per_32 = takes_ue4m3_per_32;
  model.chains = chains;
  model.subnormals = find_subnormals(subnormals);
  model.pair_rounding = find_pair_rounding(pair_rounding);
  validate(model);
  return model;
}

/// What `call` says in a table of a product of this shape. `output` empty: the call names it.
nb::dict call_in_table(const CallTable& table, std::string_view text, std::int64_t m,
                       std::int64_t n, std::int64_t k, std::string_view a, std::string_view b,
                       std::string_view output) {
  const TableCall call = parse_table_call(text);
  const FormatId a_id = find_format(a).id;
  const FormatId b_id = find_format(b).id;
  require(!output.empty() || call.output.has_value(), "call",
          "the output's format with a table, as ,output=bf16", text);
  const FormatId output_id = output.empty() ? *call.output : find_format(output).id;
  nb::dict d = to_dict(candidate_of(table, call, {m, n, k, a_id, b_id, output_id, call.fast}));
  d["model"] = model_reading(table.model, call.file, a_id, b_id);
  return d;
}

nb::dict to_dict(const LibraryCall& call) {
  nb::dict d;
  d["name"] = call.name;
  d["model"] = call.model;
  d["promotion_interval"] = call.promotion_interval;
  d["scale_order"] = to_string(call.scale_order);
  d["row_scale_order"] = to_string(call.row_scale_order);
  d["scales"] = call.scales;
  d["output"] = format(call.output).name;
  d["split_tile"] = call.split_tile;
  nb::list splits;
  for (const auto& [cut, order] : call.splits)
    splits.append(nb::make_tuple(to_string(cut), to_string(order)));
  d["splits"] = nb::tuple(splits);
  d["epilogue"] = call.epilogue;
  d["standing"] = to_string(call.standing);
  d["source"] = call.source;
  return d;
}

}  // namespace

nb::dict to_dict(const AccumulatorModel& model) {
  nb::dict d;
  d["kind"] = to_string(model.kind);
  d["terms"] = model.terms;
  d["alignment_fraction_bits"] = model.alignment_fraction_bits;
  d["output_fraction_bits"] = model.output_fraction_bits;
  d["rounding"] = to_string(model.rounding);
  d["output_format"] = format(model.output_format).name;
  d["product_exponent"] = to_string(model.product_exponent);
  d["product_fraction_bits"] = model.product_fraction_bits;
  if (model.min_alignment_exponent == kNoMinAlignmentExponent)
    d["min_alignment_exponent"] = nb::none();
  else
    d["min_alignment_exponent"] = model.min_alignment_exponent;
  d["half_c_exponent"] = to_string(model.half_c_exponent);
  d["zero_sign"] = to_string(model.zero_sign);
  d["halves_order"] = to_string(model.halves_order);
  d["second_stage_fraction_bits"] = model.second_stage_fraction_bits;
  d["takes_ue4m3_per_32"] = model.takes_ue4m3_per_32;
  d["chains"] = model.chains;
  d["subnormals"] = to_string(model.subnormals);
  d["pair_rounding"] = to_string(model.pair_rounding);
  return d;
}

void bind_registry(nb::module_& m) {
  m.def("formats", [] {
    nb::list all = to_list(kFormats);
    for (const NamedFormat& one : named_formats()) all.append(to_dict(find_format(one.name)));
    return all;
  });
  m.def(
      "format_traits", [](std::string_view name) { return to_dict(find_format(name)); }, "name"_a);
  m.def("profiles", [] { return to_list(kCastProfiles); });
  m.def("models", [] { return to_list(instruction_models()); });
  m.def(
      "format_name", [](std::string_view name) { return find_format(name).name; }, "name"_a);
  nb::class_<AccumulatorModel>(m, "AccumulatorModel")
      .def(nb::new_(&make_model), nb::kw_only(), "kind"_a, "terms"_a, "alignment_fraction_bits"_a,
           "output_fraction_bits"_a, "rounding"_a, "output_format"_a, "product_exponent"_a,
           "product_fraction_bits"_a, "min_alignment_exponent"_a.none(), "half_c_exponent"_a,
           "zero_sign"_a, "halves_order"_a, "second_stage_fraction_bits"_a, "takes_ue4m3_per_32"_a,
           "chains"_a, "subnormals"_a, "pair_rounding"_a);
  m.def("calls", [] {
    nb::list list;
    for (const LibraryCall& call : library_calls()) list.append(to_dict(call));
    return list;
  });
  nb::class_<CallTable>(m, "CallTable")
      .def(nb::new_([](const std::string& text, const std::string& name) {
             return parse_call_table(text, name);
           }),
           "text"_a, "name"_a)
      .def_ro("model", &CallTable::model)
      .def_ro("header", &CallTable::header)
      .def("calls", [](const CallTable& table) { return to_list(table.calls); })
      .def("candidate", &call_in_table, "call"_a, "m"_a, "n"_a, "k"_a, "a_format"_a, "b_format"_a,
           "output"_a);
  m.def("is_table_call", &is_table_call, "call"_a);
  m.def(
      "file_of_table_call", [](std::string_view call) { return parse_table_call(call).file; },
      "call"_a);
  m.def(
      "find_model", [](std::string_view name) { return to_dict(find_instruction_model(name)); },
      "name"_a);
  m.def(
      "definition_of",
      [](const AccumulatorModel& model, std::string_view a, std::string_view b) {
        return definition_of(model, find_format(a).id, find_format(b).id);
      },
      nb::kw_only(), "model"_a, "a_format"_a, "b_format"_a);
  m.def(
      "model_book",
      [](std::string_view file, std::string_view text, bool json) {
        ModelBook book;
        json ? book.add_json(file, text) : book.add_toml(file, text);
        return book.definitions();
      },
      nb::kw_only(), "file"_a, "text"_a, "json"_a);
}

}  // namespace fp8lab::python
