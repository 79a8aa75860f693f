// The product on the tensor cores. A block of two warpgroups computes 128 x 128
// outputs; tiles of 128 bytes of K arrive in shared memory by cp.async, three
// stages deep, in the 128-byte swizzle.

#include <string>
#include <type_traits>

#include "check.cuh"
#include "gemm_launch.hpp"
#include "layout.hpp"
#include "wgmma_sync.cuh"

namespace fp8lab::cuda {
namespace {

constexpr int kBlockRows = 128;
constexpr int kBlockColumns = 128;
constexpr int kBlockThreads = 256;
constexpr int kStages = 3;
constexpr int kTileBytes = 128 * 128;
constexpr int kSharedBytes = kStages * 2 * kTileBytes + 1024;  // swizzled tiles start at 1024 n
constexpr int kSums = 64;
constexpr int kStepTerms = 32;

#define FP8LAB_R16A "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define FP8LAB_R16B "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define FP8LAB_R16C "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define FP8LAB_R16D "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define FP8LAB_O4(d, i) "+f"((d)[i]), "+f"((d)[i + 1]), "+f"((d)[i + 2]), "+f"((d)[i + 3])
#define FP8LAB_O16(d, i) \
  FP8LAB_O4(d, i), FP8LAB_O4(d, i + 4), FP8LAB_O4(d, i + 8), FP8LAB_O4(d, i + 12)

// `keep` 0 starts from zero whatever the registers hold.
#define FP8LAB_WGMMA_N128(NAME, TYPES)                                                            \
  struct NAME {                                                                                   \
    static __device__ void issue(float (&d)[kSums], std::uint64_t a, std::uint64_t b, int keep) { \
      asm volatile(                                                                               \
          "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                            \
          "wgmma.mma_async.sync.aligned.m64n128k32.f32." TYPES " {" FP8LAB_R16A ", " FP8LAB_R16B  \
          ", " FP8LAB_R16C ", " FP8LAB_R16D "}, %64, %65, p, 1, 1;\n}\n"                          \
          : FP8LAB_O16(d, 0), FP8LAB_O16(d, 16), FP8LAB_O16(d, 32), FP8LAB_O16(d, 48)             \
          : "l"(a), "l"(b), "r"(keep));                                                           \
    }                                                                                             \
  }

FP8LAB_WGMMA_N128(E4E4, "e4m3.e4m3");
FP8LAB_WGMMA_N128(E5E5, "e5m2.e5m2");
FP8LAB_WGMMA_N128(E4E5, "e4m3.e5m2");
FP8LAB_WGMMA_N128(E5E4, "e5m2.e4m3");

__device__ void copy_chunk(std::uint32_t to, const std::uint8_t* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(to), "l"(from) : "memory");
}

/// Starts the copy of one K tile of A and B into a stage.
__device__ void start_tile(const GemmArguments& g, int tile, std::uint32_t stage, int thread) {
  const std::size_t a_row = static_cast<std::size_t>(blockIdx.y) * kBlockRows;
  const std::size_t b_row = static_cast<std::size_t>(blockIdx.x) * kBlockColumns;
  for (int chunk = thread; chunk < kTileBytes / 16; chunk += kBlockThreads) {
    const int row = chunk / 8;
    const int byte = chunk % 8 * 16;
    const std::size_t from = static_cast<std::size_t>(tile) * 128 + byte;
    const std::uint32_t to = swizzled_offset(row, byte);
    copy_chunk(stage + to, g.a + (a_row + row) * g.row_bytes + from);
    copy_chunk(stage + kTileBytes + to, g.b + (b_row + row) * g.row_bytes + from);
  }
}

/// Where the inverse scales of a thread's rows and of the block's columns stand.
struct ScalePlaces {
  int row[2];
  const int* column;  ///< shared memory, [kBlockColumns]
};

/// Adds the partial sums of an interval that began at term k to the FP32 totals.
/// Rows and columns past the edge have zero sums and take the last scales.
__device__ void promote_all(const GemmArguments& g, const ScalePlaces& places, int first_column,
                            int k, const float (&sums)[kSums], float (&totals)[kSums]) {
  if (!g.scaled_along_k) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) totals[i] = canonical_nan(totals[i] + sums[i]);
    return;
  }
  const float* a_values = g.a_scales.values;
  const float* b_values = g.b_scales.values;
  const int a_at = k / g.a_scales.k_block;
  const int b_at = k / g.b_scales.k_block;
  float s_a[2];
#pragma unroll
  for (int half = 0; half < 2; ++half)
    s_a[half] = a_values == nullptr ? 1.0F : a_values[places.row[half] + a_at];
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    const int column = places.column[first_column + accumulator(0, i).column];
    const float s_b = b_values == nullptr ? 1.0F : b_values[column + b_at];
    totals[i] = scale_partial(g.order, sums[i], s_a[i / 2 % 2], s_b, totals[i]);
  }
}

