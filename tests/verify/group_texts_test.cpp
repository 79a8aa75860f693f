// Mistakes between groups and reports of them, word for word.

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/product/grouped_product.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/group_mistakes.hpp"
#include "fp8lab/verify/grouped.hpp"
#include "message_of.hpp"

using namespace fp8lab;

namespace {

/// Codes, scales and bias for groups of any kind.
struct GroupData {
  std::vector<std::uint8_t> codes;
  std::vector<float> floats;

  GroupData() {
    const RandomStream random(6, "texts of groups");
    for (std::uint64_t i = 0; i < 40000; ++i)
      codes.push_back(static_cast<std::uint8_t>(random.bits32(i) % 0x70));
    for (std::uint64_t i = 0; i < 400; ++i)
      floats.push_back(static_cast<float>(1.0 + random.uniform(50000 + i)));
  }
  [[nodiscard]] TensorView of_codes(const std::vector<std::int64_t>& shape,
                                    std::size_t from = 0) const {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    return view_of(ElementType::e4m3fn, shape,
                   std::span(codes).subspan(from, static_cast<std::size_t>(count)));
  }
  [[nodiscard]] TensorView of_floats(const std::vector<std::int64_t>& shape,
                                     std::size_t from = 0) const {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    return view_of(ElementType::f32, shape,
                   std::span(floats).subspan(from, static_cast<std::size_t>(count)));
  }
};

std::string mistakes_text(const GroupedProduct& product, std::size_t part) {
  std::string text;
  for (const WrongProduct& one : group_mistakes(product, part))
    text += fmt::format("{}{}: {}\n", one.must_be_seen ? "! " : "", one.name, one.text);
  return text;
}

std::string of_weights(std::string_view relation, int group) {
  return fmt::format(
      "weight_codes_of_{0}_group: the weights of group {1} under this group's scales\n"
      "! weight_of_{0}_group: the weights of group {1}\n"
      "! scale_b_of_{0}_group: the scales of group {1}'s weights\n",
      relation, group);
}

/// What is tried of another group's weights, scales, rows and bias, in this order.
std::string of_rows(std::string_view relation, int group, bool rows_enough) {
  std::string text = of_weights(relation, group);
  if (rows_enough)
    text += fmt::format(
        "input_of_{0}_group: the rows of group {1}\n"
        "scale_a_of_{0}_group: the scales of group {1}'s rows\n",
        relation, group);
  return text + fmt::format("! bias_of_{0}_group: the bias of group {1}\n", relation, group);
}

std::string of_batch(std::string_view relation, int group, bool other_tensor_scale_b) {
  std::string text = of_weights(relation, group);
  if (other_tensor_scale_b)
    text += fmt::format(
        "! tensor_scale_b_of_{0}_group: the tensor scale of group {1}'s weights\n"
        "! both_scales_b_of_{0}_group: the scales of tiles and the tensor scale of group {1}'s "
        "weights\n",
        relation, group);
  return text +
         fmt::format(
             "input_of_{0}_group: the rows of group {1}\n"
             "scale_a_of_{0}_group: the scales of group {1}'s rows\n"
             "tensor_scale_a_of_{0}_group: the tensor scale of group {1}'s rows\n"
             "both_scales_a_of_{0}_group: the scales of tiles and the tensor scale of group {1}'s "
             "rows\n",
             relation, group);
}

/// Those of terms, `moves` of late and early begins, late and early ends, and of both.
std::string moved_text(const std::vector<bool>& moves, std::string_view by) {
  const std::vector<std::pair<const char*, const char*>> all{
      {"k_begins_late", "begin too late"},
      {"k_begins_early", "begin too early"},
      {"k_ends_late", "end too late"},
      {"k_ends_early", "end too early"},
      {"k_offset_high", "begin and end too late"},
      {"k_offset_low", "begin and end too early"}};
  std::string text;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (moves[i])
      text += fmt::format("{}: the group's terms {} by {}\n", all[i].first, all[i].second, by);
  return text;
}

/// By one term, and by the usual tiles below 128 terms.
std::string moved_a_little(const std::vector<bool>& moves) {
  std::string text;
  for (const char* by : {"one term", "16 terms", "32 terms", "64 terms"})
    text += moved_text(moves, by);
  return text;
}

/// Scales of weights from `low` to `high` rows of tiles further on, but those of another group.
std::string offsets_text(int low, int high, int rows_of_group) {
  std::string text;
  for (int by = low; by <= high; ++by)
    if (by % rows_of_group != 0)
      text += fmt::format(
          "scale_b_at_other_offset: the scales of the weights begin {} row{} of tiles too {} in "
          "all groups' scales\n",
          std::abs(by), std::abs(by) == 1 ? "" : "s", by < 0 ? "early" : "late");
  return text;
}

}  // namespace

