#include "fp8lab/scaling/auto_scaling.hpp"

#include "bindings.hpp"

namespace fp8lab::python {
namespace {

AutoScaler make_scaler(double threshold, std::int64_t steps_to_double, std::int64_t clean_steps,
                       std::string_view growth, double mu) {
  return AutoScaler({.threshold = threshold,
                     .steps_to_double = steps_to_double,
                     .clean_steps = clean_steps,
                     .growth = find_growth_law(growth)},
                    mu);
}

}  // namespace

void bind_auto_scaling(nb::module_& m) {
  nb::class_<AutoScaler>(m, "AutoScaler")
      .def(nb::new_(&make_scaler), nb::kw_only(), "threshold"_a, "steps_to_double"_a,
           "clean_steps"_a, "growth"_a, "mu"_a)
      .def_prop_ro("mu", &AutoScaler::mu)
      .def("update", &AutoScaler::update, "saturated_share"_a);
}

}  // namespace fp8lab::python
