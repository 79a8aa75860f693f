// What a product of groups refuses, word for word.

#include <fmt/format.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/product/grouped_product.hpp"
#include "fp8lab/product/product.hpp"
#include "message_of.hpp"
#include "product/ones.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

using RefusedPart = std::function<void(GemmOperands&, GemmSpec&, Groups&)>;

/// What is said of a change of grouped operands with two groups.
std::string said_of_groups(const Groups& groups, const RefusedPart& change) {
  GemmOperands operands;
  const bool stacked = groups.kind == GroupKind::batched || groups.kind == GroupKind::row_counts;
  operands.a.codes = stacked ? codes({2, 3, 32}) : codes({6, 32});
  operands.b.codes = groups.kind == GroupKind::k_ends ? codes({4, 32}) : codes({2, 4, 32});
  GemmSpec spec{.model = "sm90.wgmma.e4m3"};
  Groups wrong = groups;
  change(operands, spec, wrong);
  return message_of([&] { (void)make_grouped_product(operands, spec, wrong); });
}

const std::vector<Groups>& kinds_of_groups() {
  static const std::vector<Groups> kKinds{{GroupKind::batched, {}, 0},
                                          {GroupKind::row_ends, {2, 6}, 0},
                                          {GroupKind::row_indices, {0, 0, 1, 1, -1, 1}, 0},
                                          {GroupKind::row_counts, {2, 3}, 0},
                                          {GroupKind::k_ends, {16, 32}, 0}};
  return kKinds;
}

}  // namespace

