// BFDOT and BFMMLA (FEAT_BF16), with FPCR as it is: its bit EBF is 0 unless a program sets it. They
// are written as assembly, which compilers take whether or not they have the intrinsics.

#if defined(__aarch64__)

#include <arm_neon.h>

#if defined(__linux__)
#include <sys/auxv.h>
#endif

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "fp8lab/core/machine.hpp"
#include "fp8lab/processor/instructions.hpp"

#if defined(__clang__)
#define FP8LAB_WITH_BF16 __attribute__((target("bf16")))
#else
#define FP8LAB_WITH_BF16 __attribute__((target("+bf16")))
#endif

namespace fp8lab {
namespace {

bool has_bf16() {
#if defined(__linux__)
  constexpr unsigned long kBf16 = 1UL << 14;  // HWCAP2_BF16
  return (getauxval(AT_HWCAP2) & kBf16) != 0;
#else
  return false;
#endif
}

FP8LAB_WITH_BF16 void bfdot(const std::uint16_t* a, const std::uint16_t* b, std::uint32_t* sums) {
  const uint16x8_t x = vld1q_u16(a);
  const uint16x8_t y = vld1q_u16(b);
  uint32x4_t c = vld1q_u32(sums);
  asm("bfdot %0.4s, %1.8h, %2.8h" : "+w"(c) : "w"(x), "w"(y));
  vst1q_u32(sums, c);
}

/// Two rows of a by two columns of b; independent outputs are those of the diagonal.
FP8LAB_WITH_BF16 void bfmmla(const std::uint16_t* a, const std::uint16_t* b, std::uint32_t* sums) {
  std::array<std::uint32_t, 4> all{sums[0], 0, 0, sums[1]};
  const uint16x8_t x = vld1q_u16(a);
  const uint16x8_t y = vld1q_u16(b);
  uint32x4_t c = vld1q_u32(all.data());
  asm("bfmmla %0.4s, %1.8h, %2.8h" : "+w"(c) : "w"(x), "w"(y));
  vst1q_u32(all.data(), c);
  sums[0] = all[0];
  sums[1] = all[3];
}

constexpr std::array kInstructions{CpuInstruction{"bfdot", "arm.bfdot", 2, 4, has_bf16, bfdot},
                                   CpuInstruction{"bfmmla", "arm.bfmmla", 4, 2, has_bf16, bfmmla}};

}  // namespace

std::span<const CpuInstruction> cpu_instructions() { return kInstructions; }

std::string processor_family() { return "aarch64, " + this_machine().cpu; }

}  // namespace fp8lab

#undef FP8LAB_WITH_BF16

#endif
