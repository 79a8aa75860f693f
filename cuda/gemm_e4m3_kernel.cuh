#pragma once
// The emulated product of E4M3 with sums cut toward zero, by one FMA a product. A
// binary32 accumulator that holds 1.5 * 2^(E+23-F) cuts every product that an FMA with
// rounding toward zero adds at 2^(E-F), but downwards, negative ones too. So the
// negative products that lose bits are counted, and each gives one unit back. A product
// loses bits if its lowest one, which is the product of the operands' lowest ones, is
// below the unit: four of these questions are one addition of bytes.
//
// E comes from BF16 tensor cores, which every chip since Ampere has. An operand 2^e
// becomes 256^e; the sum of at most 33 such products is in [256^E, 2^6 * 256^E),
// however a chip cuts and rounds it, and only its exponent is used.

#include "e4m3_round.cuh"
#include "gemm_emulated_kernel.cuh"

namespace fp8lab::cuda {

/// A block: warps of 64 x 32 outputs side by side. Two blocks a processor hide each other's
/// barriers.
template <int kTermsOfStep>
struct E4m3Shape {
  static constexpr int kTerms = kTermsOfStep;
  static constexpr int kRowWarps = 1;
  static constexpr int kColumnWarps = 4;
  static constexpr int kMinBlocks = 2;
  static constexpr int kRows = kRowWarps * kWarpRows;
  static constexpr int kColumns = kColumnWarps * kWarpColumns;
  static constexpr int kThreads = 32 * kRowWarps * kColumnWarps;
};

/// Where a thread's outputs are: row(i) and column(j) of the product, and its fours in
/// shared memory.
struct ThreadPlace {
  int group;     ///< lane / 4: rows group, group + 8, ... of a warp
  int member;    ///< lane % 4: columns 2 member and 2 member + 1, and 8, 16, 24 further on
  int warp_row;  ///< the first of the block's rows that this warp has
  int warp_column;
  int block_row;
  int block_column;