TEST_CASE("grouped verify: the mistakes of each part, named by its neighbours' groups",
          "[verify]") {
  const GroupData data;
  // Group 2 has two parts, group 3 no row.
  GemmOperands rows;
  rows.a.codes = data.of_codes({9, 128});
  rows.b.codes = data.of_codes({4, 6, 128}, 5000);
  rows.a.scales = data.of_floats({9, 1});
  rows.b.scales = data.of_floats({4, 6, 1}, 20);
  rows.bias = data.of_floats({4, 6}, 60);
  const GroupedProduct indexed =
      make_grouped_product(rows, {.model = "sm90.wgmma.e4m3"},
                           {GroupKind::row_indices, {2, 2, 0, 0, 0, 2, 1, 1, -1}, 0});
  REQUIRE(indexed.parts.size() == 4);
  CHECK(mistakes_text(indexed, 0) == of_rows("next", 0, true) + of_rows("last", 1, true));
  CHECK(mistakes_text(indexed, 1) == of_rows("previous", 2, false) + of_rows("last", 1, false));
  CHECK(mistakes_text(indexed, 2) == of_rows("previous", 0, true) + of_rows("next", 1, true));
  CHECK(mistakes_text(indexed, 3) == of_rows("previous", 2, false));
  GemmOperands batch;
  batch.a.codes = data.of_codes({3, 4, 64});
  batch.b.codes = data.of_codes({3, 6, 64}, 5000);
  batch.a.scales = data.of_floats({3, 4, 1});
  batch.b.scales = data.of_floats({3, 6, 1}, 20);
  batch.a.group_tensor_scales = {1.25F, 0.5F, 3.0F};
  batch.b.group_tensor_scales = {2.25F, 0.25F, 2.25F};  // of groups 0 and 2 the same
  const GroupedProduct batched =
      make_grouped_product(batch, {.model = "sm90.wgmma.e4m3"}, {GroupKind::batched, {}, 0});
  CHECK(mistakes_text(batched, 0) ==
        of_batch("next", 1, true) + of_batch("last", 2, false) + offsets_text(0, 12, 6));
  CHECK(mistakes_text(batched, 1) ==
        of_batch("previous", 0, true) + of_batch("next", 2, true) + offsets_text(-6, 6, 6));
  CHECK(mistakes_text(batched, 2) ==
        of_batch("previous", 1, true) + of_batch("first", 0, false) + offsets_text(-12, 0, 6));
}

