#pragma once
// The kernels of the product without tensor cores, apart from their launch so
// that a test can run them thread by thread on the host. FP8 with few alignment
// bits goes by binary32 FMAs (see emulated_core.hpp) over tiles of 64 x 64
// outputs; every other model, and every step that holds a NaN, an infinity or
// a huge accumulator, by integers.

#if defined(__CUDACC__)
#include <cuda_fp16.h>
#endif

#include <climits>

#include "device_load.cuh"
#include "gemm_arguments.hpp"

namespace fp8lab::cuda {

constexpr int kTileSize = 64;
constexpr int kThreads = 128;
constexpr int kRows = 8;  // outputs of a thread: 8 rows by 4 columns
constexpr int kColumns = 4;
constexpr int kMaxTerms = 32;
constexpr int kZeroExponent = -1000;  // of a zero operand: below every real sum

/// Two exponents side by side. Hopper adds and takes the maximum of pairs of 16-bit
/// integers in one instruction; before it, FP16 holds these integers exactly.
struct ExponentPair {
  std::uint32_t bits;

  static __device__ std::uint32_t encode(int exponent) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    return static_cast<std::uint32_t>(exponent) & 0xffffu;
#else
    return __half_as_ushort(__int2half_rn(exponent));
#endif
  }
  static __device__ int decode(std::uint32_t half) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    return static_cast<std::int16_t>(half & 0xffffu);
#else
    return __half2int_rn(__ushort_as_half(static_cast<unsigned short>(half & 0xffffu)));
#endif
  }
  static __device__ ExponentPair lowest() {
    const std::uint32_t low = encode(2 * kZeroExponent);
    return {low | (low << 16)};
  }
  /// max(*this, a + b) in both halves.
  __device__ void raise(std::uint32_t a, std::uint32_t b) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    bits = __viaddmax_s16x2(a, b, bits);
#else
    const auto pair = [](std::uint32_t x) { return *reinterpret_cast<const __half2*>(&x); };
    const __half2 raised = __hmax2(__hadd2(pair(a), pair(b)), pair(bits));
    bits = *reinterpret_cast<const std::uint32_t*>(&raised);
#endif
  }
};

/// One step of a tile: operands split by sign, [term][row or column].
struct alignas(16) StepTile {
  float a_positive[kMaxTerms][kTileSize];
  float a_negative[kMaxTerms][kTileSize];
  float b_positive[kMaxTerms][kTileSize];
  float b_negative[kMaxTerms][kTileSize];
  std::uint32_t a_exponent[kMaxTerms][kTileSize];  // the same exponent in both halves
  std::uint16_t b_exponent[kMaxTerms][kTileSize];
};

struct TileFormats {
  EmulatedFormat a;
  EmulatedFormat b;
};

/// The magnitude of an FP8 code: its bits moved into binary32, and the bias mended.
__device__ float fp8_magnitude(const EmulatedFormat& f, std::uint32_t code) {
  const std::uint32_t moved = (code & 0x7fu) << (23 - f.mantissa_bits);
  return float_of(moved) * float_of(static_cast<std::uint32_t>(254 - f.bias) << 23);
}

__device__ int fp8_exponent(const EmulatedFormat& f, std::uint32_t code) {
  const int field = static_cast<int>((code & 0x7fu) >> f.mantissa_bits);
  if ((code & 0x7fu) == 0) return kZeroExponent;
  return (field == 0 ? 1 : field) - f.bias;
}

__device__ bool fp8_is_special(const EmulatedFormat& f, std::uint32_t code) {
  return f.has_infinity ? (code & 0x7fu) >= 0x7cu : (code & 0x7fu) == 0x7fu;
}

__device__ std::uint32_t four_codes(const std::uint8_t* row, int k) {
  return *reinterpret_cast<const std::uint32_t*>(row + k);
}

