#include "fp8lab/metrics/kill_switch.hpp"

#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>

#include <array>
#include <optional>
#include <string>
#include <utility>

#include "bindings.hpp"

namespace fp8lab::python {
namespace {

KillSwitch make_switch(double amax_ratio, double moment_ratio, double loss_gap, std::int64_t window,
                       std::int64_t patience) {
  return KillSwitch({.amax_ratio = amax_ratio,
                     .moment_ratio = moment_ratio,
                     .loss_gap = loss_gap,
                     .window = window,
                     .patience = patience});
}

/// The first alarm's indicator and its value now; none without an alarm.
std::optional<std::pair<std::string, double>> cause_of(const KillSwitch& watch) {
  const std::optional<Indicator> cause = watch.cause();
  if (!cause) return std::nullopt;
  return std::pair{std::string(to_string(*cause)), watch.value(*cause)};
}

}  // namespace

void bind_kill_switch(nb::module_& m) {
  nb::class_<KillSwitch>(m, "KillSwitch")
      .def(nb::new_(&make_switch), nb::kw_only(), "amax_ratio"_a, "moment_ratio"_a, "loss_gap"_a,
           "window"_a, "patience"_a)
      .def(
          "observe",
          [](KillSwitch& watch, std::array<double, 3> run, std::array<double, 3> shadow) {
            watch.observe({run[0], run[1], run[2]}, {shadow[0], shadow[1], shadow[2]});
          },
          "run"_a, "shadow"_a)
      .def("cause", &cause_of);
}

}  // namespace fp8lab::python
