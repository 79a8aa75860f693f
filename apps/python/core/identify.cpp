#include "fp8lab/identify/identify.hpp"

#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "bindings.hpp"
#include "fp8lab/scaling/cast_search.hpp"
#include "product.hpp"

namespace fp8lab::python {
namespace {

nb::dict to_dict(const Explanation& one) {
  nb::dict d;
  nb::list models;
  for (const std::string_view name : one.models) models.append(name);
  d["models"] = nb::tuple(models);
  d["promotion_interval"] = one.promotion_interval;
  d["scale_order"] = to_string(one.scale_order);
  d["split_k"] = one.split_k;
  d["rounding"] = one.rounding;
  d["c_enters"] =
      one.c_enters == CPlacement::unnamed ? nb::none() : nb::cast(to_string(one.c_enters));
  return d;
}

nb::dict to_dict(const ExplanationClass& one) {
  nb::dict d;
  nb::list members;
  for (const Explanation& member : one.members) members.append(to_dict(member));
  d["matches"] = one.matches;
  d["compared"] = one.compared;
  d["members"] = members;
  return d;
}

nb::dict to_dict(const SeparatingElement& e) {
  nb::dict d;
  d["row"] = e.row;
  d["column"] = e.column;
  d["got"] = e.got;
  d["first"] = e.first;
  d["second"] = e.second;
  return d;
}

nb::dict to_dict(const RecipeMatch& one) {
  nb::dict d;
  d["recipe"] = one.recipe;
  d["role"] = to_string(one.role);
  d["tile"] = nb::make_tuple(one.row_block, one.k_block);
  d["wrong_codes"] = one.wrong_codes;
  d["wrong_scales"] = one.wrong_scales;
  d["scales_multiply"] = one.multiplies;
  return d;
}

nb::dict to_dict(const ElementMatch& one) {
  nb::dict d;
  d["input"] = one.input;
  d["scaling"] = one.scaling;
  d["rounding"] = one.rounding;
  d["overflow"] = one.overflow;
  d["subnormals"] = one.subnormals;
  d["tile"] = nb::make_tuple(one.row_block, one.k_block);
  d["wrong_codes"] = one.wrong_codes;
  return d;
}

constexpr std::size_t kCastMatches = 5;  ///< of the text; lists hold all

nb::dict to_dict(const CastSearch& search) {
  nb::dict d;
  nb::list recipes;
  for (const RecipeMatch& one : search.recipes) recipes.append(to_dict(one));
  nb::list elements;
  for (const ElementMatch& one : search.elements) elements.append(to_dict(one));
  d["explained"] = search.explained();
  d["codes"] = search.codes;
  d["scales"] = search.tiles;
  d["recipes"] = recipes;
  d["elements"] = elements;
  d["text"] = describe(search, kCastMatches);
  return d;
}

}  // namespace

nb::dict to_dict(const Identification& result) {
  nb::dict d;
  nb::list ranking;
  for (const ExplanationClass& one : result.ranking) ranking.append(to_dict(one));
  nb::list separating;
  for (const SeparatingElement& e : result.separating) separating.append(to_dict(e));
  d["explained"] = result.explained();
  d["tried"] = result.tried;
  d["not_computed_whole"] = result.beyond;
  d["ranking"] = ranking;
  d["separating"] = separating;
  d["separating_count"] = result.separating_count;
  d["separating_compared"] = result.separating_compared;
  d["text"] = describe(result);
  return d;
}

void bind_identify(nb::module_& m) {
  m.def(
      "identify_cast",
      [](const Matrix<const float>& x, std::string_view format,
         const Vector<const std::uint8_t>& codes, const Vector<const float>& scales, int threads) {
        CastSearch search;
        {
          const nb::gil_scoped_release release;
          const FloatMatrix matrix{span_of(x), static_cast<std::int64_t>(x.shape(0)),
                                   static_cast<std::int64_t>(x.shape(1))};
          search = search_cast({matrix, find_format(format).id, span_of(codes), span_of(scales)},
                               threads);
        }
        return to_dict(search);
      },
      nb::kw_only(), "x"_a.noconvert(), "format"_a, "codes"_a.noconvert(), "scales"_a.noconvert(),
      "threads"_a);
  m.def(
      "identify",
      [](const ArrayProduct& product, const ProductTensor& got, int threads,
         const std::vector<std::string>& models) {
        Identification result;
        {
          const nb::gil_scoped_release release;
          result = identify(product.product, operand_of(got), threads, models);
        }
        return to_dict(result);
      },
      nb::kw_only(), "product"_a, "got"_a, "threads"_a, "models"_a);
}

}  // namespace fp8lab::python
