#include "fp8lab/gemm/backend.hpp"

#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"

using namespace fp8lab;

TEST_CASE("a chosen backend runs the products, the emulator unless one is chosen", "[gemm]") {
  const std::vector<std::uint8_t> ones(64, 0x38);
  GemmProblem problem;
  problem.a = CodeMatrix::row_major(FormatId::e4m3fn, ones, 2, 32);
  problem.b = CodeMatrix::row_major(FormatId::e4m3fn, ones, 2, 32);
  std::vector<float> d(4);
  gemm_on_backend(problem, d);
  CHECK(d == std::vector<float>(4, 32.0F));

  add_gemm_backend("sevens", [](const GemmProblem&, std::span<float> out, int threads) {
    std::ranges::fill(out, 7.0F + static_cast<float>(threads));
  });
  select_gemm_backend("sevens");
  gemm_on_backend(problem, d, 2);
  CHECK(d == std::vector<float>(4, 9.0F));
  CHECK_THROWS_WITH(select_gemm_backend("eights"), contains("one of cpu, sevens, got 'eights'"));

  select_gemm_backend("cpu");
  gemm_on_backend(problem, d);
  CHECK(d == std::vector<float>(4, 32.0F));
}