/// Splits one step of A and B into shared memory; true if this thread saw a
/// special code. Terms past K are the zeros of the padding.
__device__ bool load_step(const GemmArguments& g, const TileFormats& formats, int terms, int k,
                          StepTile& tile) {
  const std::size_t a_row = static_cast<std::size_t>(blockIdx.y) * kTileSize;
  const std::size_t b_row = static_cast<std::size_t>(blockIdx.x) * kTileSize;
  bool special = false;
  // Neighbouring threads take neighbouring rows, so that shared memory is
  // written without conflicts.
  for (int i = static_cast<int>(threadIdx.x); i < terms / 4 * kTileSize; i += kThreads) {
    const int row = i % kTileSize;
    const int first = i / kTileSize * 4;
    const std::uint32_t a_codes = four_codes(g.a + (a_row + row) * g.row_bytes, k + first);
    const std::uint32_t b_codes = four_codes(g.b + (b_row + row) * g.row_bytes, k + first);
    FP8LAB_UNROLL
    for (int byte = 0; byte < 4; ++byte) {
      const std::uint32_t a = a_codes >> (8 * byte);
      const std::uint32_t b = b_codes >> (8 * byte);
      const int term = first + byte;
      const float a_magnitude = fp8_magnitude(formats.a, a);
      const float b_magnitude = fp8_magnitude(formats.b, b);
      tile.a_positive[term][row] = (a & 0x80u) != 0 ? 0.0F : a_magnitude;
      tile.a_negative[term][row] = (a & 0x80u) != 0 ? a_magnitude : 0.0F;
      tile.b_positive[term][row] = (b & 0x80u) != 0 ? 0.0F : b_magnitude;
      tile.b_negative[term][row] = (b & 0x80u) != 0 ? b_magnitude : 0.0F;
      const std::uint32_t exponent = ExponentPair::encode(fp8_exponent(formats.a, a));
      tile.a_exponent[term][row] = exponent | (exponent << 16);
      tile.b_exponent[term][row] =
          static_cast<std::uint16_t>(ExponentPair::encode(fp8_exponent(formats.b, b)));
      special |= fp8_is_special(formats.a, a) || fp8_is_special(formats.b, b);
    }
  }
  return special;
}

/// The largest product exponent of each output.
__device__ void largest_exponents(const StepTile& tile, int terms, int row, int column,
                                  int (&top)[kRows][kColumns]) {
  ExponentPair pairs[kRows][kColumns / 2];
  FP8LAB_UNROLL
  for (int i = 0; i < kRows; ++i) FP8LAB_UNROLL
  for (int j = 0; j < kColumns / 2; ++j) pairs[i][j] = ExponentPair::lowest();
  for (int term = 0; term < terms; ++term) {
    const uint2 b = *reinterpret_cast<const uint2*>(&tile.b_exponent[term][column]);
    FP8LAB_UNROLL
    for (int i = 0; i < kRows; i += 4) {
      const uint4 a = *reinterpret_cast<const uint4*>(&tile.a_exponent[term][row + i]);
      const std::uint32_t a_words[4] = {a.x, a.y, a.z, a.w};
      FP8LAB_UNROLL
      for (int r = 0; r < 4; ++r) {
        pairs[i + r][0].raise(a_words[r], b.x);
        pairs[i + r][1].raise(a_words[r], b.y);
      }
    }
  }
  FP8LAB_UNROLL
  for (int i = 0; i < kRows; ++i) FP8LAB_UNROLL
  for (int j = 0; j < kColumns; ++j)
    top[i][j] = ExponentPair::decode(pairs[i][j / 2].bits >> (16 * (j % 2)));
}

