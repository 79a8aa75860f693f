// Dumps are read in parts of 2^22 elements: all elements of every part count, at its ends too.

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/gates.hpp"
#include "fp8lab/verify/verify.hpp"

using namespace fp8lab;

namespace {

constexpr std::int64_t kPartRows = 3;
constexpr std::int64_t kPartColumns = 1398103;
constexpr std::size_t kPartElements = std::size_t{1} << 22;
constexpr std::size_t kDumpElements = kPartElements + 5;
static_assert(kPartRows * kPartColumns == kDumpElements);

/// What a report counted, and where its elements are.
std::string counts_of(const VerifyReport& report) {
  std::string text =
      fmt::format("{} of {}", report.comparison.bit_mismatches, report.comparison.values.count);
  for (const ElementReport& element : report.elements)
    text += fmt::format(", {} [{}, {}]", element.which, element.row, element.column);
  text += fmt::format("; {}", describe(report.non_finite));
  std::uint64_t on_map = 0;
  for (const auto count : report.map.counts) on_map += count;
  return text + fmt::format("; map {}", on_map);
}

}  // namespace

TEST_CASE("verify: every element of every part of a cast's dump counts", "[verify]") {
  constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();
  constexpr float infinite = std::numeric_limits<float>::infinity();
  std::vector<float> x(kDumpElements);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) + 1.0F;
  x[1] = x[kPartElements - 2] = x[kPartElements + 1] = nan_value;
  x[kPartElements - 3] = x[kPartElements + 2] = -infinite;
  const std::vector<float> scales{1.0F, 2.0F, 4.0F};
  std::vector<std::byte> right(kDumpElements);
  const Format& f = format(FormatId::e4m3fn);
  const auto code_of = [&](float value, std::size_t row) {
    return static_cast<std::byte>(encode(f, kNvidiaSatfinite, value * scales[row]));
  };
  const auto wide = static_cast<std::size_t>(kPartColumns);
  for (std::size_t row = 0; row < 3; ++row) {
    std::vector<std::byte> seven;
    for (std::size_t i = 0; i < 7; ++i) seven.push_back(code_of(static_cast<float>(i) + 1.0F, row));
    for (std::size_t i = row * wide; i < (row + 1) * wide; ++i)
      right[i] = std::abs(x[i]) <= 7.0F ? seven[i % 7] : code_of(x[i], row);
  }
  std::vector<std::byte> got = right;
  // A step too low, at both ends of each part; the last one by more.
  const std::vector<std::size_t> places{0, kPartElements - 1, kPartElements, kDumpElements - 1};
  for (const std::size_t at : places)
    got[at] = static_cast<std::byte>(static_cast<unsigned>(got[at]) - 1U);
  got[kDumpElements - 1] =
      static_cast<std::byte>(static_cast<unsigned>(got[kDumpElements - 1]) - 2U);
  const Operand input{
      "x", view_of(ElementType::f32, {kPartRows, kPartColumns}, std::span<const float>(x)),
      nullptr};
  const Operand scale{
      "s", view_of(ElementType::f32, {kPartRows, 1}, std::span<const float>(scales)), nullptr};
  const auto verified = [&](const std::vector<std::byte>& codes) {
    return verify_cast({}, input, &scale,
                       {"got", {ElementType::e4m3fn, {kPartRows, kPartColumns}, codes}, nullptr},
                       {.judge_power = false});
  };
  const VerifyReport wrong = verified(got);
  const std::string specials =
      "x has 3 NaN and 2 infinite; the golden cast has 3 NaN; got has 3 NaN";
  CHECK(counts_of(wrong) == fmt::format("4 of {}, first [0, 0], worst [2, {}]; {}; map 4",
                                        kDumpElements, kPartColumns - 1, specials));
  REQUIRE(wrong.diagnosis);
  CHECK(wrong.diagnosis->mismatches == 4);
  // Right ones are looked at every so often, in all parts, but where one is wrong.
  const std::size_t stride = kDumpElements / 32768;
  CHECK(wrong.diagnosis->right == (kDumpElements + stride - 1) / stride - 2);
}

TEST_CASE("verify: every element of every part of two files counts", "[verify]") {
  for (const FormatId id : {FormatId::e5m2, FormatId::bf16}) {
    const Format& f = format(id);
    const auto width = static_cast<std::size_t>(f.storage_bits / 8);
    std::vector<std::byte> golden(kDumpElements * width);
    const auto put = [&](std::vector<std::byte>& codes, std::size_t at, std::uint32_t code) {
      std::memcpy(&codes[at * width], &code, width);
    };
    const std::uint32_t nan = encode(f, kNvidiaNosat, std::numeric_limits<float>::quiet_NaN());
    const std::uint32_t infinity = encode(f, kNvidiaNosat, std::numeric_limits<float>::infinity());
    const std::uint32_t one = encode(f, kNvidiaNosat, 1.0F);
    for (std::size_t i = kPartElements; i < kDumpElements; ++i) put(golden, i, one);
    put(golden, 3, nan);
    put(golden, kPartElements - 2, nan);
    put(golden, kPartElements + 2, infinity);
    std::vector<std::byte> got = golden;
    put(got, kPartElements + 3, infinity);
    for (const std::size_t at : {std::size_t{0}, kPartElements - 1}) put(got, at, 1);
    put(got, kPartElements, one + 1);
    put(got, kDumpElements - 1, one + 2);
    const auto file = [&](const char* name, const std::vector<std::byte>& codes) {
      return Operand(name, {element_type_of(id), {kPartRows, kPartColumns}, codes}, nullptr);
    };
    INFO(f.name);
    const VerifyReport wrong = verify(file("golden", golden), file("got", got));
    const std::size_t infinite = kPartElements + 3 - 2 * static_cast<std::size_t>(kPartColumns);
    CHECK(counts_of(wrong) ==
          fmt::format("5 of {}, first [0, 0], worst [2, {}]; golden has 2 NaN and 1 infinite; "
                      "got has 2 NaN and 2 infinite; map 5",
                      kDumpElements, infinite));
    // The last element, which is no zero, is in the sample.
    const VerifyReport same = verify(file("golden", golden), file("same", golden));
    REQUIRE(same.power);
    CHECK(same.power->columns == 32768);
    for (const FaultOutcome& fault : same.power->faults) {
      INFO(fault.name << " " << fault.mismatch_rate);
      if (fault.name == "zeros") CHECK(fault.mismatch_rate == 1.0 / 32768.0);
    }
  }
}
