#pragma once
// The kernels of the product without tensor cores, apart from their launch so
// that a test can run them thread by thread on the host. FP8 with few alignment
// bits goes by binary32 FMAs (see emulated_core.hpp) over tiles of 64 x 128
// outputs, 8 x 8 a thread: the more outputs share an operand, the less there is to
// do beside the three FMAs of a product. Every other model, and every step that
// holds a NaN, an infinity or a huge accumulator, goes by integers.

#if defined(__CUDACC__)
#include <cuda_fp16.h>
#endif

#include <climits>

#include "device_load.cuh"
#include "gemm_arguments.hpp"

namespace fp8lab::cuda {

constexpr int kTileRows = 64;
constexpr int kTileColumns = 128;
constexpr int kThreads = 128;
constexpr int kRows = 8;     // of a thread, one after the other
constexpr int kColumns = 8;  // of a thread: four, and the four 64 further on
constexpr int kColumnGroups = kTileColumns / kColumns;
constexpr int kMaxTerms = 32;
constexpr int kZeroField = -1000;  // of a zero operand: below every real sum

/// Column `j` of a thread whose first one is `first`. Neighbouring threads read
/// neighbouring fours from shared memory, without conflicts.
__device__ int column_of(int first, int j) { return first + j % 4 + j / 4 * (kTileColumns / 2); }

/// Two fields of products side by side. Hopper adds and takes the maximum of pairs of
/// 16-bit integers in one instruction; before it, FP16 holds these integers exactly.
struct FieldPair {
  std::uint32_t bits;

