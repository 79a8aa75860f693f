// The vendors experiment: its split of errors, codes against a search over all codes, and OCP's
// grid in FNUZ codes.

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "catch.hpp"
#include "common/tensors.hpp"
#include "experiments/quick_run.hpp"
#include "fp8lab/core/error.hpp"
#include "message_of.hpp"
#include "vendors/chips.hpp"

using namespace fp8lab;
using namespace fp8lab::experiments;

namespace {

Tensors normal_tensors(std::size_t m, std::size_t n, std::size_t k, std::uint64_t seed) {
  return {m, n, k, normal({seed, "a"}, m * k, 1.0), normal({seed, "b"}, n * k, 1.0)};
}

/// The value of an E4M3FNUZ code by its definition: bias 8, -0 is NaN.
double e4m3fnuz_value(int code) {
  const int field = (code >> 3) & 15;
  const int fraction = code & 7;
  const double magnitude =
      field == 0 ? std::ldexp(fraction, -7 - 3) : std::ldexp(8 + fraction, field - 8 - 3);
  return code >= 128 ? -magnitude : magnitude;
}

/// The code nearest to x, ties to the even one, by trying all.
int nearest_e4m3fnuz(double x) {
  int best = 0;
  for (int code = 1; code < 256; ++code) {
    if (code == 128) continue;
    const double distance = std::abs(e4m3fnuz_value(code) - x);
    const double least = std::abs(e4m3fnuz_value(best) - x);
    if (distance < least || (distance == least && code % 2 == 0 && best % 2 == 1)) best = code;
  }
  return best;
}

}  // namespace

TEST_CASE("vendors: the codes of gfx942 are the nearest ones of E4M3FNUZ", "[experiments]") {
  const std::vector<float> x = normal({7, "vendors codes"}, 300, 1.0);
  const Chip chip = make_chip("gfx942.mfma.fp8", 0);
  REQUIRE(chip.a.largest == 240.0);
  for (const Coding& coding : {chip.a, aligned_with_ocp(chip).a}) {
    const Quantized q = quantize_for(coding, x, 3, 100, kPerTensor);
    float amax = 0.0F;
    for (const float value : x) amax = std::max(amax, std::abs(value));
    const float scale = static_cast<float>(coding.largest) / amax;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double scaled = static_cast<double>(x[i] * scale);
      INFO("largest " << coding.largest << ", element " << i << " scaled " << scaled);
      CHECK(static_cast<int>(q.codes[i]) == nearest_e4m3fnuz(scaled));
    }
  }
}

TEST_CASE("vendors: FNUZ codes under half the OCP scale stand for the same numbers",
          "[experiments]") {
  for (const auto& [amd, nvidia, end] :
       {std::tuple("gfx942.mfma.fp8", "sm90.wgmma.e4m3", 224.0),
        std::tuple("gfx942.mfma.bf8", "sm90.wgmma.e5m2", 28672.0)}) {
    INFO(amd);
    const Chip own = make_chip(amd, 0);
    const Chip aligned = aligned_with_ocp(own);
    CHECK(aligned.a.largest == end);
    const Chip ocp = make_chip(nvidia, 0);
    CHECK(reads_fnuz(own));
    CHECK_FALSE(reads_fnuz(ocp));
    const Tensors t = normal_tensors(6, 5, 300, 3);
    const Quantized x = quantize_for(aligned.a, t.a, t.m, t.k, kPerTensor);
    CHECK(x.values == quantize_for(ocp.a, t.a, t.m, t.k, kPerTensor).values);
    const Measured m = measure_chips(t, {own, aligned, ocp}, kPerTensor);
    CHECK(m.chips[1].format == m.chips[2].format);
    CHECK(m.differences[2].differ_format == 0.0);
  }
  // The range of E4M3FNUZ itself ends elsewhere between two powers of two: another grid.
  const Measured m =
      measure_chips(normal_tensors(6, 5, 300, 3),
                    {make_chip("gfx942.mfma.fp8", 0), make_chip("sm90.wgmma.e4m3", 0)}, kPerTensor);
  CHECK(m.chips[0].format != m.chips[1].format);
  CHECK(m.differences[0].differ_format > 0.5);
}

TEST_CASE("vendors: the parts of an error make up the whole", "[experiments]") {
  const std::vector<Chip> chips{make_chip("gfx942.mfma.fp8", 0), make_chip("sm89.mma.e4m3", 0),
                                make_chip("sm90.wgmma.e4m3", 128),
                                make_chip("sm100.tcgen05.e4m3", 0), make_chip("exact", 0)};
  for (const ScaleBlock block : {kPerTensor, ScaleBlock{1, 0}}) {
    const Tensors t{8, 8, 4096, uniform({5, "a"}, std::size_t{8} * 4096, 0.0, 1.0),
                    uniform({5, "b"}, std::size_t{8} * 4096, 0.0, 1.0)};
    const Measured m = measure_chips(t, chips, block);
    for (std::size_t c = 0; c < chips.size(); ++c) {
      INFO(chips[c].label);
      const ChipErrors& e = m.chips[c];
      CHECK(e.total <= (e.format + e.accumulator) * (1.0 + 1e-12));
      CHECK(e.total >= std::abs(e.format - e.accumulator) * (1.0 - 1e-12));
      CHECK(e.format > 0.0);
    }
    // NVIDIA's chips share codes; an exact sum has no part of its own.
    CHECK(m.chips[1].format == m.chips[2].format);
    CHECK(m.chips[1].format == m.chips[4].format);
    CHECK(m.chips[4].accumulator == 0.0);
    CHECK(m.chips[4].total == m.chips[4].format);
    CHECK(m.chips[4].accumulator_share() == 0.0);
    // Ada cuts with each step, toward zero; promoted sums are short.
    CHECK(m.chips[1].accumulator_bias < 0.0);
    CHECK(m.chips[1].accumulator > 4.0 * m.chips[2].accumulator);
    CHECK(m.chips[2].accumulator > m.chips[3].accumulator);
  }
}

