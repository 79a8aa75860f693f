// Outputs of which several elements are equally wrong: which are named, and all counts, with every
// pair of places.

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/verify.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

/// Codes of the output with `by` steps away from zero at each of some places.
std::vector<std::byte> stepped(FormatId id, std::vector<std::byte> codes,
                               const std::vector<std::int64_t>& places,
                               const std::vector<std::uint32_t>& by) {
  const auto width = static_cast<std::size_t>(format(id).storage_bits / 8);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto at = static_cast<std::size_t>(places[i]);
    const std::uint32_t code = code_at(id, codes, at) + by[i];
    for (std::size_t byte = 0; byte < width; ++byte)
      codes[at * width + byte] = static_cast<std::byte>(code >> (8 * byte) & 0xffU);
  }
  return codes;
}

/// `first 3 (1 of 5), worst 7 (4 of 5)`: names, places and distances of what is told.
std::string told(const VerifyReport& report) {
  std::string text;
  for (const ElementReport& element : report.elements)
    text += std::string(element.which) + " [" + std::to_string(element.row) + ", " +
            std::to_string(element.column) + "] " + std::to_string(element.mismatch.ulp) + "; ";
  return text;
}

std::string line(const char* which, std::int64_t at, std::int64_t columns, std::uint32_t ulp) {
  return std::string(which) + " [" + std::to_string(at / columns) + ", " +
         std::to_string(at % columns) + "] " + std::to_string(ulp) + "; ";
}

constexpr std::int64_t kWrongRows = 4;
constexpr std::int64_t kWrongColumns = 3;

}  // namespace

TEST_CASE("verify: of equally wrong elements the first is named, once", "[verify]") {
  for (const FormatId id : {FormatId::f32, FormatId::bf16, FormatId::e4m3fn}) {
    RandomProduct random({.output = default_output(id)},
                         {.shape = {kWrongRows, kWrongColumns, 32}});
    if (id == FormatId::e4m3fn) {  // all outputs are far from the largest number
      random.a.assign(random.a.size(), 0x20);
      random.b.assign(random.b.size(), 0x30);
    }
    const std::vector<std::byte> golden = golden_output(random.product);
    const auto verified = [&](const std::vector<std::byte>& got, bool with_inputs) {
      const std::vector<std::int64_t> shape{kWrongRows, kWrongColumns};
      const Operand mine("got", {element_type_of(id), shape, got}, nullptr);
      const VerifyOptions options{.judge_power = false};
      if (with_inputs) return verify(random.product, mine, options);
      return verify(Operand("golden", {element_type_of(id), shape, golden}, nullptr), mine,
                    options);
    };
    constexpr std::int64_t kAll = kWrongRows * kWrongColumns;
    for (std::int64_t one = 0; one < kAll; ++one)
      for (std::int64_t other = one + 1; other < kAll; ++other) {
        const bool with_inputs = one % 4 == 0 && other % 5 == 0;  // the dearer of the two ways
        INFO(format(id).name << " at " << one << " and " << other << ", inputs " << with_inputs);
        const auto got = [&](std::uint32_t a, std::uint32_t b) {
          return verified(stepped(id, golden, {one, other}, {a, b}), with_inputs);
        };
        const VerifyReport equal = got(2, 2);
        CHECK(told(equal) == line("first", one, kWrongColumns, 2));
        CHECK(equal.comparison.bit_mismatches == 2);
        CHECK(equal.comparison.ulp.max_index == static_cast<std::size_t>(one));
        CHECK(equal.comparison.ulp.counts[UlpHistogram::bin_of(2)] == 2);
        if (with_inputs) continue;
        CHECK(told(got(3, 1)) == line("first", one, kWrongColumns, 3));
        CHECK(told(got(1, 3)) ==
              line("first", one, kWrongColumns, 1) + line("worst", other, kWrongColumns, 3));
      }
    // Three, of which the last two are the worst.
    const VerifyReport three = verified(stepped(id, golden, {1, 5, 9}, {1, 2, 2}), true);
    CHECK(told(three) == line("first", 1, kWrongColumns, 1) + line("worst", 5, kWrongColumns, 2));
    CHECK(three.comparison.bit_mismatches == 3);
  }
}

TEST_CASE("verify: of equally large differences and quotients the first place is told",
          "[verify]") {
  // Outputs of 1 everywhere, 2 in the second row: 1.5 for 1 is as far as 2.5 for 2 and 0.5 for 1.
  std::vector<float> golden(kWrongRows * kWrongColumns, 1.0F);
  for (std::size_t i = 3; i < 6; ++i) golden[i] = 2.0F;
  const auto places = [&](const std::vector<std::pair<std::size_t, float>>& changes) {
    std::vector<float> got = golden;
    for (const auto& [at, value] : changes) got[at] = value;
    const auto operand = [&](const char* name, const std::vector<float>& values) {
      return Operand(
          name,
          view_of(ElementType::f32, {kWrongRows, kWrongColumns}, std::span<const float>(values)),
          nullptr);
    };
    const std::string text =
        describe(verify(operand("golden", golden), operand("got", got), {.judge_power = false}));
    const std::size_t begin = text.find("  max abs ");
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  CHECK(places({{2, 1.5F}, {7, 1.5F}}) == "  max abs 0.5 at [0, 2]  max rel 0.5 at [0, 2]");
  CHECK(places({{2, 0.5F}, {7, 1.5F}}) == "  max abs 0.5 at [0, 2]  max rel 0.5 at [0, 2]");
  CHECK(places({{4, 2.5F}, {7, 0.5F}}) == "  max abs 0.5 at [1, 1]  max rel 0.5 at [2, 1]");
  CHECK(places({{2, 1.5F}, {4, 3.0F}}) == "  max abs 1 at [1, 1]  max rel 0.5 at [0, 2]");
  CHECK(places({{5, 3.0F}, {11, 2.0F}}) == "  max abs 1 at [1, 2]  max rel 1 at [3, 2]");
  constexpr float kInf = std::numeric_limits<float>::infinity();
  CHECK(places({{1, 1.5F}, {8, kInf}, {10, kInf}}) ==
        "  max abs nan at [2, 2]  max rel nan at [2, 2]");
}
