// NaN of any code in recorded outputs: all count as one, in samples, whole outputs and groups.

#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/identify/grouped.hpp"
#include "fp8lab/identify/hypotheses.hpp"
#include "fp8lab/identify/identify.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

std::size_t width_of_code(FormatId id) {
  return static_cast<std::size_t>(format(id).storage_bits / 8);
}

/// Every NaN code of a format; of binary32 some, with each bit of the payload alone.
std::vector<std::uint32_t> nan_codes_of(FormatId id) {
  std::vector<std::uint32_t> all;
  if (id == FormatId::f32) {
    for (const std::uint32_t sign : {0U, 1U})
      for (int bit = 0; bit < 23; ++bit) all.push_back(sign << 31 | 0x7f800000U | 1U << bit);
    return all;
  }
  const std::span<const float> table = decode_table(id);
  for (std::uint32_t code = 0; code < table.size(); ++code)
    if (std::isnan(table[code])) all.push_back(code);
  return all;
}

/// Puts the NaN codes of the format, one after the other, where an output is NaN. How many it put.
std::size_t spread_nan(FormatId id, std::vector<std::byte>& codes) {
  const std::vector<std::uint32_t> nan = nan_codes_of(id);
  const std::size_t width = width_of_code(id);
  std::size_t count = 0;
  for (std::size_t i = 0; i < codes.size() / width; ++i) {
    if (!std::isnan(decode(format(id), code_at(id, codes, i)))) continue;
    const std::uint32_t code = nan[count++ * 7 % nan.size()];
    std::memcpy(&codes[i * width], &code, width);
  }
  return count;
}

}  // namespace

TEST_CASE("identify: a code is canonical unless it is a NaN of another one", "[identify]") {
  for (const FormatId id : {FormatId::e4m3fn, FormatId::e5m2, FormatId::e4m3fnuz,
                            FormatId::e5m2fnuz, FormatId::f16, FormatId::bf16}) {
    const std::span<const float> table = decode_table(id);
    std::size_t wrong = 0;
    for (std::uint32_t code = 0; code < table.size(); ++code)
      wrong +=
          canonical_code(id, code) == (std::isnan(table[code]) ? nan_code(id) : code) ? 0U : 1U;
    INFO(format(id).name);
    CHECK(wrong == 0);
    CHECK(std::isnan(table[nan_code(id)]));
  }
  for (const std::uint32_t code : nan_codes_of(FormatId::f32)) {
    CAPTURE(code);
    CHECK(canonical_code(FormatId::f32, code) == nan_code(FormatId::f32));
  }
  for (const std::uint32_t code :
       {0U, 1U, 0x7f7fffffU, 0x7f800000U, 0x80000000U, 0xff7fffffU, 0xff800000U}) {
    CAPTURE(code);
    CHECK(canonical_code(FormatId::f32, code) == code);
  }
}

TEST_CASE("identify: NaN of every code is explained as the canonical one is", "[identify]") {
  for (const FormatId id : {FormatId::f32, FormatId::bf16, FormatId::f16, FormatId::e5m2,
                            FormatId::e4m3fn, FormatId::e4m3fnuz})
    for (const std::int64_t rows : {5, 67}) {  // whole in a sample, and larger than any
      const bool nvidia = id != FormatId::e4m3fnuz;
      RandomProduct random(
          {.model = nvidia ? "sm90.wgmma.e4m3" : "exact", .output = default_output(id)},
          {.shape = {rows, 9, 64}});
      random.a[64] = 0x7f;                         // all of row 1 is NaN
      if (rows > 5) random.a[21 * 64 + 5] = 0xff;  // and row 21, which is in no sample
      random.b[3 * 64 + 9] = 0xff;                 // and column 3
      const std::vector<std::byte> golden = golden_output(random.product);
      std::vector<std::byte> got = golden;
      const std::size_t count = spread_nan(id, got);
      INFO(format(id).name << ", " << rows << " rows");
      CHECK(count == static_cast<std::size_t>(rows > 5 ? 18 + rows - 2 : 9 + rows - 1));
      const std::vector<std::string> models{"fp32"};
      const Identification right = identify(random.product, golden, 1, models);
      const Identification found = identify(random.product, got, 1, models);
      CHECK(right.explained());
      CHECK(describe(found) == describe(right));
      // A number in place of a NaN is another output, in the sample or beyond it.
      std::memset(&got[static_cast<std::size_t>(rows > 5 ? 21 * 9 : 9) * width_of_code(id)], 0,
                  width_of_code(id));
      const Identification wrong = identify(random.product, got, 1, models);
      CHECK_FALSE(wrong.explained());
      REQUIRE_FALSE(wrong.ranking.empty());
      CHECK(wrong.ranking.front().matches == static_cast<std::uint64_t>(rows * 9 - 1));
    }
}

TEST_CASE("identify: what separates two explanations beside NaN has canonical codes",
          "[identify]") {
  RandomProduct random({.promotion_interval = 64, .output = default_output(FormatId::bf16)},
                       {.shape = {4, 3, 512}, .data = Data::wide});
  const std::vector<std::byte> golden = golden_output(random.product);
  std::vector<std::byte> got = golden;
  const std::uint16_t nan = 0xffc1;
  std::memcpy(&got[2 * 7], &nan, 2);
  const Identification found = identify(random.product, got, 1);
  CHECK_FALSE(found.explained());
  CHECK(found.ranking.front().matches == 11);
  for (const SeparatingElement& at : found.separating)
    CHECK(at.got == canonical_code(FormatId::bf16,
                                   code_at(FormatId::bf16, got,
                                           static_cast<std::size_t>(at.row * 3 + at.column))));
}

TEST_CASE("identify: NaN of any code in any group", "[identify]") {
  for (const FormatId id : {FormatId::f16, FormatId::e5m2}) {
    RandomProduct random({}, {.shape = {21, 3 * 6, 64}});
    for (const std::size_t row : {1U, 4U, 16U}) random.a[row * 64 + 3] = 0x7f;
    GemmOperands operands;
    operands.a.codes = view_of(ElementType::e4m3fn, {21, 64}, std::span(std::as_const(random.a)));
    operands.b.codes = view_of(ElementType::e4m3fn, {3, 6, 64}, std::span(std::as_const(random.b)));
    const GroupedProduct product =
        make_grouped_product(operands, {.model = "sm90.wgmma.e4m3", .output = default_output(id)},
                             {GroupKind::row_ends, {3, 15, 20}, 0});
    std::vector<std::byte> got = golden_output(product);
    CHECK(spread_nan(id, got) == 18);
    const auto identified = [&] {
      return identify(product, Operand("got", {element_type_of(id), {21, 6}, got}, nullptr), 1);
    };
    INFO(format(id).name);
    CHECK(identified().explained());
    // Finite numbers in their place count as wrong, each in its group.
    for (const std::size_t at : {1U * 6U, 16U * 6U + 5U})
      std::memset(&got[at * width_of_code(id)], 0, width_of_code(id));
    const GroupedIdentification wrong = identified();
    REQUIRE(wrong.groups.size() == 3);
    CHECK(wrong.groups[0].matches == 17);
    CHECK(wrong.groups[1].matches == 72);
    CHECK(wrong.groups[2].matches == 29);
  }
}