TEST_CASE("vendors: a chip is measured as if alone, whatever codes its neighbours share with it",
          "[experiments]") {
  // Codings of A and of B in all pairs: whole and aligned, FNUZ and OCP.
  std::vector<Chip> chips;
  for (const char* name :
       {"gfx942.mfma.fp8", "gfx942.mfma.fp8.bf8", "gfx942.mfma.bf8.fp8", "gfx942.mfma.bf8"}) {
    chips.push_back(make_chip(name, 0));
    chips.push_back(aligned_with_ocp(chips.back()));
  }
  for (const char* name : {"sm90.wgmma.e4m3", "sm90.wgmma.e5m2"})
    for (const std::int64_t interval : {0, 64}) chips.push_back(make_chip(name, interval));
  Chip mixed = make_chip("sm90.wgmma.e4m3", 0);
  mixed.b = make_chip("sm90.wgmma.e5m2", 0).b;
  chips.push_back(mixed);
  std::swap(mixed.a, mixed.b);
  chips.push_back(mixed);
  const Tensors t = normal_tensors(3, 5, 200, 9);
  const auto figures = [](const ChipErrors& e) {
    return std::array{e.total, e.format, e.accumulator, e.bias, e.accumulator_bias};
  };
  const auto difference = [](const ChipDifference& d) {
    return std::array{d.differ, d.differ_format, d.largest};
  };
  for (const ScaleBlock block : {kPerTensor, ScaleBlock{1, 0}}) {
    const Measured together = measure_chips(t, chips, block);
    REQUIRE(together.chips.size() == chips.size());
    REQUIRE(together.differences.size() == chips.size() * (chips.size() - 1) / 2);
    std::size_t pair = 0;
    for (std::size_t x = 0; x < chips.size(); ++x)
      for (std::size_t y = x + 1; y < chips.size(); ++y) {
        CAPTURE(x, y, chips[x].label, chips[y].label);
        const Measured alone = measure_chips(t, {chips[y], chips[x]}, block);
        CHECK(figures(together.chips[x]) == figures(alone.chips[1]));
        CHECK(figures(together.chips[y]) == figures(alone.chips[0]));
        CHECK(difference(together.differences[pair++]) == difference(alone.differences[0]));
      }
  }
}

TEST_CASE("vendors: the same bits for any thread count, and a row for each chip and pair",
          "[experiments]") {
  const std::vector<std::string> changes{"k=64,256", "rows=4", "columns=3", "repeats=2"};
  const Results one = run_quick("vendors", 1, changes);
  CHECK(all_csv(one) == all_csv(run_quick("vendors", 3, changes)));
  // 4 chips, one of them aligned too, one promoted too: 6, and 15 pairs; 4 distributions, 2 K.
  CHECK(table_named(one, "errors").rows().size() == 6 * 8);
  CHECK(table_named(one, "pairs").rows().size() == 15 * 8);
  CHECK(table_named(one, "error_repeats").rows().size() == 6 * 8 * 2);
  CHECK(table_named(one, "pair_repeats").rows().size() == 15 * 8 * 2);
  CHECK(one.findings.size() == 17);
  CHECK(one.plots.size() == 8);
  // The second chip is the aligned one; the third is Ada: equal codes, so equal exact sums.
  for (const auto& row : table_named(one, "pairs").rows())
    if (std::get<std::string>(row[2]) == "gfx942.mfma.fp8 to 224") {
      INFO(std::get<std::string>(row[3]));
      CHECK(std::get<double>(row[7]) == 0.0);
    }
}

TEST_CASE("vendors: reads other instructions, and refuses what it does not know", "[experiments]") {
  const std::vector<std::string> small{"k=64",
                                       "rows=2",
                                       "columns=2",
                                       "repeats=1",
                                       "scaling=row",
                                       "chips=gfx942.mfma.bf8,gfx942.mfma.fp8.bf8,sm89.mma.e5m2",
                                       "promoted_chips=[]"};
  const Results results = run_quick("vendors", 1, small);
  const Table& errors = table_named(results, "errors");
  CHECK(errors.rows().size() == 5 * 4);
  CHECK(std::get<std::string>(errors.rows()[3][2]) == "gfx942.mfma.fp8.bf8 to 224 x 28672");
  CHECK(std::get<std::string>(errors.rows()[3][3]) == "e4m3fnuz x e5m2fnuz");
  const auto refusal = [](const std::string& change) {
    return test::message_of(
        [&] {
          run_quick("vendors", 1, {"k=64", "rows=2", "columns=2", "repeats=1", change});
        },
        "nothing refused");
  };
  CHECK_THAT(refusal("chips=sm90.wgmma.bf16"),
             contains("8-bit floating point") && contains("sm90.wgmma.bf16, which reads bf16"));
  CHECK_THAT(refusal("distributions=cauchy"), contains("'cauchy'"));
  CHECK_THAT(refusal("scaling=block"), contains("'block'"));
  CHECK_THAT(refusal("operands=f16"), contains("'f16'"));
  CHECK_THAT(refusal("promotion_interval=100"), contains("100"));
}
