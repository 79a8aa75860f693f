#include <optional>

#include "catch.hpp"
#include "gemm/problems.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

// CI's billion: sizes near what users run, all targets and thread counts
// against each other and the reference.
TEST_CASE("a billion random products have one set of bits", "[gemm][slow]") {
  std::int64_t products = 0;
  std::int64_t against_reference = 0;
  std::uint64_t seed = 20000;
  for (const std::string_view name :
       {"sm90.wgmma.e4m3", "sm90.wgmma.e5m2", "sm89.mma.e4m3", "sm90.wgmma.e4m3.e5m2",
        "sm100.tcgen05.e4m3", "sm100.mma.e4m3", "sm100.mma.e5m2", "sm90.wgmma.e4m3.f16",
        "sm90.mma.bf16", "sm90.mma.f16.f16", "sm90.mma.e4m3.f16", "exact32", "exact", "fp32",
        "sequential14.rne", "sequential14.rz", "seed.listing"}) {
    for (const Data data : {Data::normal, Data::wide, Data::finite}) {
      ++seed;
      const Shape shape{static_cast<std::int64_t>(110 + seed % 7),
                        256 + static_cast<std::int64_t>(seed % 67),
                        512 + static_cast<std::int64_t>(seed % 45)};
      Operands operands(find_instruction_model(name), shape, data, Start::none, seed);
      GemmProblem& p = operands.problem;
      p.promotion_interval = seed % 2 == 0 ? 0 : 128;
      const auto size = static_cast<std::size_t>(shape.m * shape.n);
      INFO(name << " data " << static_cast<int>(data) << " seed " << seed);
      std::optional<std::vector<float>> first;
      for (const Target target : available_targets()) {
        if (target == Target::scalar) continue;
        for (const int threads : {1, 2}) {
          std::vector<float> got(size);
          gemm_with_target(p, got, target, threads);
          products += shape.m * shape.n * shape.k;
          INFO(to_string(target) << ", " << threads << " threads");
          if (!first)
            first = got;
          else
            REQUIRE(compare(p, *first, got) == "equal");
        }
      }
      if (!first) continue;
      std::vector<float> expected(size);
      gemm_reference(p, expected, 2);
      against_reference += shape.m * shape.n * shape.k;
      REQUIRE(compare(p, expected, *first) == "equal");
    }
  }
  INFO(products << " products, " << against_reference << " of them against the reference");
  if (available_targets().size() > 1) CHECK(products >= 1'000'000'000);
}
