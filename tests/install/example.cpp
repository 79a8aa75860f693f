// What a user of the installed library writes first; the README shows it.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "fp8lab/gemm/gemm.hpp"

int main() {
  const std::vector<std::uint8_t> ones(32768, 0x38);  // 1.0 in E4M3
  fp8lab::GemmProblem problem;
  problem.model = fp8lab::find_instruction_model("sm90.wgmma.e4m3").accumulator;
  problem.a = fp8lab::CodeMatrix::row_major(fp8lab::FormatId::e4m3fn, ones, 1, 32768);
  problem.b = problem.a;
  float plain = 0.0F;
  fp8lab::gemm(problem, {&plain, 1});
  problem.promotion_interval = 128;
  float promoted = 0.0F;
  fp8lab::gemm(problem, {&promoted, 1});
  std::printf("32768 ones: %g without promotion, %g with\n", plain, promoted);
  return plain == 16384.0F && promoted == 32768.0F ? 0 : 1;
}
