// The instructions of the product on the tensor cores, and its launches.

#include <string>
#include <type_traits>

#include "check.cuh"
#include "gemm_launch.hpp"
#include "gemm_wgmma_kernel.cuh"

namespace fp8lab::cuda {
namespace {

#define FP8LAB_R16A "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define FP8LAB_R16B "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define FP8LAB_R16C "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define FP8LAB_R16D "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define FP8LAB_O4(d, i) "+f"((d)[i]), "+f"((d)[i + 1]), "+f"((d)[i + 2]), "+f"((d)[i + 3])
#define FP8LAB_O16(d, i) \
  FP8LAB_O4(d, i), FP8LAB_O4(d, i + 4), FP8LAB_O4(d, i + 8), FP8LAB_O4(d, i + 12)

// `keep` 0 starts from zero whatever the registers hold.
#define FP8LAB_WGMMA_N128(NAME, TERMS, TYPES, MAJOR)                                               \
  struct NAME {                                                                                    \
    static constexpr int kTerms = TERMS;                                                           \
    static __device__ void issue(float (&d)[kSums], std::uint64_t a, std::uint64_t b, int keep) {  \
      asm volatile(                                                                                \
          "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                             \
          "wgmma.mma_async.sync.aligned.m64n128k" #TERMS ".f32." TYPES " {" FP8LAB_R16A            \
          ", " FP8LAB_R16B ", " FP8LAB_R16C ", " FP8LAB_R16D "}, %64, %65, p, 1, 1" MAJOR ";\n}\n" \
          : FP8LAB_O16(d, 0), FP8LAB_O16(d, 16), FP8LAB_O16(d, 32), FP8LAB_O16(d, 48)              \
          : "l"(a), "l"(b), "r"(keep));                                                            \
    }                                                                                              \
  }

FP8LAB_WGMMA_N128(E4E4, 32, "e4m3.e4m3", "");
FP8LAB_WGMMA_N128(E5E5, 32, "e5m2.e5m2", "");
FP8LAB_WGMMA_N128(E4E5, 32, "e4m3.e5m2", "");
FP8LAB_WGMMA_N128(E5E4, 32, "e5m2.e4m3", "");
// Types of 16 bits name the operands' order in memory: K first in both.
FP8LAB_WGMMA_N128(Bf16, 16, "bf16.bf16", ", 0, 0");

template <typename Op, int kChunk, bool kPromoted>
void launch_kernel(const GemmArguments& g) {
  const auto kernel = multiply<Op, kChunk, kPromoted>;
  FP8LAB_CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
  const dim3 grid((g.n + kBlockColumns - 1) / kBlockColumns, (g.m + kBlockRows - 1) / kBlockRows);
  kernel<<<grid, kBlockThreads, kSharedBytes>>>(g);
  FP8LAB_CUDA_CHECK_LAUNCH("multiply");
  if (!g.scaled_at_end) return;
  finish_all<<<1024, 256>>>(g);
  FP8LAB_CUDA_CHECK_LAUNCH("finish_all");
}

// E4M3 has the intervals that are benchmarked at full length; the other pairs
// take every interval but multiples of a tile one step at a time.
template <typename Op>
void launch(const GemmArguments& g) {
  require(g.promotion_interval % Op::kTerms == 0, "promotion_interval",
          "a multiple of " + std::to_string(Op::kTerms), std::to_string(g.promotion_interval));
  if (g.promotion_interval == 0) return launch_kernel<Op, kSteps, false>(g);
  if (g.promotion_interval % (kSteps * Op::kTerms) == 0) return launch_kernel<Op, kSteps, true>(g);
  if constexpr (std::is_same_v<Op, E4E4>)
    if (g.promotion_interval % 64 == 0) return launch_kernel<Op, 2, true>(g);
  launch_kernel<Op, 1, true>(g);
}

}  // namespace

void launch_gemm_wgmma(const GemmArguments& g, FormatId a, FormatId b) {
  const auto is_fp8 = [](FormatId id) { return id == FormatId::e4m3fn || id == FormatId::e5m2; };
  if (a == FormatId::bf16 && b == FormatId::bf16) return launch<Bf16>(g);
  require(is_fp8(a) && is_fp8(b), "format", "e4m3fn or e5m2 for a and b, or bf16 for both",
          std::string(format(a).name) + " and " + std::string(format(b).name));
  if (a == FormatId::e4m3fn)
    b == FormatId::e4m3fn ? launch<E4E4>(g) : launch<E4E5>(g);
  else
    b == FormatId::e5m2 ? launch<E5E5>(g) : launch<E5E4>(g);
}

}  // namespace fp8lab::cuda
