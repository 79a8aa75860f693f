#pragma once
// The product on the tensor cores for one pair of inputs. Each pair is a source of its own: its
// kernels take nvcc a minute and more.

#include <string>

#include "check.cuh"
#include "gemm_wgmma.hpp"
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

template <typename Op, int kChunk, bool kPromoted>
void launch_kernel(const GemmArguments& g) {
  const auto kernel = multiply<Op, kChunk, kPromoted>;
  FP8LAB_CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
  const dim3 grid((g.n + kBlockColumns - 1) / kBlockColumns, (g.m + kBlockRows - 1) / kBlockRows);
  kernel<<<grid, kBlockThreads, kSharedBytes>>>(g);
  FP8LAB_CUDA_CHECK_LAUNCH("multiply");
}

// `kHalfTiles`: whether intervals of two steps, which are benchmarked for E4M3, have a kernel of
// their own. Without it every interval that is no multiple of a tile is multiplied one step at a
// time.
template <typename Op, bool kHalfTiles>
void launch_intervals(const GemmArguments& g) {
  require(g.promotion_interval % Op::kTerms == 0, "promotion_interval",
          "a multiple of " + std::to_string(Op::kTerms), std::to_string(g.promotion_interval));
  if (g.promotion_interval == 0) return launch_kernel<Op, kSteps, false>(g);
  if (g.promotion_interval % (kSteps * Op::kTerms) == 0) return launch_kernel<Op, kSteps, true>(g);
  if constexpr (kHalfTiles)
    if (g.promotion_interval % 64 == 0) return launch_kernel<Op, 2, true>(g);
  launch_kernel<Op, 1, true>(g);
}

}  // namespace
}  // namespace fp8lab::cuda
