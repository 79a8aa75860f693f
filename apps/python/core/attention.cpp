#include <fmt/format.h>

#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "fp8lab/attention/backward.hpp"
#include "fp8lab/attention/calls.hpp"
#include "fp8lab/attention/kv_cache.hpp"
#include "fp8lab/attention/report.hpp"
#include "fp8lab/attention/sage.hpp"
#include "fp8lab/attention/verify.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/verify/attention_gates.hpp"

namespace fp8lab::python {
namespace {

template <typename T>
using Heads = nb::ndarray<const T, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

/// One of Q, K and V, and the array that its codes point into.
struct Tensor {
  AttentionTensor tensor;
  std::vector<float> inverse_scales{};
  Heads<std::uint8_t> codes{};
};

template <typename T>
std::array<std::int64_t, 3> shape_of(const Heads<T>& x) {
  return {static_cast<std::int64_t>(x.shape(0)), static_cast<std::int64_t>(x.shape(1)),
          static_cast<std::int64_t>(x.shape(2))};
}

Tensor tensor_of_values(const Heads<float>& x) {
  const auto [heads, rows, columns] = shape_of(x);
  return {attention_tensor({x.data(), x.data() + x.size()}, heads, rows, columns)};
}

Tensor tensor_of_cache(const Heads<float>& x, std::string_view rule,
                       const std::optional<Vector<const float>>& calibrated) {
  const auto [heads, rows, columns] = shape_of(x);
  std::span<const float> scales;
  if (calibrated) scales = {calibrated->data(), calibrated->size()};
  return {cached_tensor({x.data(), x.data() + x.size()}, heads, rows, columns,
                        find_cache_rule(rule), scales)};
}

nb::object packed_rows(
    const nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>& x) {
  return nb::cast(array_of(pack_deepseek_rows({x.data(), x.size()}),
                           {x.shape(0), static_cast<std::size_t>(kDeepSeekRowBytes)}));
}

nb::object unpacked_rows(
    const nb::ndarray<const std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>& rows) {
  return nb::cast(array_of(read_deepseek_rows({rows.data(), rows.size()}),
                           {rows.shape(0), static_cast<std::size_t>(kDeepSeekRowElements)}));
}

nb::list caches() {
  nb::list list;
  for (const CacheRule& rule : cache_rules())
    list.append(nb::make_tuple(rule.name, format(rule.format).name, rule.source));
  return list;
}

Tensor tensor_of_codes(const Heads<std::uint8_t>& codes, std::string_view format_name,
                       std::string_view argument,
                       const std::optional<Vector<const float>>& scales) {
  const auto [heads, rows, columns] = shape_of(codes);
  Tensor made;
  made.codes = codes;
  std::vector<float> given;
  if (scales) {
    require(scales->size() > 0, argument, "inverse scales: one, or one a head", "none");
    given.assign(scales->data(), scales->data() + scales->size());
  }
  made.inverse_scales = inverse_scales_of_heads(argument, std::move(given), heads);
  made.tensor = attention_tensor(AttentionOperand{find_format(format_name).id, span_of(codes),
                                                  heads, rows, columns, made.inverse_scales});
  return made;
}

AttentionOptions make_options(const std::string& qk_model, const std::string& pv_model,
                              std::int64_t q_tile, std::int64_t kv_tile, float softmax_scale,
                              float p_offset, float rescale_threshold, bool causal, bool two_level,
                              int threads, std::string_view tile_order, std::string_view p_format,
                              std::int64_t window_left, std::int64_t window_right,
                              std::string_view row_sum, float soft_cap, std::vector<float> sinks,
                              std::int64_t splits) {
  require(threads >= 0, "threads", "0 (all) or more", fmt::format("{}", threads));
  return {qk_model,
          pv_model,
          q_tile,
          kv_tile,
          softmax_scale,
          p_offset,
          rescale_threshold,
          causal,
          two_level,
          threads,
          find_tile_order(tile_order),
          find_format(p_format).id,
          window_left,
          window_right,
          find_row_sum(row_sum),
          soft_cap,
          std::move(sinks),
          splits};
}

nb::dict to_dict(const AttentionTile& t) {
  nb::dict d;
  d["begin"] = t.begin;
  d["end"] = t.end;
  d["elements"] = t.elements;
  d["saturated"] = t.saturated;
  d["underflowed"] = t.underflowed;
  d["rescaled_rows"] = t.rescaled;
  d["stale_rows"] = t.stale;
  d["p_max"] = t.p_max;
  return d;
}

nb::dict run(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  AttentionReport report;
  {
    const nb::gil_scoped_release release;
    report = attention_report(q.tensor, k.tensor, v.tensor, options);
  }
  nb::list tiles;
  for (const AttentionTile& tile : report.result.tiles) tiles.append(to_dict(tile));
  nb::dict d;
  d["o"] =
      array_of(std::move(report.result.o), {static_cast<std::size_t>(q.tensor.operand.heads),
                                            static_cast<std::size_t>(q.tensor.operand.rows),
                                            static_cast<std::size_t>(v.tensor.operand.columns)});
  d["tiles"] = tiles;
  d["total"] = to_dict(report.total);
  d["against_codes"] = python::to_dict(report.against_codes);
  d["against_inputs"] = python::to_dict(report.against_inputs);
  return d;
}

nb::object heads_array(std::vector<float>&& values, const Tensor& rows, std::int64_t columns) {
  return nb::cast(array_of(std::move(values), {static_cast<std::size_t>(rows.tensor.operand.heads),
                                               static_cast<std::size_t>(rows.tensor.operand.rows),
                                               static_cast<std::size_t>(columns)}));
}

AttentionInputs inputs_of(const Tensor& q, const Tensor& k, const Tensor& v) {
  return {q.tensor.operand, k.tensor.operand, v.tensor.operand};
}

nb::object output(const Tensor& q, const Tensor& k, const Tensor& v,
                  const AttentionOptions& options) {
  std::vector<float> o;
  {
    const nb::gil_scoped_release release;
    o = attention(inputs_of(q, k, v), options).o;
  }
  return heads_array(std::move(o), q, v.tensor.operand.columns);
}

nb::tuple gradients(const Tensor& q, const Tensor& k, const Tensor& v, const Heads<float>& o,
                    const Heads<float>& d_o, const AttentionOptions& options) {
  AttentionGradients g;
  {
    const nb::gil_scoped_release release;
    g = attention_backward(inputs_of(q, k, v), q.tensor.values, k.tensor.values, v.tensor.values,
                           {o.data(), o.size()}, {d_o.data(), d_o.size()}, options);
  }
  return nb::make_tuple(heads_array(std::move(g.dq), q, q.tensor.operand.columns),
                        heads_array(std::move(g.dk), k, k.tensor.operand.columns),
                        heads_array(std::move(g.dv), v, v.tensor.operand.columns));
}

nb::dict to_dict(const AttentionVerdict& verdict, const std::vector<bool>& passes) {
  nb::dict gates;
  for (std::size_t i = 0; i < passes.size(); ++i)
    gates[nb::cast(attention_gate_texts()[i].name)] = static_cast<bool>(passes[i]);
  nb::list measured;
  for (const std::string& line : verdict.measured) measured.append(line);
  nb::list causes;
  for (const AttentionCause& cause : verdict.causes) {
    nb::dict c;
    c["name"] = cause.name;
    c["text"] = cause.text;
    c["mismatches"] = cause.mismatches;
    c["distance"] = cause.distance;
    causes.append(c);
  }
  nb::dict d;
  d["verdict"] = verdict.pass ? "pass" : "mismatch";
  d["outputs"] = verdict.outputs;
  d["bit_mismatches"] = verdict.mismatches;
  d["distance"] = verdict.distance;
  d["where"] = verdict.where;
  d["measured"] = nb::tuple(measured);
  d["gates"] = gates;
  d["causes"] = causes;
  d["text"] = verdict.text();
  return d;
}

nb::dict check(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
               const Heads<float>& got, std::string_view output, double tolerance,
               bool with_gates) {
  AttentionVerdict verdict;
  std::vector<bool> passes;
  {
    const nb::gil_scoped_release release;
    const FormatId id = find_format(output).id;
    verdict =
        verify_attention(inputs_of(q, k, v), options, {got.data(), got.size()}, id, tolerance);
    if (with_gates) {
      const AttentionGates gates(inputs_of(q, k, v), options, id);
      passes = gates.pass(gates.compare({got.data(), got.size()}));
    }
  }
  return to_dict(verdict, passes);
}

SageInputs sage_inputs(const Heads<float>& q, const Heads<float>& k, const Heads<float>& v) {
  const auto [heads, m, d] = shape_of(q);
  const auto [kv_heads, n, k_columns] = shape_of(k);
  const auto [v_heads, v_rows, d_v] = shape_of(v);
  require(kv_heads > 0 && heads % kv_heads == 0, "k",
          fmt::format("a number of heads that divides q's {}", heads), fmt::format("{}", kv_heads));
  require(k_columns == d, "k", fmt::format("d = {}, as q has", d),
          fmt::format("d = {}", k_columns));
  require(v_heads == kv_heads && v_rows == n, "v",
          fmt::format("[{}, {}, d_v], as k has", kv_heads, n),
          fmt::format("[{}, {}, {}]", v_heads, v_rows, d_v));
  return {{q.data(), q.size()},
          {k.data(), k.size()},
          {v.data(), v.size()},
          {heads, heads / kv_heads, m, n, d, d_v}};
}

SageOptions sage_options(std::string_view input, float softmax_scale, bool causal, bool smooth,
                         std::string_view granularity, int threads) {
  require(threads >= 0, "threads", "0 (all) or more", fmt::format("{}", threads));
  return {find_format(input).id,
          softmax_scale,
          causal,
          smooth,
          find_sage_granularity(granularity),
          threads};
}

nb::tuple run_sage(const Heads<float>& q, const Heads<float>& k, const Heads<float>& v,
                   std::string_view call, const SageOptions& options) {
  const SageInputs in = sage_inputs(q, k, v);
  const SageKernel& kernel = find_sage_kernel(call);
  std::vector<float> o;
  Comparison errors;
  {
    const nb::gil_scoped_release release;
    o = sage_attention(in, kernel, options);
    errors = compare(sage_reference(in, options), o);
  }
  return nb::make_tuple(array_of(std::move(o), {q.shape(0), q.shape(1), v.shape(2)}),
                        python::to_dict(errors));
}

nb::dict check_sage(const Heads<float>& q, const Heads<float>& k, const Heads<float>& v,
                    std::string_view call, const SageOptions& options, const Heads<float>& got,
                    std::string_view output, double tolerance) {
  const SageInputs in = sage_inputs(q, k, v);
  const SageKernel& kernel = find_sage_kernel(call);
  AttentionVerdict verdict;
  {
    const nb::gil_scoped_release release;
    verdict = verify_sage_attention(in, kernel, options, {got.data(), got.size()},
                                    find_format(output).id, tolerance);
  }
  return to_dict(verdict, {});
}

nb::list all_sage_calls() {
  nb::list list;
  for (const SageKernel& kernel : sage_kernels())
    list.append(nb::make_tuple(kernel.name, kernel.nvfp4, kernel.q_tile, kernel.kv_tile,
                               kernel.pv_model, kernel.source));
  return list;
}

nb::list calls() {
  nb::list list;
  for (const AttentionCall& call : attention_calls()) {
    const AttentionOptions& o = call.options;
    nb::dict options;
    options["qk_model"] = o.qk_model;
    options["pv_model"] = o.pv_model;
    options["q_tile"] = o.q_tile;
    options["kv_tile"] = o.kv_tile;
    options["p_offset"] = o.p_offset;
    options["rescale_threshold"] = o.rescale_threshold;
    options["two_level"] = o.two_level;
    options["tile_order"] = to_string(o.tile_order);
    options["p_format"] = format(o.p_format).name;
    options["row_sum"] = to_string(o.row_sum);
    nb::list tiles;
    for (const HeadTiles& one : call.tiles)
      tiles.append(nb::make_tuple(one.head_size, one.q_tile, one.kv_tile));
    nb::dict d;
    d["name"] = call.name;
    d["operands"] = format(call.operands).name;
    d["options"] = options;
    d["standing"] = to_string(call.standing);
    d["source"] = call.source;
    d["tiles"] = nb::tuple(tiles);
    list.append(d);
  }
  return list;
}

}  // namespace

void bind_attention(nb::module_& m) {
  nb::class_<Tensor>(m, "AttentionTensor")
      .def_static("of_values", tensor_of_values, "x"_a.noconvert())
      .def_static("of_cache", tensor_of_cache, "x"_a.noconvert(), "rule"_a,
                  "calibrated"_a.noconvert().none())
      .def_static("of_codes", tensor_of_codes, "codes"_a.noconvert(), "format"_a, "argument"_a,
                  "inverse_scales"_a.noconvert().none());
  nb::class_<AttentionOptions>(m, "AttentionOptions")
      .def(nb::new_(&make_options), nb::kw_only(), "qk_model"_a, "pv_model"_a, "q_tile"_a,
           "kv_tile"_a, "softmax_scale"_a, "p_offset"_a, "rescale_threshold"_a, "causal"_a,
           "two_level"_a, "threads"_a, "tile_order"_a = "last_to_first", "p_format"_a = "e4m3fn",
           "window_left"_a = kNoWindow, "window_right"_a = kNoWindow, "row_sum"_a = "columns",
           "soft_cap"_a = 0.0F, "sinks"_a = std::vector<float>{}, "splits"_a = 1);
  m.def("attention_calls", calls);
  m.def("kv_caches", caches);
  m.def("pack_kv_rows", packed_rows, "x"_a.noconvert());
  m.def("read_kv_rows", unpacked_rows, "rows"_a.noconvert());
  m.def("verify_attention", check, "q"_a, "k"_a, "v"_a, "options"_a, "got"_a.noconvert(),
        "output"_a, "tolerance"_a, "gates"_a);
  m.def("attention", run, "q"_a, "k"_a, "v"_a, "options"_a);
  nb::class_<SageOptions>(m, "SageOptions")
      .def(nb::new_(&sage_options), nb::kw_only(), "input"_a, "softmax_scale"_a, "causal"_a,
           "smooth"_a, "granularity"_a, "threads"_a);
  m.def("sage_calls", all_sage_calls);
  m.def("sage_attention", run_sage, "q"_a.noconvert(), "k"_a.noconvert(), "v"_a.noconvert(),
        "call"_a, "options"_a);
  m.def("verify_sage_attention", check_sage, "q"_a.noconvert(), "k"_a.noconvert(),
        "v"_a.noconvert(), "call"_a, "options"_a, "got"_a.noconvert(), "output"_a, "tolerance"_a);
  m.def("attention_output", output, "q"_a, "k"_a, "v"_a, "options"_a);
  m.def("attention_backward", gradients, "q"_a, "k"_a, "v"_a, "o"_a.noconvert(),
        "d_o"_a.noconvert(), "options"_a);
}

}  // namespace fp8lab::python
