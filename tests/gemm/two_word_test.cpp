// Exact sums whose bits one binary64 cannot hold.

#include <cmath>

#include "catch.hpp"
#include "gemm/problems.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

TEST_CASE("exact sums of wide data keep the reference's bits in two words", "[gemm]") {
  using enum FormatId;
  std::uint64_t seed = 4000;
  for (const FormatId a : {e5m2, e5m2fnuz, e4m3fn, f16, bf16}) {
    for (const FormatId b : {e5m2, f16, e4m3fn}) {
      for (const std::string_view name : {"exact", "exact32"}) {
        for (const Data data : {Data::finite, Data::specials, Data::normal}) {
          for (const Start start : {Start::none, Start::normal, Start::wide, Start::extreme}) {
            ++seed;
            const bool promoted = seed % 2 == 0;
            INFO(name << " on " << format(a).name << " x " << format(b).name << " seed " << seed
                      << " start " << static_cast<int>(start) << " promoted " << promoted);
            Operands operands(with_formats(name, a, b), {3, 35, 333}, data, start, seed);
            if (promoted) operands.problem.promotion_interval = 96;
            check_all_targets(operands.problem);
          }
        }
      }
    }
  }
}

// The second word matters where a large product hides what small ones add up to,
// and a sum past 2^31 loses the smallest products' bits: both on purpose.
TEST_CASE("small products survive large ones that cancel", "[gemm]") {
  constexpr std::int64_t kTerms = 96;
  constexpr std::uint8_t kLargest = 0x7b;   // 57344
  constexpr std::uint8_t kSmallest = 0x01;  // 2^-16
  std::vector<std::uint8_t> a(kTerms, kSmallest);
  std::vector<std::uint8_t> b(kTerms, kSmallest);
  a[0] = b[0] = a[1] = b[1] = a[40] = a[41] = kLargest;
  b[40] = b[41] = kLargest | 0x80;
  GemmProblem p;
  p.a = CodeMatrix::row_major(FormatId::e5m2, a, 1, kTerms);
  p.b = CodeMatrix::row_major(FormatId::e5m2, b, 1, kTerms);
  p.model = find_instruction_model("exact").accumulator;
  for (const Target target : available_targets()) {
    float sum = 0.0F;
    gemm_with_target(p, {&sum, 1}, target);
    INFO(to_string(target));
    CHECK(sum == std::ldexp(92.0F, -32));
  }
  p.model = find_instruction_model("exact32").accumulator;
  check_all_targets(p);
}