  __device__ int row(int i) const { return block_row + warp_row + group + 8 * i; }
  __device__ int column(int j) const {
    return block_column + warp_column + 2 * member + j / 2 * 8 + j % 2;
  }
};

/// The accumulator of a step that begins with c: its magic number and c cut toward
/// zero. `power`: 256^E in the encoding of e4m3_round.cuh. `field`: what F adds.
__device__ float begin_step(float c, float power, std::uint32_t field) {
  const float top = fmaxf(fabsf(c), float_of((bits_of(power) >> 3) + kPowerField));
  const std::uint32_t magic = (bits_of(top) & 0x7f800000u) + field;
  const float with_sign_of_c = float_of(magic | (bits_of(c) & 0x80000000u));
  const float cut_c = add_toward_zero(c, with_sign_of_c) - with_sign_of_c;
  return float_of(magic) + cut_c;
}

/// The sums of a step begin: E of all outputs by tensor cores. `half`: of 16 terms.
template <int kTerms, int kRows_, int kColumns_>
__device__ void begin_steps(const RoundTile<kRows_, kColumns_>& tile, const ThreadPlace& at,
                            int half, std::uint32_t field, float (&sums)[kRows][kColumns]) {
  uint4 b[kColumns / 2];
  FP8LAB_UNROLL
  for (int n = 0; n < kColumns / 2; ++n)
    b[n] = tile.b.powers(at.warp_column + 8 * n + at.group, at.member);
  float powers[kRows / 2][kColumns / 2][4];
  FP8LAB_UNROLL
  for (int m = 0; m < kRows / 2; ++m) {
    const uint4 low = tile.a.powers(at.warp_row + 16 * m + at.group, at.member);
    const uint4 high = tile.a.powers(at.warp_row + 16 * m + 8 + at.group, at.member);
    const std::uint32_t first[4] = {low.x, high.x, low.y, high.y};
    const std::uint32_t second[4] = {low.z, high.z, low.w, high.w};
    FP8LAB_UNROLL
    for (int n = 0; n < kColumns / 2; ++n) {
      FP8LAB_UNROLL
      for (int q = 0; q < 4; ++q) powers[m][n][q] = float_of(kLeastPower);
      if (kTerms == 32 || half == 0) multiply_powers(powers[m][n], first, b[n].x, b[n].y);
    }
    FP8LAB_UNROLL
    for (int n = 0; n < kColumns / 2; ++n)
      if (kTerms == 32 || half == 1) multiply_powers(powers[m][n], second, b[n].z, b[n].w);
  }
  FP8LAB_UNROLL
  for (int i = 0; i < kRows; ++i) FP8LAB_UNROLL
  for (int j = 0; j < kColumns; ++j)
    sums[i][j] = begin_step(sums[i][j], powers[i / 2][j / 2][i % 2 * 2 + j % 2], field);
}

/// Four neighbouring words of shared memory.
__device__ void load_words(const std::uint32_t* from, std::uint32_t* to) {
  const uint4 four = *reinterpret_cast<const uint4*>(from);
  to[0] = four.x;
  to[1] = four.y;
  to[2] = four.z;
  to[3] = four.w;
}

/// The steps' sums over terms [begin, begin + kTerms): products cut downwards, and the units
/// that negative ones lost. Four rows at a time, and FMAs and integer instructions by turns,
/// so that two warps are seldom at the same pipe of the chip for long.
template <int kTerms, int kRows_, int kColumns_>
__device__ void sum_products(const RoundTile<kRows_, kColumns_>& tile, const ThreadPlace& at,
                             int begin, float (&sums)[kRows][kColumns]) {
  FP8LAB_UNROLL
  for (int first = 0; first < kRows; first += 4) {
    std::uint32_t unit[4][kColumns];
    std::uint32_t lost[4][kColumns];
    FP8LAB_UNROLL
    for (int i = 0; i < 4; ++i) FP8LAB_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      unit[i][j] = unit_bytes(sums[first + i][j]);
      lost[i][j] = 0;
    }
    const int row = at.warp_row + first * 8 + 4 * at.group;
    const int column = at.warp_column + 4 * at.member;
    FP8LAB_NO_UNROLL
    for (int word = begin / 4; word < (begin + kTerms) / 4; ++word) {
      std::uint32_t a_low[4];
      std::uint32_t a_sign[4];
      std::uint32_t b_low[kColumns];
      std::uint32_t b_sign[kColumns];
      load_words(&tile.a.low[word][row], a_low);
      load_words(&tile.a.sign[word][row], a_sign);
      FP8LAB_UNROLL
      for (int j = 0; j < kColumns; j += 4) {
        load_words(&tile.b.low[word][column + 4 * j], &b_low[j]);
        load_words(&tile.b.sign[word][column + 4 * j], &b_sign[j]);
      }
      FP8LAB_UNROLL
      for (int part = 0; part < 4; ++part) {
        float a[4];
        float b[kColumns];
        load_four(&tile.a.value[4 * word + part][row], a);
        load_four(&tile.b.value[4 * word + part][column], &b[0]);
        load_four(&tile.b.value[4 * word + part][column + 16], &b[4]);
        FP8LAB_UNROLL
        for (int j = 0; j < kColumns; ++j) {
          FP8LAB_UNROLL
          for (int i = 0; i < 4; ++i)
            sums[first + i][j] = fma_toward_zero(a[i], b[j], sums[first + i][j]);
          lost[part][j] = count_lost(a_low[part] + b_low[j] + unit[part][j],
                                     a_sign[part] ^ b_sign[j], lost[part][j]);
        }
      }
    }
    FP8LAB_UNROLL
    for (int i = 0; i < 4; ++i) FP8LAB_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      const std::uint32_t bits = bits_of(sums[first + i][j]) + (lost[i][j] >> 7);
      sums[first + i][j] = float_of(bits) - float_of((bits & 0xff800000u) | 0x400000u);
    }
  }
}

/// What is rare goes through memory of the thread's own, one output after the other: 64 copies
/// of it would take their registers from what is not.
using OutOfTheWay = float[kRows * kColumns];

__device__ void put_away(const float (&sums)[kRows][kColumns], OutOfTheWay& to) {
  FP8LAB_UNROLL
  for (int i = 0; i < kRows; ++i) FP8LAB_UNROLL
  for (int j = 0; j < kColumns; ++j) to[i * kColumns + j] = sums[i][j];
}