TEST_CASE("grouped verify: the mistakes of parts of K, by one term or by a whole tile",
          "[verify]") {
  const GroupData data;
  GemmOperands plain;
  plain.a.codes = data.of_codes({5, 384});
  plain.b.codes = data.of_codes({6, 384}, 5000);
  const GroupedProduct terms = make_grouped_product(plain, {.model = "sm90.wgmma.e4m3"},
                                                    {GroupKind::k_ends, {96, 96, 224, 384}, 0});
  const auto of = [](std::string_view relation, int group) {
    return fmt::format("! terms_of_{}_group: the terms of group {}\n", relation, group);
  };
  const std::vector<bool> all(6, true);
  CHECK(mistakes_text(terms, 0) ==
        of("next", 2) + of("last", 3) + moved_a_little({true, false, true, true, true, false}) +
            moved_text({false, false, true, false, true, false}, "128 terms"));
  // Group 1 has no terms.
  CHECK(mistakes_text(terms, 1) ==
        of("previous", 0) + of("next", 2) + of("last", 3) +
            moved_a_little({false, true, true, false, false, false}) +
            moved_text({false, false, true, false, false, false}, "128 terms"));
  CHECK(mistakes_text(terms, 2) ==
        of("previous", 0) + of("next", 3) + moved_a_little(all) +
            moved_text({false, false, true, false, true, false}, "128 terms"));
  CHECK(mistakes_text(terms, 3) ==
        of("previous", 2) + of("first", 0) +
            moved_a_little({true, true, false, true, false, true}) +
            moved_text({true, true, false, true, false, true}, "128 terms"));
  GemmOperands scaled = plain;
  scaled.a.scales = data.of_floats({5, 6});
  scaled.a.tiles = ScaleTiles{1, 64};
  scaled.b.scales = data.of_floats({6, 12}, 50);
  scaled.b.tiles = ScaleTiles{1, 32};
  scaled.a.group_tensor_scales = {1.25F, 0.5F, 3.0F};
  scaled.b.group_tensor_scales = {2.25F, 0.25F, 2.25F};
  const GroupedProduct tiles =
      make_grouped_product(scaled, {.model = "sm90.wgmma.e4m3", .promotion_interval = 32},
                           {GroupKind::k_ends, {128, 256, 384}, 0});
  const auto under = [](std::string_view relation, int group, bool other_b) {
    std::string text = fmt::format(
        "! terms_of_{0}_group: the terms of group {1}\n"
        "! tensor_scale_a_of_{0}_group: the tensor scale of group {1}\n",
        relation, group);
    if (other_b)
      text += fmt::format("! tensor_scale_b_of_{0}_group: the tensor scale of group {1}\n",
                          relation, group);
    return text;
  };
  CHECK(mistakes_text(tiles, 0) ==
        under("next", 1, true) + under("last", 2, false) +
            moved_text({true, false, true, true, true, false}, "64 terms") +
            moved_text({false, false, true, false, true, false}, "128 terms"));
  CHECK(mistakes_text(tiles, 1) ==
        under("previous", 0, true) + under("next", 2, true) + moved_text(all, "64 terms") +
            moved_text({false, true, true, false, true, true}, "128 terms"));
  CHECK(mistakes_text(tiles, 2) ==
        under("previous", 1, true) + under("first", 0, false) +
            moved_text({true, true, false, true, false, true}, "64 terms") +
            moved_text({false, true, false, false, false, true}, "128 terms"));
}

TEST_CASE("grouped verify: rows at a group's end that another group computed, in bf16",
          "[verify]") {
  const GroupData data;
  GemmOperands all;
  all.a.codes = data.of_codes({25, 64});
  all.b.codes = data.of_codes({5, 6, 64}, 5000);
  const GroupedProduct product = make_grouped_product(
      all, {.model = "sm90.wgmma.e4m3", .output = default_output(FormatId::bf16)},
      {GroupKind::row_ends, {4, 10, 15, 22, 23}, 0});
  const std::vector<std::byte> right = golden_output(product);
  std::vector<std::byte> got = right;
  struct Strayed {
    std::int64_t row, count;
    std::size_t part, other;
  };
  for (const Strayed& one : {Strayed{3, 1, 0, 1}, {4, 1, 1, 0}, {10, 2, 2, 1}, {20, 2, 3, 4}}) {
    const GroupProduct& part = product.parts[one.part];
    Product wrong = part.product;
    wrong.problem.b = product.parts[one.other].product.problem.b;
    const std::vector<std::byte> codes = golden_output(wrong);
    std::copy_n(codes.begin() + (one.row - part.first_row) * 12, one.count * 12,
                got.begin() + one.row * 12);
  }
  const auto verified = [&](const std::vector<std::byte>& codes) {
    return verify(product, Operand("d", {ElementType::bf16, product.shape, codes, false}, nullptr),
                  {.threads = 1});
  };
  const GroupedReport report = verified(got);
  CHECK(report.output == FormatId::bf16);
  std::string findings;
  for (const GroupOutcome& group : report.groups)
    for (const Cause& one : group.findings)
      findings += fmt::format("{}: {}: {}, {} and {}\n", group.group, one.name, one.text,
                              one.explained, one.contradicted);
  CHECK(findings ==
        "0: offset_early: the last row of group 0 went to the next group, whose offset is 1 too "
        "small, 6 and 0\n"
        "1: offset_late: the first row of group 1 went to the group before: its offset is 1 too "
        "large, 6 and 0\n"
        "2: offset_late: the first 2 rows of group 2 went to the group before: its offset is 2 too "
        "large, 12 and 0\n"
        "3: offset_early: the last 2 rows of group 3 went to the next group, whose offset is 2 too "
        "small, 12 and 0\n");
  // Rows at an edge with another cause are nobody else's.
  const auto negated = [&](std::int64_t row) {
    std::vector<std::byte> codes = right;
    for (std::size_t i = 0; i < 6; ++i)
      codes[static_cast<std::size_t>(row) * 12 + 2 * i + 1] ^= std::byte{0x80};
    std::size_t found = 0;
    for (const GroupOutcome& group : verified(codes).groups) found += group.findings.size();
    return found;
  };
  for (const std::int64_t row : {3, 4, 10, 14, 15, 21}) CHECK(negated(row) == 0);
  // Lines of a group's own report are indented.
  std::string text = describe(report);
  std::string lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at) + 1;
    const std::string line = text.substr(at, end - at);
    if (!line.starts_with("    ") || line.starts_with("    group")) lines += line;
    at = end;
  }
  const std::string against = "sm90.wgmma.e4m3, k = 64, promotion 0; check: bitwise\n";
  CHECK(
      lines ==
      "mismatch: 36 of 138 outputs differ in bits (26.09 %), in 4 of 5 groups [25, 6] bf16, "
      "row_ends, against " +
          against +
          "  group 0 (rows 0-3 of the output): \n"
          "  mismatch: 6 of 24 outputs differ in bits (25 %) [4, 6] bf16, against " +
          against +
          "    group 0: offset_early: the last row of group 0 went to the next group, whose offset "
          "is 1 too small\n"
          "  group 1 (rows 4-9 of the output): \n"
          "  mismatch: 6 of 36 outputs differ in bits (16.67 %) [6, 6] bf16, against " +
          against +
          "    group 1: offset_late: the first row of group 1 went to the group before: its offset "
          "is 1 too large\n"
          "  group 2 (rows 10-14 of the output): \n"
          "  mismatch: 12 of 30 outputs differ in bits (40 %) [5, 6] bf16, against " +
          against +
          "    group 2: offset_late: the first 2 rows of group 2 went to the group before: its "
          "offset is 2 too large\n"
          "  group 3 (rows 15-21 of the output): 12 of 42 differ; offset_early\n"
          "  2 rows are in no group and were not compared (an option can require zeros)\n");
  CHECK(describe(verified(right)) ==
        "pass: all 138 outputs of 5 groups have the golden bits [25, 6] bf16, row_ends, against " +
            against +
            "  2 rows are in no group and were not compared (an option can require zeros)\n"
            "  on group 3:\n"
            "  power of bitwise: 12 of 12 applicable faults detected (output 5 of 5, operands 6 of "
            "6, rounding 1 of 1), on 7 x 6 outputs\n");
}

