#include "fp8lab/verify/expect.hpp"

#include "bindings.hpp"
#include "fp8lab/product/calls.hpp"
#include "problem.hpp"

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
        o.gemm.model = model;
        o.gemm.promotion_interval = promotion_interval;
        o.gemm.scale_order = find_scale_order(scale_order);
        FormatId id = FormatId::f32;
        if (!call.empty()) {
          const LibraryCall& known = find_library_call(call);
          GemmOperands operands;
          operands.a.type = operands.b.type = ElementType::e4m3fn;
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
}

}  // namespace fp8lab::python
