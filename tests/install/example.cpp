// A user of the installed library: products whose results are known, and the check in docs/cpp.md
// of outputs that are right, wrong, and right by no merit.
#include <cstdint>
#include <cstdio>
#include <span>
#include <vector>

#include "fp8lab/gemm/gemm.hpp"

bool check_kernel(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b,
                  std::span<const float> d, std::int64_t m, std::int64_t n, std::int64_t k);

namespace {

std::vector<float> hopper(const std::vector<std::uint8_t>& a, const std::vector<std::uint8_t>& b,
                          std::int64_t m, std::int64_t k, std::int64_t promotion_interval) {
  fp8lab::GemmProblem problem;
  problem.model = fp8lab::find_instruction_model("sm90.wgmma.e4m3").accumulator;
  problem.a = fp8lab::CodeMatrix::row_major(fp8lab::FormatId::e4m3fn, a, m, k);
  problem.b = fp8lab::CodeMatrix::row_major(fp8lab::FormatId::e4m3fn, b, m, k);
  problem.promotion_interval = promotion_interval;
  std::vector<float> d(static_cast<std::size_t>(m * m));
  fp8lab::gemm(problem, d);
  return d;
}

int failures = 0;

void expect(const char* what, bool holds) {
  if (!holds) std::printf("FAILED: %s\n", what);
  failures += holds ? 0 : 1;
}

}  // namespace

int main() {
  const std::vector<std::uint8_t> ones(32768, 0x38);  // 1.0 in E4M3
  expect("32768 ones give 16384", hopper(ones, ones, 1, 32768, 0).front() == 16384.0F);
  expect("32768 with promotion", hopper(ones, ones, 1, 32768, 128).front() == 32768.0F);

  constexpr std::int64_t kRows = 8;
  constexpr std::int64_t kTerms = 512;
  std::vector<std::uint8_t> codes_a(kRows * kTerms);
  std::vector<std::uint8_t> codes_b(kRows * kTerms);
  std::uint32_t state = 1;  // any codes but NaN
  for (std::vector<std::uint8_t>* codes : {&codes_a, &codes_b})
    for (std::uint8_t& code : *codes) {
      state = state * 1664525U + 1013904223U;
      code = static_cast<std::uint8_t>(state >> 24 & 0xbfU);
    }
  const auto check = [&](const std::vector<float>& d) {
    return check_kernel(codes_a, codes_b, d, kRows, kRows, kTerms);
  };
  expect("the right output passes", check(hopper(codes_a, codes_b, kRows, kTerms, 128)));
  expect("one without promotion does not", !check(hopper(codes_a, codes_b, kRows, kTerms, 0)));
  codes_a.assign(codes_a.size(), 0);
  expect("zeros prove nothing", !check(std::vector<float>(kRows * kRows)));
  return failures == 0 ? 0 : 1;
}
