#include "bindings.hpp"

namespace fp8lab::python {

nb::dict to_dict(const Comparison& c) {
  nb::dict d;
  d["count"] = c.count;
  d["mismatches"] = c.mismatches;
  d["non_finite_mismatches"] = c.non_finite_mismatches;
  d["relative_l2"] = c.relative_l2;
  d["sqnr_db"] = c.sqnr_db;
  d["cosine"] = c.cosine;
  d["calc_diff"] = c.calc_diff;
  d["max_absolute"] = c.max_absolute;
  d["max_absolute_index"] = c.max_absolute_index;
  d["max_relative"] = c.max_relative;
  d["max_relative_index"] = c.max_relative_index;
  d["mean_signed_relative"] = c.mean_signed_relative;
  return d;
}

namespace {

template <typename Reference>
nb::dict compare_arrays(const Vector<const Reference>& reference,
                        const Vector<const float>& actual) {
  Comparison result;
  {
    const nb::gil_scoped_release release;
    result = compare(span_of(reference), span_of(actual));
  }
  return to_dict(result);
}

}  // namespace

void bind_checks(nb::module_& m) {
  m.def("compare", compare_arrays<float>, "reference"_a.noconvert(), "actual"_a.noconvert());
  m.def("compare", compare_arrays<double>, "reference"_a.noconvert(), "actual"_a.noconvert());
}

}  // namespace fp8lab::python
