#include "fp8lab/verify/gates.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"

using namespace fp8lab;

namespace {

std::size_t index_of(std::string_view name) {
  return static_cast<std::size_t>(&find_gate(name) - gates().data());
}

bool passes(std::string_view name, const CodeComparison& comparison) {
  return gate_passes(index_of(name), comparison);
}

/// Whether one pair of binary32 values passes.
bool close(std::string_view name, float reference, float output) {
  const auto bytes = [](const float& x) { return std::as_bytes(std::span(&x, 1)); };
  return passes(name, compare_codes(format(FormatId::f32), bytes(reference), bytes(output),
                                    {.tolerances = gate_tolerances(FormatId::f32)}));
}

}  // namespace

TEST_CASE("gates of shipped tests pass below their limits and fail above", "[verify]") {
  const double little = 1e-6;
  for (const double sign : {-1.0, 1.0}) {
    CodeComparison c;
    c.values.calc_diff = 1e-3 + sign * little;
    CHECK(passes("deepgemm", c) == (sign < 0.0));
    c.mean_absolute_relative = 1e-3 + sign * little;
    CHECK(passes("vllm.block_fp8", c) == (sign < 0.0));
    c.values.cosine = 0.99 + sign * little;
    CHECK(passes("flashinfer.bmm", c) == (sign > 0.0));
  }
  CodeComparison at;
  at.values.calc_diff = 1e-3;
  CHECK_FALSE(passes("deepgemm", at));
  at.mean_absolute_relative = 1e-3;
  CHECK_FALSE(passes("vllm.block_fp8", at));
  at.values.cosine = 0.99;
  CHECK_FALSE(passes("flashinfer.bmm", at));
}

TEST_CASE("closeness is |y - x| <= atol + rtol |x|, x being the reference", "[verify]") {
  struct Bound {
    const char* gate;
    double relative;
    double absolute;
  };
  for (const Bound& bound :
       {Bound{"vllm.scaled_mm", 0.5, 0.15}, Bound{"transformer_engine", 0.125, 0.0675},
        Bound{"torchao", 2e-3, 2e-3}, Bound{"flashinfer.groupwise", 1e-2, 1e-2}})
    for (const float x : {0.0F, 3.0F, -700.0F}) {
      const double most = bound.absolute + bound.relative * std::abs(double{x});
      INFO(bound.gate << ", reference " << x << ", at most " << most << " away");
      for (const double sign : {-1.0, 1.0}) {
        CHECK(close(bound.gate, x, static_cast<float>(x + sign * 0.999 * most)));
        CHECK_FALSE(close(bound.gate, x, static_cast<float>(x + sign * 1.001 * most)));
      }
    }
}

TEST_CASE("FP16 and BF16 outputs have torchao's wider tolerance", "[verify]") {
  for (const auto& [output, expected] :
       {std::pair{FormatId::bf16, 7e-2}, {FormatId::f16, 7e-2}, {FormatId::f32, 2e-3}}) {
    INFO(format(output).name);
    const Tolerance tolerance = gate_tolerances(output)[index_of("torchao")];
    CHECK(tolerance.relative == expected);
    CHECK(tolerance.absolute == expected);
  }
}

TEST_CASE("no gate passes a NaN against a number", "[verify]") {
  CodeComparison c;
  c.values.cosine = 1.0;
  c.far.assign(gates().size(), 0);
  for (std::size_t i = 0; i < gates().size(); ++i) {
    INFO(gates()[i].name);
    c.values.non_finite_mismatches = 0;
    CHECK(gate_passes(i, c));
    c.values.non_finite_mismatches = 1;
    CHECK_FALSE(gate_passes(i, c));
  }
}

TEST_CASE("every gate passes equal outputs without a finite number", "[verify]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const Gate& gate : gates()) {
    INFO(gate.name);
    CHECK(close(gate.name, nan, nan));
    CHECK(close(gate.name, nan, -nan));
    CHECK(close(gate.name, -infinity, -infinity));
    CHECK_FALSE(close(gate.name, infinity, -infinity));
  }
}

TEST_CASE("unknown gates are named with the known ones", "[verify]") {
  CHECK_THROWS_WITH(find_gate("deepgem"), contains("deepgem") && contains("vllm.block_fp8"));
}