/// The products of one step, cut and summed: all of them, and the positive ones.
__device__ void add_products(const StepTile& tile, int terms, int row, int column,
                             float (&all)[kRows][kColumns], float (&positive)[kRows][kColumns]) {
  for (int term = 0; term < terms; ++term) {
    const float4 bp = *reinterpret_cast<const float4*>(&tile.b_positive[term][column]);
    const float4 bn = *reinterpret_cast<const float4*>(&tile.b_negative[term][column]);
    const float b_positive[4] = {bp.x, bp.y, bp.z, bp.w};
    const float b_negative[4] = {bn.x, bn.y, bn.z, bn.w};
    FP8LAB_UNROLL
    for (int i = 0; i < kRows; i += 4) {
      const float4 ap = *reinterpret_cast<const float4*>(&tile.a_positive[term][row + i]);
      const float4 an = *reinterpret_cast<const float4*>(&tile.a_negative[term][row + i]);
      const float a_positive[4] = {ap.x, ap.y, ap.z, ap.w};
      const float a_negative[4] = {an.x, an.y, an.z, an.w};
      FP8LAB_UNROLL
      for (int r = 0; r < 4; ++r) FP8LAB_UNROLL
      for (int j = 0; j < kColumns; ++j) {
        FmaAccumulator sum(all[i + r][j], positive[i + r][j]);
        sum.add({a_positive[r] + a_negative[r], a_positive[r], a_negative[r]},
                {b_positive[j] + b_negative[j], b_positive[j], b_negative[j]});
        all[i + r][j] = sum.all;
        positive[i + r][j] = sum.positive;
      }
    }
  }
}

// What follows is rare, or rare enough, and is not inlined: 32 copies of it would
// cost the common path its registers.

__device__ __noinline__ float step_by_integers(const GemmArguments& g, const EmulatedModel& model,
                                               const TileFormats& formats, int row, int column,
                                               int begin, int end, float c) {
  return dot_by_integers(model, formats.a, formats.b,
                         g.a + static_cast<std::size_t>(row) * g.row_bytes,
                         g.b + static_cast<std::size_t>(column) * g.row_bytes, begin, end, c);
}

__device__ __noinline__ float round_in_general(const EmulatedModel& model, float sum) {
  return round_aligned_sum(model, sum);
}

__device__ __noinline__ float round_c_to_half(const EmulatedModel& model, float c) {
  return enter_accumulator(model, c);
}

/// The FP32 totals of promoted sums stand in D itself.
__device__ __noinline__ void promote_into_d(const GemmArguments& g, int row, int column, int begin,
                                            float partial) {
  if (row >= g.m || column >= g.n) return;
  float& total = g.d[static_cast<std::size_t>(row) * g.n + column];
  const float before = begin == 0 ? start_value(g, row, column) : total;
  total = promote(g, partial, g.a_scales.at(row, begin), g.b_scales.at(column, begin), before);
}

__device__ __noinline__ void finish_into_d(const GemmArguments& g, int row, int column, float sum) {
  if (row >= g.m || column >= g.n) return;
  float& d = g.d[static_cast<std::size_t>(row) * g.n + column];
  d = finish(g, g.promotion_interval > 0 ? d : sum, row, column);
}