  static __device__ std::uint32_t encode(int field) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    return static_cast<std::uint32_t>(field) & 0xffffu;
#else
    return __half_as_ushort(__int2half_rn(field));
#endif
  }
  static __device__ int decode(std::uint32_t half) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    return static_cast<int>(half & 0xffffu);  // never below lowest_field
#else
    return __half2int_rn(__ushort_as_half(static_cast<unsigned short>(half & 0xffffu)));
#endif
  }
  static __device__ FieldPair lowest(const EmulatedModel& model) {
    const std::uint32_t low = encode(lowest_field(model));
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

/// One step of an operand, split by sign: [term][row or column].
template <int kSize, typename Field>
struct alignas(16) SplitTile {
  float magnitude[kMaxTerms][kSize];
  float positive[kMaxTerms][kSize];
  float negative[kMaxTerms][kSize];
  Field field[kMaxTerms][kSize];
};

struct StepTile {
  SplitTile<kTileRows, std::uint32_t> a;  ///< the same field in both halves
  SplitTile<kTileColumns, std::uint16_t> b;
};
constexpr int kStepTileBytes = sizeof(StepTile);

struct TileFormats {
  EmulatedFormat a;
  EmulatedFormat b;
};

/// The value of the FP8 code in byte `byte` of `codes`: its bits moved into binary32,
/// and the bias mended.
__device__ float fp8_value(const EmulatedFormat& f, std::uint32_t codes, int byte) {
  const auto on_top = static_cast<std::int32_t>(codes << (24 - 8 * byte));
  // The mask drops the copies of the sign, and the bytes below.
  const auto moved = static_cast<std::uint32_t>(on_top >> (8 - f.exponent_bits));
  return float_of(moved & (0x80000000u | (0x7f000000u >> (8 - f.exponent_bits)))) *
         float_of(static_cast<std::uint32_t>(254 - f.bias) << 23);
}

/// The field of a magnitude: for subnormal codes the one of the smallest normal.
__device__ int fp8_field(const EmulatedFormat& f, float magnitude) {
  const auto field = static_cast<int>(bits_of(magnitude) >> 23);
  return magnitude == 0.0F ? kZeroField : max(field, 128 - f.bias);
}

/// Whether one of four codes is a NaN or an infinity.
__device__ bool any_fp8_special(const EmulatedFormat& f, std::uint32_t codes) {
  const std::uint32_t to_the_top = f.has_infinity ? 0x04040404u : 0x01010101u;
  return (((codes & 0x7f7f7f7fu) + to_the_top) & 0x80808080u) != 0;
}

/// Splits one step of an operand, whose first byte of its first row is `rows`, into
/// shared memory; true if this thread saw a special code. Terms past K are the
/// zeros of the padding. `unbias` leaves the fields: a product has the bias of one.
template <int kSize, typename Field>
__device__ bool split_step(const std::uint8_t* rows, int row_bytes, const EmulatedFormat& f,
                           int terms, int unbias, SplitTile<kSize, Field>& tile) {
  bool special = false;
  // Neighbouring threads take neighbouring rows, so that shared memory is
  // written without conflicts.
  const int row = static_cast<int>(threadIdx.x) % kSize;
  const std::uint8_t* codes_of_row = rows + static_cast<std::size_t>(row) * row_bytes;
  for (int first = static_cast<int>(threadIdx.x) / kSize * 4; first < terms;
       first += kThreads / kSize * 4) {
    const std::uint32_t codes = *reinterpret_cast<const std::uint32_t*>(codes_of_row + first);
    special |= any_fp8_special(f, codes);
    FP8LAB_UNROLL
    for (int byte = 0; byte < 4; ++byte) {
      const float value = fp8_value(f, codes, byte);
      tile.magnitude[first + byte][row] = fabsf(value);
      tile.positive[first + byte][row] = fmaxf(value, 0.0F);
      tile.negative[first + byte][row] = fmaxf(-value, 0.0F);
      const std::uint32_t field = FieldPair::encode(fp8_field(f, fabsf(value)) - unbias);
      tile.field[first + byte][row] = static_cast<Field>(field | (field << 16));
    }
  }
  return special;
}

/// The largest field of each output's products.
__device__ void largest_fields(const EmulatedModel& model, const StepTile& tile, int row,
                               int column, FieldPair (&top)[kRows][kColumns / 2]) {
  FP8LAB_UNROLL
  for (int i = 0; i < kRows; ++i) FP8LAB_UNROLL
  for (int j = 0; j < kColumns / 2; ++j) top[i][j] = FieldPair::lowest(model);
  for (int term = 0; term < model.terms; ++term) {
    std::uint32_t a[kRows];
    std::uint32_t b[kColumns / 2];
    FP8LAB_UNROLL
    for (int i = 0; i < kRows; i += 4) {
      const uint4 four = *reinterpret_cast<const uint4*>(&tile.a.field[term][row + i]);
      a[i] = four.x;
      a[i + 1] = four.y;
      a[i + 2] = four.z;
      a[i + 3] = four.w;
    }
    FP8LAB_UNROLL
    for (int j = 0; j < kColumns; j += 4) {
      const uint2 four = *reinterpret_cast<const uint2*>(&tile.b.field[term][column_of(column, j)]);
      b[j / 2] = four.x;
      b[j / 2 + 1] = four.y;
    }
    FP8LAB_UNROLL
    for (int i = 0; i < kRows; ++i) FP8LAB_UNROLL
    for (int j = 0; j < kColumns / 2; ++j) top[i][j].raise(a[i], b[j]);
  }
}

/// Four neighbouring floats of shared memory.
__device__ void load_four(const float* from, float* to) {
  const float4 four = *reinterpret_cast<const float4*>(from);
  to[0] = four.x;
  to[1] = four.y;
  to[2] = four.z;
  to[3] = four.w;
}

/// The products of one step, cut and summed: all of them, and the positive ones.
__device__ void add_products(const StepTile& tile, int terms, int row, int column,
                             FmaAccumulator (&sums)[kRows][kColumns]) {
  FP8LAB_UNROLL_BY_2
  for (int term = 0; term < terms; ++term) {
    float b[3][kColumns];
    FP8LAB_UNROLL
    for (int j = 0; j < kColumns; j += 4) {
      const int at = column_of(column, j);
      load_four(&tile.b.magnitude[term][at], &b[0][j]);
      load_four(&tile.b.positive[term][at], &b[1][j]);
      load_four(&tile.b.negative[term][at], &b[2][j]);
    }
    FP8LAB_UNROLL
    for (int i = 0; i < kRows; i += 4) {
      float a[3][4];
      load_four(&tile.a.magnitude[term][row + i], a[0]);
      load_four(&tile.a.positive[term][row + i], a[1]);
      load_four(&tile.a.negative[term][row + i], a[2]);
      FP8LAB_UNROLL
      for (int r = 0; r < 4; ++r) FP8LAB_UNROLL
      for (int j = 0; j < kColumns; ++j)
        sums[i + r][j].add({a[0][r], a[1][r], a[2][r]}, {b[0][j], b[1][j], b[2][j]});
    }
  }
}

// What follows is rare, or rare enough, and is not inlined: 64 copies of it would
// cost the common path its registers.

__device__ __noinline__ float output_step_by_integers(const GemmArguments& g,
                                                      const EmulatedModel& model,
                                                      const TileFormats& formats, int row,
                                                      int column, int begin, int end, float c) {
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
  total = promote(g, partial, g.scale_a.at(row, begin), g.scale_b.at(column, begin), before);
}

__device__ __noinline__ void finish_into_d(const GemmArguments& g, int row, int column, float sum) {
  if (row >= g.m || column >= g.n) return;
  float& d = g.d[static_cast<std::size_t>(row) * g.n + column];
  d = finish(g, g.promotion_interval > 0 ? d : sum, row, column);
}

/// The sums of a step that cannot go by FMAs.
__device__ void step_by_integers(const GemmArguments& g, const EmulatedModel& model,
                                 const TileFormats& formats, int first_row, int first_column, int k,
                                 float (&sums)[kRows][kColumns]) {
  FP8LAB_UNROLL
  for (int i = 0; i < kRows; ++i) FP8LAB_UNROLL
  for (int j = 0; j < kColumns; ++j)
    sums[i][j] = output_step_by_integers(g, model, formats, min(first_row + i, g.m - 1),
                                         min(column_of(first_column, j), g.n - 1), k,
                                         min(k + model.terms, g.k), sums[i][j]);
}

__global__ void __launch_bounds__(kThreads, 2)
    multiply_by_fma(const GemmArguments g, const EmulatedModel model, const TileFormats formats) {
  FP8LAB_DYNAMIC_SHARED(raw_shared);
  StepTile& tile = *reinterpret_cast<StepTile*>(raw_shared);
  const int row = static_cast<int>(threadIdx.x) / kColumnGroups * kRows;
  const int column = static_cast<int>(threadIdx.x) % kColumnGroups * 4;
  const int first_row = static_cast<int>(blockIdx.y) * kTileRows + row;
  const int first_column = static_cast<int>(blockIdx.x) * kTileColumns + column;
  const std::uint8_t* a_rows = g.a + static_cast<std::size_t>(blockIdx.y) * kTileRows * g.row_bytes;
  const std::uint8_t* b_rows =
      g.b + static_cast<std::size_t>(blockIdx.x) * kTileColumns * g.row_bytes;
  const bool promoted = g.promotion_interval > 0;
  const int interval = promoted ? g.promotion_interval : INT_MAX;
  const bool truncates = !model.half_output && !model.nearest_even;
  const std::uint32_t kept_bits = ~((1u << (23 - model.output_fraction_bits)) - 1u);

  float sums[kRows][kColumns];
  FP8LAB_UNROLL
  for (int i = 0; i < kRows; ++i) FP8LAB_UNROLL
  for (int j = 0; j < kColumns; ++j) {
    const int r = min(first_row + i, g.m - 1);
    const int c = min(column_of(first_column, j), g.n - 1);
    sums[i][j] = promoted || g.c == nullptr ? 0.0F : start_value(g, r, c);
    if (model.half_output) sums[i][j] = round_c_to_half(model, sums[i][j]);
  }

  for (int k = 0; k < g.k; k += model.terms) {
    const int terms = model.terms;
    const bool a_special = split_step(a_rows + k, g.row_bytes, formats.a, terms, 0, tile.a);
    const bool b_special = split_step(b_rows + k, g.row_bytes, formats.b, terms, 127, tile.b);
    bool by_integers = __syncthreads_or(a_special || b_special) != 0;

    FieldPair pairs[kRows][kColumns / 2];
    largest_fields(model, tile, row, column, pairs);
    int highest = INT_MIN;
    const auto top = [&](int i, int j) {
      return max(FieldPair::decode(pairs[i][j / 2].bits >> (16 * (j % 2))),
                 accumulator_field(model, sums[i][j]));
    };
    FP8LAB_UNROLL
    for (int i = 0; i < kRows; ++i) FP8LAB_UNROLL
    for (int j = 0; j < kColumns; ++j) highest = max(highest, top(i, j));
    // A huge accumulator, or one that is not finite.
    by_integers |= highest > fma_path_top(model);
    if (by_integers) {
      step_by_integers(g, model, formats, first_row, first_column, k, sums);
    } else {
      FmaAccumulator accumulators[kRows][kColumns];
      FP8LAB_UNROLL
      for (int i = 0; i < kRows; ++i) FP8LAB_UNROLL
      for (int j = 0; j < kColumns; ++j)
        accumulators[i][j] = FmaAccumulator(model, top(i, j), sums[i][j]);
      add_products(tile, terms, row, column, accumulators);
      FP8LAB_UNROLL
      for (int i = 0; i < kRows; ++i) FP8LAB_UNROLL
      for (int j = 0; j < kColumns; ++j) sums[i][j] = accumulators[i][j].sum();
      if (truncates) {
        FP8LAB_UNROLL
        for (int i = 0; i < kRows; ++i) FP8LAB_UNROLL
        for (int j = 0; j < kColumns; ++j) sums[i][j] = float_of(bits_of(sums[i][j]) & kept_bits);
      } else {
        FP8LAB_UNROLL
        for (int i = 0; i < kRows; ++i) FP8LAB_UNROLL
        for (int j = 0; j < kColumns; ++j) sums[i][j] = round_in_general(model, sums[i][j]);
      }
    }

    const int end = k + model.terms;
    if (promoted && (end % interval == 0 || end >= g.k)) {
      const int begin = (end - 1) / interval * interval;
      FP8LAB_UNROLL
      for (int i = 0; i < kRows; ++i) FP8LAB_UNROLL
      for (int j = 0; j < kColumns; ++j) {
        promote_into_d(g, first_row + i, column_of(first_column, j), begin, sums[i][j]);
        sums[i][j] = 0.0F;
      }
    }
    __syncthreads();
  }

  FP8LAB_UNROLL
  for (int i = 0; i < kRows; ++i) FP8LAB_UNROLL
  for (int j = 0; j < kColumns; ++j)
    finish_into_d(g, first_row + i, column_of(first_column, j), sums[i][j]);
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
      sum = promote(g, partial, g.scale_a.at(row, k), g.scale_b.at(column, k), sum);
    }
    g.d[static_cast<std::size_t>(row) * g.n + column] = finish(g, sum, row, column);
  }
}

}  // namespace fp8lab::cuda
