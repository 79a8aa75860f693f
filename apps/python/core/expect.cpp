#include "fp8lab/verify/expect.hpp"

#include <nanobind/stl/array.h>

#include "bindings.hpp"
#include "fp8lab/product/calls.hpp"
#include "fp8lab/verify/expect_attention.hpp"
#include "product.hpp"

namespace fp8lab::python {
namespace {

nb::dict to_dict(const ExpectedGate& gate, const std::vector<ExpectedFault>& faults) {
  nb::dict d;
  d["rtol"] = gate.rtol;
  d["atol"] = gate.atol;
  d["calc_diff"] = gate.calc_diff;
  d["cosine"] = gate.cosine;
  d["max_ulp"] = gate.max_ulp ? nb::cast(*gate.max_ulp) : nb::none();
  nb::dict metrics;
  for (const MetricSpread& m : gate.metrics)
    metrics[nb::cast(m.name)] = nb::make_tuple(m.median, m.largest, m.tail);
  d["metrics"] = metrics;
  nb::list list;
  for (const ExpectedFault& f : faults)
    list.append(nb::make_tuple(f.name, f.size, f.close, f.calc_diff, f.cosine, f.max_ulp));
  d["faults"] = list;
  return d;
}

nb::dict to_dict(const Expectation& e) {
  nb::dict d;
  for (std::size_t r = 0; r < e.gates.size(); ++r)
    d[nb::cast(to_string(e.gates[r].reference))] = to_dict(e.gates[r], e.faults[r]);
  d["text"] = describe(e);
  return d;
}

nb::dict to_dict(const std::vector<AttentionError>& errors) {
  nb::dict d;
  for (const AttentionError& e : errors)
    d[nb::str(e.of.c_str())] =
        nb::make_tuple(e.codes.median, e.inputs.median, e.inputs.low, e.inputs.high);
  return d;
}

nb::dict to_dict(const AttentionExpectation& e) {
  nb::dict missed;
  nb::dict passes;
  for (std::size_t g = 0; g < e.gates.size(); ++g) {
    nb::list names;
    for (const AttentionFault& f : e.faults)
      if (f.caught[g] == 0) names.append(f.name);
    missed[nb::str(e.gates[g].name.c_str())] = nb::tuple(names);
    passes[nb::str(e.gates[g].name.c_str())] = e.gates[g].passes;
  }
  nb::dict d;
  d["relative_l2"] = e.metrics[0].tail;
  d["calc_diff"] = e.metrics[1].tail;
  d["cosine"] = 1.0 - e.metrics[2].tail;
  d["max_absolute"] = e.metrics[3].tail;
  d["by_spread"] = to_dict(e.by_spread);
  d["by_length"] = to_dict(e.by_length);
  d["by_cache"] = to_dict(e.by_cache);
  d["passes"] = passes;
  d["missed"] = missed;
  d["text"] = describe(e);
  return d;
}

}  // namespace

void bind_expect(nb::module_& m) {
  m.def(
      "expect",
      [](std::int64_t rows, std::int64_t columns, std::int64_t k, std::string_view call,
         std::string_view model, std::int64_t promotion_interval, std::string_view scale_order,
         const std::string& recipe, std::optional<std::string_view> output,
         std::string_view distribution, bool against_originals, int trials, std::uint64_t seed,
         double risk, int threads) {
        ExpectOptions o;
        o.m = rows;
        o.n = columns;
        o.k = k;
        o.recipe = recipe;
        o.distribution = find_distribution(distribution);
        o.against_originals = against_originals;
        o.trials = trials;
        o.seed = seed;
        o.risk = risk;
        o.threads = threads;
        if (call.empty()) o.gemm.model = model;
        o.gemm.promotion_interval = promotion_interval;
        o.gemm.scale_order = find_scale_order(scale_order);
        FormatId id = FormatId::f32;
        if (!call.empty()) {
          const LibraryCall& known = find_library_call(call);
          GemmOperands operands;
          operands.a.codes.type = operands.b.codes.type = ElementType::e4m3fn;
          o.gemm = with_call(known, operands, o.gemm);
          id = known.output;
        }
        o.gemm.output = default_output(output ? find_format(*output).id : id);
        Expectation e;
        {
          const nb::gil_scoped_release release;
          e = expect_errors(o);
        }
        return to_dict(e);
      },
      nb::kw_only(), "m"_a, "n"_a, "k"_a, "call"_a, "model"_a, "promotion_interval"_a,
      "scale_order"_a, "recipe"_a, "output"_a.none(), "distribution"_a, "against_originals"_a,
      "trials"_a, "seed"_a, "risk"_a, "threads"_a);
  m.def(
      "expect_attention",
      [](const std::array<std::int64_t, 6>& shape, const AttentionOptions& options, double spread,
         const std::string& kv_cache, std::string_view output, int trials, std::uint64_t seed,
         double risk) {
        const AttentionExpectOptions o{
            shape[0], shape[1], shape[2], shape[3], shape[4],
            shape[5], options,  spread,   kv_cache, find_format(output).id,
            trials,   seed,     risk};
        AttentionExpectation e;
        {
          const nb::gil_scoped_release release;
          e = expect_attention(o);
        }
        return to_dict(e);
      },
      nb::kw_only(), "shape"_a, "options"_a, "spread"_a, "kv_cache"_a, "output"_a, "trials"_a,
      "seed"_a, "risk"_a);
}

}  // namespace fp8lab::python