__global__ void __launch_bounds__(kThreads)
    multiply_by_fma(const GemmArguments g, const EmulatedModel model, const TileFormats formats) {
  __shared__ StepTile tile;
  const int row = static_cast<int>(threadIdx.x) / 16 * kRows;
  const int column = static_cast<int>(threadIdx.x) % 16 * kColumns;
  const int first_row = static_cast<int>(blockIdx.y) * kTileSize + row;
  const int first_column = static_cast<int>(blockIdx.x) * kTileSize + column;
  const bool promoted = g.promotion_interval > 0;
  const int interval = promoted ? g.promotion_interval : INT_MAX;
  const bool truncates = !model.half_output && !model.nearest_even;
  const std::uint32_t kept_bits = ~((1u << (23 - model.output_fraction_bits)) - 1u);

  float sums[kRows][kColumns];
  FP8LAB_UNROLL
  for (int i = 0; i < kRows; ++i) FP8LAB_UNROLL
  for (int j = 0; j < kColumns; ++j) {
    const int r = min(first_row + i, g.m - 1);
    const int c = min(first_column + j, g.n - 1);
    sums[i][j] = promoted || g.c == nullptr ? 0.0F : start_value(g, r, c);
    if (model.half_output) sums[i][j] = round_c_to_half(model, sums[i][j]);
  }

  for (int k = 0; k < g.k; k += model.terms) {
    const int terms = model.terms;
    const bool special = __syncthreads_or(load_step(g, formats, terms, k, tile)) != 0;

    int top[kRows][kColumns];
    largest_exponents(tile, terms, row, column, top);
    float all[kRows][kColumns];
    float positive[kRows][kColumns];
    FP8LAB_UNROLL
    for (int i = 0; i < kRows; ++i) FP8LAB_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      // A huge or non-finite accumulator is redone by integers below; until
      // then any exponent in range keeps the arithmetic harmless.
      top[i][j] = max(top[i][j], accumulator_exponent(sums[i][j]));
      const FmaAccumulator start(model, min(top[i][j], fma_path_top(model)), sums[i][j]);
      all[i][j] = start.all;
      positive[i][j] = start.positive;
    }
    add_products(tile, terms, row, column, all, positive);
    FP8LAB_UNROLL
    for (int i = 0; i < kRows; ++i) FP8LAB_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      if (special || top[i][j] > fma_path_top(model)) {
        sums[i][j] =
            step_by_integers(g, model, formats, min(first_row + i, g.m - 1),
                             min(first_column + j, g.n - 1), k, min(k + terms, g.k), sums[i][j]);
        continue;
      }
      const float sum = FmaAccumulator(all[i][j], positive[i][j]).sum(model, top[i][j]);
      sums[i][j] = truncates ? float_of(bits_of(sum) & kept_bits) : round_in_general(model, sum);
    }

    const int end = k + model.terms;
    if (promoted && (end % interval == 0 || end >= g.k)) {
      const int begin = (end - 1) / interval * interval;
      FP8LAB_UNROLL
      for (int i = 0; i < kRows; ++i) FP8LAB_UNROLL
      for (int j = 0; j < kColumns; ++j) {
        promote_into_d(g, first_row + i, first_column + j, begin, sums[i][j]);
        sums[i][j] = 0.0F;
      }
    }
    __syncthreads();
  }

  FP8LAB_UNROLL
  for (int i = 0; i < kRows; ++i) FP8LAB_UNROLL
  for (int j = 0; j < kColumns; ++j) finish_into_d(g, first_row + i, first_column + j, sums[i][j]);
}

/// Any model and format: one thread an output, a row of blocks a row and, where the
/// grid has fewer of those, some more.
__global__ void multiply_by_integers(const GemmArguments g, const EmulatedModel model,
                                     const TileFormats formats) {
  const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (column >= g.n) return;
  const std::uint8_t* b_row = g.b + static_cast<std::size_t>(column) * g.row_bytes;
  for (int row = static_cast<int>(blockIdx.y); row < g.m; row += static_cast<int>(gridDim.y)) {
    const std::uint8_t* a_row = g.a + static_cast<std::size_t>(row) * g.row_bytes;
    float sum = start_value(g, row, column);
    if (g.promotion_interval == 0)
      sum = dot_by_integers(model, formats.a, formats.b, a_row, b_row, 0, g.k,
                            enter_accumulator(model, sum));
    for (int k = 0; g.promotion_interval > 0 && k < g.k; k += g.promotion_interval) {
      const float partial = dot_by_integers(model, formats.a, formats.b, a_row, b_row, k,
                                            min(k + g.promotion_interval, g.k), 0.0F);
      sum = promote(g, partial, g.a_scales.at(row, k), g.b_scales.at(column, k), sum);
    }
    g.d[static_cast<std::size_t>(row) * g.n + column] = finish(g, sum, row, column);
  }
}

}  // namespace fp8lab::cuda
