// The products of grouped linear layers: codes of each group in, one output for all.

#include <fmt/format.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bindings.hpp"
#include "coded_operand.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/product/grouped_product.hpp"

namespace fp8lab::python {
namespace {

using Codes = std::vector<Matrix<const std::uint8_t>>;
using GroupedScales = std::vector<ScaleVector>;

/// One group's product as the library's own layer has it (`train::fp8_product`).
GroupProduct part_of(std::size_t group, std::int64_t first_row, const train::GemmSettings& settings,
                     const train::CodedOperand& a, const train::CodedOperand& b) {
  GroupProduct part{static_cast<std::int64_t>(group), first_row, {}};
  GemmProblem& p = part.product.problem;
  p.model = settings.accumulator;
  p.a = a.codes;
  p.b = b.codes;
  p.scale_a = a.scales;
  p.scale_b = b.scales;
  p.promotion_interval = settings.promotion_interval;
  p.scale_order = settings.scale_order;
  return part;
}

/// D of all groups below each other: of group g A[g] [m_g, k_g] times B[g] [n, k_g].
OwnedArray<float> grouped_linear_product(const train::GemmSettings& settings,
                                         const Recipe& a_recipe, const Codes& a,
                                         const GroupedScales& scale_a, const Recipe& b_recipe,
                                         const Codes& b, const GroupedScales& scale_b,
                                         int threads) {
  const std::size_t count = a.size();
  require(scale_a.size() == count && b.size() == count && scale_b.size() == count, "groups",
          fmt::format("codes and scales of {}", count),
          fmt::format("{}, {} and {}", scale_a.size(), b.size(), scale_b.size()));
  std::vector<float> d;
  GroupedProduct all;
  {
    const nb::gil_scoped_release release;
    for (std::size_t g = 0; g < count; ++g) {
      const auto columns = static_cast<std::int64_t>(b[g].shape(0));
      require(g == 0 || columns == all.columns, "b",
              fmt::format("{} rows in each group", all.columns), fmt::format("{}", columns));
      all.columns = columns;
      all.parts.push_back(part_of(g, all.rows, settings, coded_operand(a_recipe, a[g], scale_a[g]),
                                  coded_operand(b_recipe, b[g], scale_b[g])));
      all.rows += static_cast<std::int64_t>(a[g].shape(0));
    }
    all.count = static_cast<std::int64_t>(count);
    all.shape = {all.rows, all.columns};
    d = compute(all, threads);
  }
  return array_of(std::move(d),
                  {static_cast<std::size_t>(all.rows), static_cast<std::size_t>(all.columns)});
}

}  // namespace

void bind_grouped_linear(nb::module_& m) {
  m.def("grouped_linear_product", grouped_linear_product, "settings"_a, "a_recipe"_a,
        "a"_a.noconvert(), "scale_a"_a.noconvert(), "b_recipe"_a, "b"_a.noconvert(),
        "scale_b"_a.noconvert(), "threads"_a);
}

}  // namespace fp8lab::python
