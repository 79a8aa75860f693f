#include <fmt/format.h>

#include "fp8lab/verify/expect.hpp"

namespace fp8lab {
namespace {

std::string caught_by(const ExpectedFault& fault) {
  std::string text;
  const auto add = [&](bool caught, std::string_view name) {
    if (caught) text += fmt::format("{}{}", text.empty() ? "" : ", ", name);
  };
  add(fault.close, "rtol/atol");
  add(fault.calc_diff, "calc_diff");
  add(fault.cosine, "cosine");
  add(fault.max_ulp, "max_ulp");
  return text.empty() ? "passes all" : text;
}

std::string gate_text(const ExpectedGate& gate, double risk) {
  std::string text = fmt::format(
      "against {}: rtol {:.3g} atol {:.3g}, calc_diff < {:.3g}, "
      "cosine > {:.9g}, max_ulp {}\n",
      to_string(gate.reference), gate.rtol, gate.atol, gate.calc_diff, gate.cosine,
      gate.max_ulp ? fmt::format("{}", *gate.max_ulp) : "none");
  for (const MetricSpread& m : gate.metrics)
    text += fmt::format("  {:<17} median {:<10.3g} largest {:<10.3g} at risk {:g}: {:.3g}\n",
                        m.name, m.median, m.largest, risk, m.tail);
  return text;
}

/// The smallest fault that a form of the gate sees, and the largest that it does not.
std::string reach_text(const std::vector<ExpectedFault>& faults, std::string_view name,
                       bool ExpectedFault::*seen) {
  const ExpectedFault* smallest = nullptr;
  const ExpectedFault* largest = nullptr;
  for (const ExpectedFault& fault : faults) {
    if (fault.size == 0.0) continue;
    if (fault.*seen && smallest == nullptr) smallest = &fault;
    if (!(fault.*seen)) largest = &fault;
  }
  const auto one = [](const ExpectedFault* fault) {
    return fault == nullptr ? std::string("none")
                            : fmt::format("{} ({:.3g})", fault->name, fault->size);
  };
  return fmt::format("  {:<10} smallest fault caught {}, largest missed {}\n", name, one(smallest),
                     one(largest));
}

}  // namespace

std::string describe(const Expectation& e) {
  const ExpectOptions& o = e.options;
  std::string text = fmt::format(
      "{} x {} x {}, {}, promotion {}, {} output, {}, {}: {} trials of {} x {} outputs, seed {}\n",
      o.m, o.n, o.k, o.gemm.model, o.gemm.promotion_interval, format(o.gemm.output.format).name,
      o.recipe.empty() ? "cast without a scale" : o.recipe,
      o.operands ? "operands given" : to_string(o.distribution), o.trials, e.sample_rows,
      e.sample_columns, o.seed);
  text += fmt::format("right outputs have an RMS of {:.6g}\n", e.rms);
  for (std::size_t r = 0; r < e.gates.size(); ++r) {
    text += gate_text(e.gates[r], o.risk);
    text += reach_text(e.faults[r], "rtol/atol", &ExpectedFault::close);
    text += reach_text(e.faults[r], "calc_diff", &ExpectedFault::calc_diff);
    text += reach_text(e.faults[r], "cosine", &ExpectedFault::cosine);
    text += reach_text(e.faults[r], "max_ulp", &ExpectedFault::max_ulp);
  }
  text += "faults by their relative L2 error, and the gates against fp32 that catch them:\n";
  for (const ExpectedFault& fault : e.faults[static_cast<std::size_t>(ReferenceKind::fp32)])
    text += fmt::format("  {:<26} {:<10.3g} {:<38} {}\n", fault.name, fault.size, caught_by(fault),
                        fault.text);
  text += "gates at this risk are extrapolated (see docs/expect.md)\n";
  return text;
}

}  // namespace fp8lab
