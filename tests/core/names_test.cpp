#include "fp8lab/core/names.hpp"

#include <set>
#include <string>

#include "catch.hpp"
#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/cast/policy.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/scaling/quantize.hpp"

using namespace fp8lab;

namespace {

/// `find` gives back each of the first `count` values of an enum from its name; names differ.
template <typename Enum>
void check_names(int count, Enum (*find)(std::string_view)) {
  std::set<std::string> names;
  for (int i = 0; i < count; ++i) {
    const auto value = static_cast<Enum>(i);
    CHECK(find(to_string(value)) == value);
    names.emplace(to_string(value));
  }
  CHECK(names.size() == static_cast<std::size_t>(count));
}

}  // namespace

TEST_CASE("names: every value is found by its own name", "[core]") {
  check_names<AccumulationKind>(static_cast<int>(accumulator_kinds().size()),
                                find_accumulation_kind);
  check_names<ProductExponent>(2, find_product_exponent);
  check_names<HalfCExponent>(2, find_half_c_exponent);
  check_names<ZeroSign>(2, find_zero_sign);
  check_names<HalvesOrder>(2, find_halves_order);
  check_names<ScaleSource>(5, find_scale_source);
  check_names<ScaleRule>(25, find_scale_rule);
  check_names<ZeroAmax>(2, find_zero_amax);
  check_names<RoundingMode>(7, find_rounding_mode);
}

TEST_CASE("names: those of policies and specials", "[core]") {
  CHECK(to_string(OverflowPolicy::non_saturating) == "non_saturating");
  CHECK(to_string(InfinityPolicy::saturate) == "saturate");
  CHECK(to_string(SubnormalPolicy::raise_to_min_normal) == "raise_to_min_normal");
  CHECK(to_string(NanPolicy::signed_quiet) == "signed_quiet");
  CHECK(to_string(SpecialValues::fnuz) == "fnuz");
  CHECK(to_string(SpecialValues::none) == "none");
}

TEST_CASE("names: an unknown one is refused with those that there are", "[core]") {
  CHECK_THROWS_WITH(
      find_scale_source("past"),
      "source: expected one of current, delayed, ms_amp, calibration, momentum, got 'past'");
  CHECK_THROWS_WITH(find_accumulation_kind(""),
                    contains("kind: expected one of 17 names such as fused_dot_product"));
}