/// A step by integers where FMAs cannot take it: an operand is a NaN, or a sum is one. True if
/// a sum is one after it.
__device__ bool e4m3_step_by_integers(const GemmArguments& g, const EmulatedModel& model,
                                      const ThreadPlace& at, int k,
                                      float (&sums)[kRows][kColumns]) {
  const TileFormats e4m3;
  OutOfTheWay outputs;
  put_away(sums, outputs);
  bool nan = false;
  FP8LAB_NO_UNROLL
  for (int output = 0; output < kRows * kColumns; ++output) {
    float& sum = outputs[output];
    sum = output_step_by_integers(g, model, e4m3, min(at.row(output / kColumns), g.m - 1),
                                  min(at.column(output % kColumns), g.n - 1), k,
                                  min(k + model.terms, g.k), round_in_general(model, sum));
    nan |= sum != sum;
  }
  FP8LAB_UNROLL
  for (int i = 0; i < kRows; ++i) FP8LAB_UNROLL
  for (int j = 0; j < kColumns; ++j) sums[i][j] = outputs[i * kColumns + j];
  return nan;
}

/// The FP32 totals of promoted sums. Those of all threads stand side by side.
template <int kThreadCount>
struct Totals {
  float* mine;

  __device__ float& operator[](int output) const { return mine[output * kThreadCount]; }

  __device__ void start(const GemmArguments& g, const ThreadPlace& at) const {
    FP8LAB_NO_UNROLL
    for (int i = 0; i < kRows * kColumns; ++i)
      (*this)[i] =
          start_value(g, min(at.row(i / kColumns), g.m - 1), min(at.column(i % kColumns), g.n - 1));
  }

  /// The partial sums join, and begin at zero again. `join(total, partial, i, j)`.
  template <typename Join>
  __device__ void add(std::uint32_t kept_bits, float (&sums)[kRows][kColumns], Join join) const {
    FP8LAB_UNROLL
    for (int i = 0; i < kRows; ++i) FP8LAB_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      float& total = (*this)[i * kColumns + j];
      total = join(total, float_of(bits_of(sums[i][j]) & kept_bits), i, j);
      sums[i][j] = 0.0F;
    }
  }

  template <ScaleOrder kOrder>
  __device__ void add_scaled(const GemmArguments& g, const ThreadPlace& at, int k,
                             std::uint32_t kept_bits, float (&sums)[kRows][kColumns]) const {
    float a[kRows];
    float b[kColumns];
    FP8LAB_UNROLL
    for (int i = 0; i < kRows; ++i) a[i] = g.scale_a.at(min(at.row(i), g.m - 1), k);
    FP8LAB_UNROLL
    for (int j = 0; j < kColumns; ++j) b[j] = g.scale_b.at(min(at.column(j), g.n - 1), k);
    add(kept_bits, sums, [&](float total, float partial, int i, int j) {
      return scale_partial(kOrder, partial, a[i], b[j], total);
    });
  }

  /// The partial sums that began at term `k`.
  __device__ void promote(const GemmArguments& g, const ThreadPlace& at, int k,
                          std::uint32_t kept_bits, float (&sums)[kRows][kColumns]) const {
    if (!g.scaled_along_k) {
      add(kept_bits, sums,
          [](float total, float partial, int, int) { return canonical_nan(total + partial); });
      return;
    }
    switch (g.order) {
      case ScaleOrder::product_then_fma:
        return add_scaled<ScaleOrder::product_then_fma>(g, at, k, kept_bits, sums);
      case ScaleOrder::product_then_add:
        return add_scaled<ScaleOrder::product_then_add>(g, at, k, kept_bits, sums);
      case ScaleOrder::a_then_fma_b:
        return add_scaled<ScaleOrder::a_then_fma_b>(g, at, k, kept_bits, sums);
      case ScaleOrder::b_then_fma_a:
        return add_scaled<ScaleOrder::b_then_fma_a>(g, at, k, kept_bits, sums);
      case ScaleOrder::a_then_b_then_add:
        return add_scaled<ScaleOrder::a_then_b_then_add>(g, at, k, kept_bits, sums);
    }
  }
};