TEST_CASE("grouped verify: the output has the product's type, or bytes for FP8 codes", "[verify]") {
  const GroupData data;
  GemmOperands all;
  all.a.codes = data.of_codes({2, 2, 64});
  all.b.codes = data.of_codes({2, 3, 64}, 5000);
  for (const FormatId id :
       {FormatId::f32, FormatId::f16, FormatId::bf16, FormatId::e4m3fn, FormatId::e5m2}) {
    const GroupedProduct product =
        make_grouped_product(all, {.model = "sm90.wgmma.e4m3", .output = default_output(id)},
                             {GroupKind::batched, {}, 0});
    std::vector<std::byte> codes = golden_output(product);
    const std::size_t width = codes.size() / 12;
    codes.resize(48);
    for (const ElementType type : {ElementType::f32, ElementType::f16, ElementType::bf16,
                                   ElementType::e4m3fn, ElementType::e5m2, ElementType::u8}) {
      const std::size_t bytes = element_bytes(type);
      const auto run = [&](const std::vector<std::int64_t>& shape) {
        std::uint64_t differ = 99;
        const std::string error = test::message_of(
            [&] {
              const Operand d("d", {type, shape, std::span(codes).first(12 * bytes), false},
                              nullptr);
              differ = verify(product, d, {.threads = 1}).mismatches;
            },
            "");
        return error.empty() ? fmt::format("{} differ", differ) : error;
      };
      INFO(format(id).name << " from " << to_string(type));
      const bool fits = type == element_type_of(id) || (type == ElementType::u8 && width == 1);
      CHECK(
          run({2, 2, 3}) ==
          (fits ? "0 differ"
                : fmt::format("d: expected {} elements; give their format with `out_dtype`, got {}",
                              to_string(element_type_of(id)), to_string(type))));
      if (!fits) continue;
      CHECK(run({2, 3, 2}) == "d: expected shape [2, 2, 3], got [2, 3, 2]");
      CHECK(run({4, 3}) == "d: expected shape [2, 2, 3], got [4, 3]");
    }
  }
}