TEST_CASE("grouped: what is refused of each kind of groups, word for word", "[product]") {
  using O = GemmOperands;
  using S = GemmSpec;
  using G = Groups;
  // Batched, ends and indices of rows, counts, ends of terms.
  const auto each = [](const std::vector<std::string>& expected, const RefusedPart& change) {
    for (std::size_t i = 0; i < 5; ++i)
      CHECK(said_of_groups(kinds_of_groups()[i], change) == expected[i]);
  };
  const auto all = [&](const std::string& expected, const RefusedPart& change) {
    each(std::vector<std::string>(5, expected), change);
  };
  each({"A: expected [groups, m, k], for batched, got [4, 8, 2, 3]",
        "A: expected [m, k], for row_ends, got [4, 8, 2, 3]",
        "A: expected [m, k], for row_indices, got [4, 8, 2, 3]",
        "A: expected [groups, m, k], for row_counts, got [4, 8, 2, 3]",
        "A: expected [m, k of all groups], for k_ends, got [4, 8, 2, 3]"},
       [](O& o, S&, G&) {
         o.a.codes = codes({4, 8, 2, 3});
       });
  each({"B: expected [groups, n, k], for batched, got [32]",
        "B: expected [groups, n, k], for row_ends, got [32]",
        "B: expected [groups, n, k], for row_indices, got [32]",
        "B: expected [groups, n, k], for row_counts, got [32]",
        "B: expected [n, k of all groups], for k_ends, got [32]"},
       [](O& o, S&, G&) { o.b.codes = codes({32}); });
  each({"B: expected [groups, k, n], for batched, got [32]",
        "B: expected [groups, k, n], for row_ends, got [32]",
        "B: expected [groups, k, n], for row_indices, got [32]",
        "B: expected [groups, k, n], for row_counts, got [32]",
        "B: expected [k of all groups, n], for k_ends, got [32]"},
       [](O& o, S&, G&) { o.b.codes = codes({32}), o.b.transposed = true; });
  all("output_scale: expected a number: with groups, amax would be ambiguous (of one group, or of "
      "all), got amax",
      [](O&, S& s, G&) { s.epilogue.scale_by_amax = true; });
  all("scales: expected tensors, with groups, got scales that are already loaded",
      [](O& o, S&, G&) { o.a.inverse = InverseScales{}; });
  all("scales: expected tensors, with groups, got scales that are already loaded",
      [](O& o, S&, G&) { o.b.inverse = InverseScales{}; });
  all("tensor_scale_a: expected one for all groups, or one per group, got both", [](O& o, S&, G&) {
    o.a.tensor_scale = 2.0F, o.a.group_tensor_scales = {1.0F, 2.0F};
  });
  all("tensor_scale_b: expected one value, or 2, one per group, got 3", [](O& o, S&, G&) {
    o.b.group_tensor_scales = {1.0F, 2.0F, 3.0F};
  });
  each({"C: expected [2, 3, 4], got [3, 5, 7]", "C: expected [6, 4], got [3, 5, 7]",
        "C: expected [6, 4], got [3, 5, 7]", "C: expected [2, 3, 4], got [3, 5, 7]",
        "C: expected [2, 6, 4], got [3, 5, 7]"},
       [](O& o, S& s, G&) {
         o.c = real({3, 5, 7}), s.c_enters = CPlacement::epilogue;
       });
  each({"row_scales: expected [3], or [2, 3], got [7]", "row_scales: expected [6], got [7]",
        "row_scales: expected [6], got [7]", "row_scales: expected [3], or [2, 3], got [7]",
        "group 0: row_scales: expected [6], or [2, 6], got [7]"},
       [](O& o, S&, G&) { o.row_scales = real({7}); });
  each({"group 0: row_scales: expected floats [3] or [3, 1], got f32 [3, 7]",
        "row_scales: expected [6], got [3, 7]", "row_scales: expected [6], got [3, 7]",
        "group 0: row_scales: expected floats [2] or [2, 1], got f32 [2, 7]",
        "group 0: row_scales: expected [6], or [2, 6], got [3, 7]"},
       [](O& o, S&, G&) {
         o.row_scales = real({3, 7});
       });
  all("group 0: column_scales: expected floats [4] or [1, 4], got f32 [7]",
      [](O& o, S&, G&) { o.column_scales = real({7}); });
  all("group 0: bias: expected floats [4] or [1, 4], got f32 [3, 4]", [](O& o, S&, G&) {
    o.bias = real({3, 4});
  });
  each({"scale_a: expected one value, [2], or [2, ...] with the grid [3, 32] of one group, got [7, "
        "5]",
        "scale_a: expected one value, [6] or [6, 1], [6, 1] (1x128 tiles), [1, 1] (128x128 tiles), "
        "[6, 1] (1x32 tiles), [6, 2] (1x16 tiles); other tiles must be named, such as 64x64, got "
        "[7, 5]",
        "scale_a: expected one value, [6] or [6, 1], [6, 1] (1x128 tiles), [1, 1] (128x128 tiles), "
        "[6, 1] (1x32 tiles), [6, 2] (1x16 tiles); other tiles must be named, such as 64x64, got "
        "[7, 5]",
        "scale_a: expected one value, [2], or [2, ...] with the grid [3, 32] of one group, got [7, "
        "5]",
        "scale_a: expected one value, [6] or [6, 1], [6, 1] (1x128 tiles), [1, 1] (128x128 tiles), "
        "[6, 1] (1x32 tiles), [6, 2] (1x16 tiles); other tiles must be named, such as 64x64, got "
        "[7, 5]"},
       [](O& o, S&, G&) {
         o.a.scales = real({7, 5});
       });
  each({"scale_b: expected one value, [2], or [2, ...] with the grid [4, 32] of one group, got [7, "
        "5]",
        "scale_b: expected one value, [2], or [2, ...] with the grid [4, 32] of one group, got [7, "
        "5]",
        "scale_b: expected one value, [2], or [2, ...] with the grid [4, 32] of one group, got [7, "
        "5]",
        "scale_b: expected one value, [2], or [2, ...] with the grid [4, 32] of one group, got [7, "
        "5]",
        "scale_b: expected one value, [4] or [4, 1], [4, 1] (1x128 tiles), [1, 1] (128x128 tiles), "
        "[4, 1] (1x32 tiles), [4, 2] (1x16 tiles); other tiles must be named, such as 64x64, got "
        "[7, 5]"},
       [](O& o, S&, G&) {
         o.b.scales = real({7, 5});
       });
  each({"scale_a: expected one value, [3] or [3, 1], [3, 1] (1x128 tiles), [1, 1] (128x128 tiles), "
        "[3, 1] (1x32 tiles), [3, 2] (1x16 tiles); other tiles must be named, such as 64x64, got "
        "[5, 1] (of group 0)",
        "scale_a: expected one value, [6] or [6, 1], [6, 1] (1x128 tiles), [1, 1] (128x128 tiles), "
        "[6, 1] (1x32 tiles), [6, 2] (1x16 tiles); other tiles must be named, such as 64x64, got "
        "[2, 5, 1]",
        "scale_a: expected one value, [6] or [6, 1], [6, 1] (1x128 tiles), [1, 1] (128x128 tiles), "
        "[6, 1] (1x32 tiles), [6, 2] (1x16 tiles); other tiles must be named, such as 64x64, got "
        "[2, 5, 1]",
        "scale_a: expected one value, [3] or [3, 1], [3, 1] (1x128 tiles), [1, 1] (128x128 tiles), "
        "[3, 1] (1x32 tiles), [3, 2] (1x16 tiles); other tiles must be named, such as 64x64, got "
        "[5, 1] (of group 0)",
        "scale_a: expected one value, [6] or [6, 1], [6, 1] (1x128 tiles), [1, 1] (128x128 tiles), "
        "[6, 1] (1x32 tiles), [6, 2] (1x16 tiles); other tiles must be named, such as 64x64, got "
        "[2, 5, 1]"},
       [](O& o, S&, G&) {
         o.a.scales = real({2, 5, 1});
       });
  each({"group 0: A: expected floats, since a recipe quantizes them, got e4m3fn [3, 32]",
        "group 0: A: expected floats, since a recipe quantizes them, got e4m3fn [2, 32]",
        "group 0: A: expected floats, since a recipe quantizes them, got e4m3fn [2, 32]",
        "group 0: A: expected floats, since a recipe quantizes them, got e4m3fn [2, 32]",
        "recipe: expected none, with groups along k: quantize each group first, got te-current"},
       [](O& o, S&, G&) { o.recipe = "te-current"; });
  each({"scales: expected none, since the recipe makes them, got scales of your own",
        "scales: expected none, since the recipe makes them, got scales of your own",
        "scales: expected none, since the recipe makes them, got scales of your own",
        "scales: expected none, since the recipe makes them, got scales of your own",
        "recipe: expected none, with groups along k: quantize each group first, got te-current"},
       [](O& o, S&, G&) { o.recipe = "te-current", o.a.scales = real({1}); });
  all("alignment: expected 0 or more, got -1", [](O&, S&, G& g) { g.alignment = -1; });
  each({"accepted", "row_ends: expected groups that start at multiples of 4, got group 1 at 2",
        "row_indices: expected groups that start at multiples of 4, got group 1 at 2", "accepted",
        "accepted"},
       [](O&, S&, G& g) { g.alignment = 4; });
  each({"batched: expected no values, got [0, 2, 6]",
        "row_ends: expected one value for each of 2 groups (ends: leave out the leading 0), got 3",
        "row_indices: expected one index for each of 6 rows, got 3",
        "row_counts: expected one value for each of 2 groups, got 3", "accepted"},
       [](O&, S&, G& g) {
         g.values = {0, 2, 6};
       });
  each({"batched: expected no values, got [5, 4]",
        "row_ends: expected ends that increase to at most 6, got 4 after 5 (group 1)",
        "row_indices: expected one index for each of 6 rows, got 2",
        "row_counts: expected counts of 0 to 3 rows, got 5 (group 0)",
        "k_ends: expected ends that increase to at most 32, got 4 after 5 (group 1)"},
       [](O&, S&, G& g) {
         g.values = {5, 4};
       });
  each({"batched: expected no values, got [2, 33]",
        "row_ends: expected ends that increase to at most 6, got 33 after 2 (group 1)",
        "row_indices: expected one index for each of 6 rows, got 2",
        "row_counts: expected counts of 0 to 3 rows, got 33 (group 1)",
        "k_ends: expected ends that increase to at most 32, got 33 after 2 (group 1)"},
       [](O&, S&, G& g) {
         g.values = {2, 33};
       });
  each({"batched: expected no values, got [0, 0, 2, 1, 1, 1]",
        "row_ends: expected one value for each of 2 groups, got 6",
        "row_indices: expected groups 0 to 1, or -1, got 2 at 2",
        "row_counts: expected one value for each of 2 groups, got 6",
        "k_ends: expected ends that increase to at most 32, got 1 after 2 (group 3)"},
       [](O&, S&, G& g) { g.values = {0, 0, 2, 1, 1, 1}; });
  each({"batched: expected no values, got [0, 0, 1, 1, 1, -2]",
        "row_ends: expected one value for each of 2 groups, got 6",
        "row_indices: expected groups 0 to 1, or -1, got -2 at 5",
        "row_counts: expected one value for each of 2 groups, got 6",
        "k_ends: expected ends that increase to at most 32, got -2 after 1 (group 5)"},
       [](O&, S&, G& g) { g.values = {0, 0, 1, 1, 1, -2}; });
  each({"group 0: promotion_interval: expected 0 or a multiple of the model's 32 terms, got 33",
        "group 0: promotion_interval: expected 0 or a multiple of the model's 32 terms, got 33",
        "group 0: promotion_interval: expected 0 or a multiple of the model's 32 terms, got 33",
        "group 0: promotion_interval: expected 0 or a multiple of the model's 32 terms, got 33",
        "promotion_interval: expected 0 or a multiple of the model's 32 terms, got 33"},
       [](O&, S& s, G&) { s.promotion_interval = 33; });
  for (const std::size_t stacked : {0U, 3U})
    CHECK(said_of_groups(kinds_of_groups()[stacked], [](O& o, S&, G&) {
            o.a.codes = codes({3, 2, 32});
          }) == "A: expected [2, m, k], with as many groups as B, got [3, 2, 32]");
  CHECK(said_of_groups(kinds_of_groups()[4],
                       [](O& o, S&, G&) {
                         o.a.codes = codes({2, 32});
                         o.a.scales = real({2, 2});
                       }) ==
        "scale_a: expected [2, 2, 1] for one scale per row of each group, or named tiles for a "
        "grid over all terms, got [2, 2], which could be either");
}