template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kMinBlocks)
    multiply_e4m3(const GemmArguments g, const EmulatedModel model) {
  using Tile = RoundTile<Shape::kRows, Shape::kColumns>;
  FP8LAB_DYNAMIC_SHARED(raw_shared);
  Tile& tile = *reinterpret_cast<Tile*>(raw_shared);
  const int thread = static_cast<int>(threadIdx.x);
  const Totals<Shape::kThreads> totals{reinterpret_cast<float*>(raw_shared + sizeof(Tile)) +
                                       thread};
  const int warp = thread / 32;
  const ThreadPlace at{thread % 32 / 4,
                       thread % 4,
                       warp / Shape::kColumnWarps * kWarpRows,
                       warp % Shape::kColumnWarps * kWarpColumns,
                       static_cast<int>(blockIdx.y) * Shape::kRows,
                       static_cast<int>(blockIdx.x) * Shape::kColumns};
  const bool promoted = g.promotion_interval > 0;
  const int interval = promoted ? g.promotion_interval : INT_MAX;
  const std::uint32_t field =
      (static_cast<std::uint32_t>(23 - model.alignment_fraction_bits) << 23) + 0x400000u;
  const std::uint32_t kept_bits = ~((1u << (23 - model.output_fraction_bits)) - 1u);

  float sums[kRows][kColumns];
  FP8LAB_UNROLL
  for (int i = 0; i < kRows; ++i) FP8LAB_UNROLL
  for (int j = 0; j < kColumns; ++j) sums[i][j] = 0.0F;

  if (promoted) totals.start(g, at);
  RoundCodes<Shape::kRows, Shape::kThreads, true> a_codes;
  RoundCodes<Shape::kColumns, Shape::kThreads, false> b_codes;
  a_codes.load(g.a, at.block_row, g.row_bytes, 0);
  b_codes.load(g.b, at.block_column, g.row_bytes, 0);
  bool nan = false;
  int interval_begin = 0;
  FP8LAB_NO_UNROLL
  for (int round = 0; round < g.k; round += kRoundCodes) {
    const bool a_special = a_codes.split_into(tile.a);
    const bool b_special = b_codes.split_into(tile.b);
    const bool by_integers = __syncthreads_or(a_special || b_special) != 0;
    if (round + kRoundCodes < g.k) {
      a_codes.load(g.a, at.block_row, g.row_bytes, round + kRoundCodes);
      b_codes.load(g.b, at.block_column, g.row_bytes, round + kRoundCodes);
    }
    FP8LAB_NO_UNROLL
    for (int k = 0; k < kRoundCodes; k += Shape::kTerms) {
      // Warps stay together: the tensor cores want all threads of one.
      if (by_integers || nan_in_warp(nan)) {
        nan = e4m3_step_by_integers(g, model, at, round + k, sums);
      } else {
        begin_steps<Shape::kTerms>(tile, at, k / 16, field, sums);
        sum_products<Shape::kTerms>(tile, at, k, sums);
      }
      const int end = round + k + Shape::kTerms;
      if (promoted && (end - interval_begin >= interval || end >= g.k) && interval_begin < g.k) {
        totals.promote(g, at, interval_begin, kept_bits, sums);
        interval_begin += interval;
        nan = false;
      }
    }
    __syncthreads();
  }

  OutOfTheWay outputs;
  put_away(sums, outputs);
  FP8LAB_NO_UNROLL
  for (int i = 0; i < kRows * kColumns; ++i) {
    const int row = at.row(i / kColumns);
    const int column = at.column(i % kColumns);
    if (row >= g.m || column >= g.n) continue;
    const float sum = promoted ? totals[i] : float_of(bits_of(outputs[i]) & kept_bits);
    g.d[static_cast<std::size_t>(row) * g.n + column] = finish(g, sum, row, column);
  }
}

/// Dynamic shared memory of a block.
template <typename Shape>
constexpr int e4m3_shared_bytes(bool promoted) {
  return static_cast<int>(sizeof(RoundTile<Shape::kRows, Shape::kColumns>)) +
         (promoted ? Shape::kThreads * kRows * kColumns * 4 : 0);
}

/// Whether the kernel gives this product of E4M3. Sums must begin at zero, since
/// begin_step puts no unit below 2^(-12-F): zero, and what steps make of it, has no bits
/// there. Not to be cut after each step, a sum needs as many bits as the alignment. Up
/// to F = 15 the bytes of count_lost have room, from 8 on for sums of every K.
FP8LAB_HD inline bool e4m3_kernel_takes(const GemmArguments& g, const EmulatedModel& model) {
  const bool from_zero = g.c == nullptr || g.promotion_interval > 0 || g.scaled_at_end;
  return from_zero && (model.terms == 16 || model.terms == 32) && fma_path_fits(model) &&
         model.alignment_fraction_bits >= 8 && model.alignment_fraction_bits <= 15 &&
         model.output_fraction_bits >= model.alignment_fraction_bits && !model.half_output &&
         !model.nearest_even && model.exponent_floor <= -12;
}

}  // namespace fp8lab::cuda
