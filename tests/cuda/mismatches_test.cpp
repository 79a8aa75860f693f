// Outputs that differ, by kind.

#include "cuda/tool/mismatches.hpp"

#include "catch.hpp"
#include "cuda/tool/winner.hpp"

using namespace fp8lab;
using namespace fp8lab::cuda;

TEST_CASE("mismatches are of the kind of the rarest output", "[cuda]") {
  using enum MismatchKind;
  CHECK(kind_of_mismatch(0, 0x80000000) == zero_sign);
  CHECK(kind_of_mismatch(0x80000000, 0) == zero_sign);
  CHECK(kind_of_mismatch(0, 0x3f800000) == zero);
  CHECK(kind_of_mismatch(0x00000001, 0x80000000) == zero);
  CHECK(kind_of_mismatch(0x7fffffff, 0) == nan);
  CHECK(kind_of_mismatch(0x7f800000, 0x3f800000) == infinity);
  CHECK(kind_of_mismatch(0x00000001, 0x3f800000) == subnormal);
  CHECK(kind_of_mismatch(0x3f800001, 0x3f800000) == finite);
}

TEST_CASE("a kind with many mismatches does not push out one with few", "[cuda]") {
  const ProbedInstruction probe = instructions_of({90, 13000}).front();
  const auto inputs = [&] { return VectorCase{}; };
  Mismatches mismatches(probe);
  CHECK(mismatches.kinds().empty());
  for (std::size_t i = 0; i < kMostKept + 1000; ++i) mismatches.add(0, 0x80000000, 1, inputs);
  CHECK(mismatches.kinds() == "all in the sign of a zero");
  for (int i = 0; i < 10; ++i) mismatches.add(0x3f800001, 0x3f800000, 1, inputs);
  mismatches.add(0x3f800001, 0x3f800000, 4, inputs);
  CHECK(mismatches.kinds() ==
        std::to_string(kMostKept + 1000) + " in the sign of a zero, 11 of finite outputs");
  CHECK(mismatches.kept(false).size() == kMostKept + 10);
  CHECK(mismatches.kept(true).size() == 1);
}

TEST_CASE("the candidate that gives all outputs is named, else the nearest apart", "[cuda]") {
  Winners winners{20, 5, 12, {{"right", 20}, {"too", 20}, {"wrong", 3}}};
  CHECK(to_string(winners) ==
        "explained by right (all 20 outputs of a sample; the model compared with: 12; "
        "5 candidates); as good: too");
  CHECK(nearest(winners).empty());
  winners.best.front().matches = 19;
  winners.best.resize(1);
  CHECK(to_string(winners) == "none of 5 candidates gives them");
  CHECK(nearest(winners) ==
        "nearest: right (19 of 20 outputs of a sample; the model compared with: 12)");
  CHECK(to_string(Winners{20, 0, 0, {}}) == "no candidate takes these operands");
  CHECK(nearest(Winners{20, 0, 0, {}}).empty());
}
