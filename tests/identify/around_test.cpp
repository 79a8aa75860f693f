// Kernels with everything around their sums: C at every place, scales, epilogues and splits. Each
// is explained as what it is.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/gemm/gemm.hpp"
#include "fp8lab/identify/grouped.hpp"
#include "fp8lab/identify/hypotheses.hpp"
#include "fp8lab/identify/identify.hpp"
#include "fp8lab/product/variants.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

/// Whether an explanation is what the product does.
bool is_of(const Explanation& one, const Product& product, int parts, bool scaled) {
  const GemmProblem& p = product.problem;
  return std::ranges::find(one.models, product.model) != one.models.end() &&
         one.promotion_interval == p.promotion_interval &&
         (!scaled || one.scale_order == p.scale_order) && one.c_enters == p.c_enters &&
         one.split_k == parts && (one.rounding == "kept" || one.rounding == "nearest_even");
}

}  // namespace

TEST_CASE("identify: C at each place, scales of each kind and every epilogue are explained",
          "[identify]") {
  const std::vector<float> bias{0.5F, -3.0F, 8.0F, 1.25F, 40.0F};
  const std::vector<float> rows{2.0F, 0.75F, 1.5F, 3.0F};
  int looked_at = 0;
  for (const int scales : {0, 1, 2})
    for (const int around : {0, 1, 2}) {
      RandomProduct::Options options{.shape = {4, 5, 128}, .data = Data::wide, .with_c = true};
      if (scales == 1) options.tiles_a = {4}, options.tiles_b = {5};
      std::vector<float> of_a, of_b;
      for (int i = 0; i < 8; ++i) of_a.push_back(1.0F + 0.3F * static_cast<float>(i % 5));
      for (int i = 0; i < 10; ++i) of_b.push_back(0.7F + 0.2F * static_cast<float>(i % 7));
      RandomProduct random({.model = "sm100.mma.e4m3", .promotion_interval = 64}, options);
      Product product = random.product;
      if (scales == 2) product.problem.scale_a = {of_a, 1, 64};
      if (scales == 2) product.problem.scale_b = {of_b, 1, 64};
      Epilogue& e = product.epilogue;
      if (around > 0) {
        e.alpha = 0.75F;
        e.bias = bias;
        e.row_scales = rows;
      }
      if (around == 2) {
        e.activation = Activation::leaky_relu;
        e.output_scale = 0.125F;
        product.output = default_output(FormatId::bf16);
      }
      // C of a size that shows.
      std::vector<float> c;
      for (int i = 0; i < 20; ++i) c.push_back(1000.0F + 37.0F * static_cast<float>(i));
      std::vector<CPlacement> places = possible_c_placements(product.problem);
      places.push_back(CPlacement::unnamed);
      for (const CPlacement place : places)
        for (const int parts : {1, 2}) {
          if (parts == 2 && (around != scales || scales == 2)) continue;
          product.problem.c = place == CPlacement::unnamed ? nullptr : c.data();
          product.problem.c_enters = place;
          Product split = product;
          if (parts > 1) split.split = {.parts = parts, .tile = 64};
          const std::vector<std::byte> got = golden_output(split, 1);
          // What the product says of a split is no hypothesis.
          Product asked = product;
          if (parts == 1) asked.split = {.parts = 2, .tile = 32, .cut = SplitCut::modulo};
          const Identification found = identify(asked, got, 1);
          INFO("scales " << scales << ", around " << around << ", C " << to_string(place) << ", "
                         << parts << " parts\n"
                         << describe(found));
          REQUIRE(found.explained());
          CHECK(found.scaled == (scales > 0));
          const std::vector<Explanation>& members = found.ranking.front().members;
          CHECK(std::ranges::any_of(members, [&](const Explanation& one) {
            return is_of(one, product, parts, scales > 0);
          }));
          for (const Explanation& one : members)
            CHECK((one.c_enters == CPlacement::unnamed) == (place == CPlacement::unnamed));
          ++looked_at;
        }
    }
  CHECK(looked_at > 25);
}

TEST_CASE("identify: scales of B alone are scales", "[identify]") {
  for (const bool of_a : {true, false}) {
    RandomProduct::Options options{.shape = {4, 5, 64}, .data = Data::wide};
    (of_a ? options.tiles_a : options.tiles_b) = {of_a ? 4 : 5};
    const RandomProduct random({.model = "sm100.mma.e4m3"}, options);
    const Identification found = identify(random.product, golden_output(random.product, 1), 1);
    CHECK(found.scaled);
    CHECK(found.explained());
    CHECK_THAT(describe(found), contains("--scale-order product_then_fma"));
  }
}

