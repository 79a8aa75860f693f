#include "fp8lab/verify/verify.hpp"

#include "bindings.hpp"
#include "fp8lab/verify/gates.hpp"
#include "product.hpp"

namespace fp8lab::python {
namespace {

nb::list causes_of(const VerifyReport& report) {
  nb::list list;
  if (!report.diagnosis) return list;
  for (const Cause& cause : report.diagnosis->causes) {
    nb::dict d;
    d["name"] = cause.name;
    d["text"] = cause.text;
    d["explained"] = cause.explained;
    d["contradicted"] = cause.contradicted;
    d["in_fp64"] = cause.in_fp64;
    d["undecided"] = cause.undecided;
    list.append(d);
  }
  return list;
}

/// Faults that the check in use would let pass.
nb::list undetected_of(const VerifyReport& report) {
  nb::list list;
  if (!report.power) return list;
  for (const FaultOutcome& fault : report.power->faults)
    if (fault.applies && !fault.detected[report.power_of_check]) list.append(fault.name);
  return list;
}

nb::dict non_finite_of(const VerifyReport& report) {
  nb::dict d;
  for (const auto& [name, counts] : report.non_finite)
    d[nb::cast(name)] = nb::make_tuple(counts.nan, counts.infinite);
  return d;
}

nb::dict gates_of(const VerifyReport& report) {
  nb::dict d;
  for (std::size_t i = 0; i < gates().size(); ++i)
    d[nb::cast(gates()[i].name)] = static_cast<bool>(report.gates[i]);
  return d;
}

}  // namespace

nb::dict to_dict(const VerifyReport& report) {
  nb::dict d;
  d["verdict"] = to_string(report.verdict);
  d["bit_mismatches"] = report.comparison.bit_mismatches;
  d["comparison"] = to_dict(report.comparison.values);
  d["causes"] = causes_of(report);
  nb::list measured;
  if (report.diagnosis)
    for (const std::string& line : report.diagnosis->measured) measured.append(line);
  d["measured"] = measured;
  d["undetected"] = undetected_of(report);
  d["gates"] = gates_of(report);
  d["non_finite"] = non_finite_of(report);
  d["text"] = summary(report);
  d["details"] = describe(report);
  d["warning"] = describe(report.non_finite);
  d["faults"] = report.power ? describe_faults(*report.power) : std::string();
  return d;
}

void bind_verify(nb::module_& m) {
  bind_expect(m);
  m.def(
      "verify",
      [](const ArrayProduct& product, const ProductTensor& got, std::string_view check,
         bool fault_matrix, int threads) {
        VerifyReport report;
        {
          const nb::gil_scoped_release release;
          report = verify(
              product.product, operand_of(got),
              {.check = find_check(check), .fault_matrix = fault_matrix, .threads = threads});
        }
        return to_dict(report);
      },
      nb::kw_only(), "product"_a, "got"_a, "check"_a, "fault_matrix"_a, "threads"_a);
}

}  // namespace fp8lab::python