/// kChunk steps run back to back: the promotion interval is a multiple of them.
/// Steps past K multiply zeros, as kernels fed by the copy engine do.
template <typename Op, int kChunk, bool kPromoted>
__global__ void __launch_bounds__(kBlockThreads, 1) multiply(const GemmArguments g) {
  extern __shared__ std::uint8_t raw_shared[];
  __shared__ int column_scales[kBlockColumns];
  const std::uint32_t shared = (shared_address(raw_shared) + 1023u) & ~1023u;
  const int thread = static_cast<int>(threadIdx.x);
  const int group = thread / 128;
  const Place corner = accumulator(thread % 128, 0);
  const int first_row = static_cast<int>(blockIdx.y) * kBlockRows + group * 64 + corner.row;
  const int block_column = static_cast<int>(blockIdx.x) * kBlockColumns;
  if (thread < kBlockColumns)
    column_scales[thread] =
        min(block_column + thread, g.n - 1) / g.b_scales.row_block * g.b_scales.columns;
  ScalePlaces places;
  places.column = column_scales;
#pragma unroll
  for (int half = 0; half < 2; ++half)
    places.row[half] =
        min(first_row + 8 * half, g.m - 1) / g.a_scales.row_block * g.a_scales.columns;

  float sums[kSums];
  float totals[kPromoted ? kSums : 1];
  const bool from_c = g.c != nullptr && !g.scaled_at_end;
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    const Place at = accumulator(0, i);
    const int row = first_row + at.row;
    const int column = block_column + corner.column + at.column;
    const float start = from_c && row < g.m && column < g.n ? g.c_at(row, column) : 0.0F;
    if constexpr (kPromoted)
      totals[i] = start;
    else
      sums[i] = start;
  }

  const int tiles = (g.k + 127) / 128;
  for (int tile = 0; tile < kStages - 1; ++tile) {
    if (tile < tiles) start_tile(g, tile, shared + tile * 2 * kTileBytes, thread);
    asm volatile("cp.async.commit_group;\n" ::: "memory");
  }
  for (int tile = 0; tile < tiles; ++tile) {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(kStages - 2) : "memory");
    shared_writes_before_wgmma();
    __syncthreads();
    const int next = tile + kStages - 1;
    if (next < tiles) start_tile(g, next, shared + next % kStages * 2 * kTileBytes, thread);
    asm volatile("cp.async.commit_group;\n" ::: "memory");

    const std::uint32_t stage = shared + tile % kStages * 2 * kTileBytes;
    const std::uint32_t a_tile = stage + group * (kTileBytes / 2);
    const std::uint32_t b_tile = stage + kTileBytes;
#pragma unroll 1
    for (int first = 0; first < 4; first += kChunk) {
      const int k = tile * 128 + first * kStepTerms;
      const bool restarts = kPromoted ? k % g.promotion_interval == 0 : k == 0 && !from_c;
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < kChunk; ++step)
        Op::issue(sums, swizzled_descriptor(a_tile, first + step),
                  swizzled_descriptor(b_tile, first + step), step == 0 && restarts ? 0 : 1);
      wgmma_commit();
      wgmma_wait();
#pragma unroll
      for (int i = 0; i < kSums; ++i) asm volatile("" : "+f"(sums[i])::"memory");
      if constexpr (kPromoted) {
        const int end = k + kChunk * kStepTerms;
        const bool last = tile + 1 == tiles && first + kChunk == 4;
        const int begin = (end - 1) / g.promotion_interval * g.promotion_interval;
        // Intervals that begin past K hold nothing and have no scales.
        if ((end % g.promotion_interval == 0 || last) && begin < g.k)
          promote_all(g, places, corner.column, begin, sums, totals);
      }
    }
  }

#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    const Place at = accumulator(0, i);
    const int row = first_row + at.row;
    const int column = block_column + corner.column + at.column;
    if (row >= g.m || column >= g.n) continue;
    float value = 0.0F;
    if constexpr (kPromoted)
      value = totals[i];
    else
      value = sums[i];
    g.d[static_cast<std::size_t>(row) * g.n + column] = value;
  }
}

/// Scales that do not change along K, and c with them.
__global__ void finish_all(const GemmArguments g) {
  const std::size_t size = static_cast<std::size_t>(g.m) * g.n;
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < size;
       i += stride)
    g.d[i] = finish(g, g.d[i], static_cast<int>(i / g.n), static_cast<int>(i % g.n));
}

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
// take every interval but multiples of 128 one step at a time.
template <typename Op>
void launch(const GemmArguments& g) {
  if (g.promotion_interval == 0) return launch_kernel<Op, 4, false>(g);
  if (g.promotion_interval % 128 == 0) return launch_kernel<Op, 4, true>(g);
  if constexpr (std::is_same_v<Op, E4E4>)
    if (g.promotion_interval % 64 == 0) return launch_kernel<Op, 2, true>(g);
  launch_kernel<Op, 1, true>(g);
}

}  // namespace

void launch_gemm_wgmma(const GemmArguments& g, FormatId a, FormatId b) {
  const auto is_fp8 = [](FormatId id) { return id == FormatId::e4m3fn || id == FormatId::e5m2; };
  require(is_fp8(a) && is_fp8(b), "format", "e4m3fn or e5m2 for a and b",
          std::string(format(a).name) + " and " + std::string(format(b).name));
  require(g.promotion_interval % kStepTerms == 0, "promotion_interval", "a multiple of 32",
          std::to_string(g.promotion_interval));
  if (a == FormatId::e4m3fn)
    b == FormatId::e4m3fn ? launch<E4E4>(g) : launch<E4E5>(g);
  else
    b == FormatId::e5m2 ? launch<E5E5>(g) : launch<E5E4>(g);
}

}  // namespace fp8lab::cuda