TEST_CASE("identify: an output of no elements is refused", "[identify]") {
  const RandomProduct random({}, {.shape = {4, 5, 64}});
  Product none = random.product;
  none.problem.a.rows = 0;
  CHECK_THROWS_WITH(identify(none, std::span<const std::byte>{}, 1),
                    "got: expected at least one output, got none");
}

TEST_CASE(
    "identify: groups without terms are none to start from, and orders of D and models given "
    "count",
    "[identify]") {
  const RandomProduct random({}, {.shape = {4, 3, 256}, .data = Data::wide});
  GemmOperands operands;
  operands.a.codes = view_of(ElementType::e4m3fn, {4, 256}, std::span(std::as_const(random.a)));
  operands.b.codes = view_of(ElementType::e4m3fn, {3, 256}, std::span(std::as_const(random.b)));
  GemmSpec spec{.model = "sm90.wgmma.e4m3"};
  spec.model = "fused:F=11,terms=32";
  const GroupedProduct product =
      make_grouped_product(operands, spec, {GroupKind::k_ends, {0, 128, 256}, 0});
  const std::vector<std::byte> plain = golden_output(product, 1);
  // [3, 4, 3], the first dimension innermost.
  std::vector<std::byte> turned(plain.size());
  for (std::size_t g = 0; g < 3; ++g)
    for (std::size_t i = 0; i < 4; ++i)
      for (std::size_t j = 0; j < 3; ++j)
        std::copy_n(plain.begin() + static_cast<std::ptrdiff_t>(4 * ((g * 4 + i) * 3 + j)), 4,
                    turned.begin() + static_cast<std::ptrdiff_t>(4 * (g + 3 * i + 12 * j)));
  const std::vector<std::string> models{spec.model};
  for (const bool fortran : {false, true})
    for (const bool with_model : {false, true}) {
      const Operand got{
          "d", {ElementType::f32, {3, 4, 3}, fortran ? turned : plain, fortran}, nullptr};
      const GroupedIdentification found =
          identify(product, got, 1, with_model ? models : std::vector<std::string>{});
      INFO("Fortran " << fortran << ", with the model " << with_model << "\n" << describe(found));
      CHECK(found.group == 1);
      CHECK(found.explained() == with_model);
      CHECK(found.groups.size() == 3);
      if (!with_model) continue;
      CHECK(found.found.ranking.front().members.front().models ==
            std::vector<std::string_view>{spec.model});
      CHECK(describe(found).ends_with("the first explanation holds for 3 of 3 groups\n"));
    }
}

TEST_CASE("identify: of a group's outputs 64 rows and columns tell explanations apart",
          "[identify]") {
  // The largest group tells nothing; of the other one, rows and columns but the last are ones.
  RandomProduct random({}, {.shape = {20, 2 * 4, 256}, .data = Data::wide});
  std::fill_n(random.a.begin(), 19 * 256, std::uint8_t{0x38});
  std::fill_n(random.b.begin(), 7 * 256, std::uint8_t{0x38});
  GemmOperands operands;
  operands.a.codes = view_of(ElementType::e4m3fn, {20, 256}, std::span(std::as_const(random.a)));
  operands.b.codes = view_of(ElementType::e4m3fn, {2, 4, 256}, std::span(std::as_const(random.b)));
  const GroupedProduct product =
      make_grouped_product(operands, {.model = "sm90.wgmma.e4m3", .promotion_interval = 64},
                           {GroupKind::row_ends, {14, 20}, 0});
  const std::vector<std::byte> right = golden_output(product, 1);
  const GroupedIdentification found =
      identify(product, Operand("got", {ElementType::f32, {20, 4}, right}, nullptr), 1);
  CHECK(found.group == 0);
  CHECK(found.explained());
  REQUIRE_FALSE(found.found.ranking.empty());
  CHECK(found.found.ranking.front().members.front().promotion_interval == 64);
  std::string matches;
  for (const GroupMatch& one : found.groups)
    matches += std::to_string(one.matches) + " of " + std::to_string(one.compared) + "; ";
  CHECK(matches == "56 of 56; 24 of 24; ");
}

TEST_CASE("identify: groups of one output each are enough", "[identify]") {
  RandomProduct random({}, {.shape = {2, 2, 256}, .data = Data::wide});
  GemmOperands operands;
  operands.a.codes = view_of(ElementType::e4m3fn, {2, 256}, std::span(std::as_const(random.a)));
  operands.b.codes = view_of(ElementType::e4m3fn, {2, 1, 256}, std::span(std::as_const(random.b)));
  const GroupedProduct product = make_grouped_product(operands, {.model = "sm90.wgmma.e4m3"},
                                                      {GroupKind::row_ends, {1, 2}, 0});
  const GroupedIdentification found = identify(
      product, Operand("got", {ElementType::f32, {2, 1}, golden_output(product, 1)}, nullptr), 1);
  CHECK(found.group == 0);
  CHECK(found.explained());
}
