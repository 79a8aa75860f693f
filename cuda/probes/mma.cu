// mma.sync: every warp computes 16 rows of a tile, 8 columns at a time.

#include "emulated_core.hpp"
#include "probes/probe.hpp"
#include "tiles.hpp"

namespace fp8lab::cuda {
namespace {

using enum FormatId;

__device__ std::uint32_t word_at(const std::uint8_t* matrix, int row, int byte, int row_bytes) {
  return *reinterpret_cast<const std::uint32_t*>(matrix + row * row_bytes + byte);
}

template <typename Op>
__global__ void __launch_bounds__(128)
    mma_probe(const std::uint8_t* a, const std::uint8_t* b, const float* c, float* d, int steps) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first_row = static_cast<int>(threadIdx.x) / 32 * 16;
  const int row_bytes = steps * kStepBytes;
  const auto tile = static_cast<std::size_t>(blockIdx.x);
  a += tile * kTile * row_bytes + first_row * row_bytes;
  b += tile * kTile * row_bytes;
  c += tile * kTile;
  d += tile * kTileOutputs;
  for (int first_column = 0; first_column < kTile; first_column += 8) {
    float sums[4];
    for (int i = 0; i < 4; ++i) {
      const Place at = accumulator(lane, i);
      sums[i] = c[case_of_c(first_row + at.row, first_column + at.column)];
    }
    typename Op::State state(sums);
    for (int step = 0; step < steps; ++step) {
      std::uint32_t a_registers[4];
      std::uint32_t b_registers[2];
      for (int reg = 0; reg < 4; ++reg) {
        const Place at = a_fragment(lane, reg);
        a_registers[reg] = word_at(a, at.row, step * kStepBytes + at.column, row_bytes);
      }
      for (int reg = 0; reg < 2; ++reg) {
        const Place at = b_fragment(lane, reg);
        b_registers[reg] =
            word_at(b, first_column + at.row, step * kStepBytes + at.column, row_bytes);
      }
      Op::issue(state.registers, a_registers, b_registers);
    }
    state.read(sums);
    for (int i = 0; i < 4; ++i) {
      const Place at = accumulator(lane, i);
      d[(first_row + at.row) * kTile + first_column + at.column] = sums[i];
    }
  }
}

struct FloatState {
  float registers[4];
  __device__ explicit FloatState(const float (&sums)[4]) {
    for (int i = 0; i < 4; ++i) registers[i] = sums[i];
  }
  __device__ void read(float (&sums)[4]) const {
    for (int i = 0; i < 4; ++i) sums[i] = registers[i];
  }
};

struct HalfState {
  std::uint32_t registers[2];
  __device__ explicit HalfState(const float (&sums)[4]) {
    for (int i = 0; i < 2; ++i)
      registers[i] = half_from_float(sums[2 * i]) | (half_from_float(sums[2 * i + 1]) << 16);
  }
  __device__ void read(float (&sums)[4]) const {
    for (int i = 0; i < 4; ++i)
      sums[i] = float_from_half((registers[i / 2] >> (16 * (i % 2))) & 0xffffu);
  }
};

#define FP8LAB_MMA_F32(NAME, PTX)                                                       \
  struct NAME {                                                                         \
    using State = FloatState;                                                           \
    static __device__ void issue(float (&d)[4], const std::uint32_t (&a)[4],            \
                                 const std::uint32_t (&b)[2]) {                         \
      asm volatile("mma.sync.aligned." PTX                                              \
                   " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n" \
                   : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                     \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); \
    }                                                                                   \
  }
#define FP8LAB_MMA_F16(NAME, PTX)                                                               \
  struct NAME {                                                                                 \
    using State = HalfState;                                                                    \
    static __device__ void issue(std::uint32_t (&d)[2], const std::uint32_t (&a)[4],            \
                                 const std::uint32_t (&b)[2]) {                                 \
      asm volatile("mma.sync.aligned." PTX " {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};\n" \
                   : "+r"(d[0]), "+r"(d[1])                                                     \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));         \
    }                                                                                           \
  }

FP8LAB_MMA_F32(E4E4, "m16n8k32.row.col.f32.e4m3.e4m3.f32");
FP8LAB_MMA_F32(E5E5, "m16n8k32.row.col.f32.e5m2.e5m2.f32");
FP8LAB_MMA_F32(E4E5, "m16n8k32.row.col.f32.e4m3.e5m2.f32");
FP8LAB_MMA_F32(E5E4, "m16n8k32.row.col.f32.e5m2.e4m3.f32");
FP8LAB_MMA_F32(F16, "m16n8k16.row.col.f32.f16.f16.f32");
FP8LAB_MMA_F32(Bf16, "m16n8k16.row.col.f32.bf16.bf16.f32");
FP8LAB_MMA_F32(Tf32, "m16n8k8.row.col.f32.tf32.tf32.f32");

// FP16 sums of FP8 came to mma.sync with PTX ISA 8.7.
#define FP8LAB_NVCC_12_8 \
  (__CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 8))
#if FP8LAB_NVCC_12_8
FP8LAB_MMA_F16(HalfE4E4, "m16n8k32.row.col.f16.e4m3.e4m3.f16");
FP8LAB_MMA_F16(HalfE5E5, "m16n8k32.row.col.f16.e5m2.e5m2.f16");
FP8LAB_MMA_F16(HalfE4E5, "m16n8k32.row.col.f16.e4m3.e5m2.f16");
FP8LAB_MMA_F16(HalfE5E4, "m16n8k32.row.col.f16.e5m2.e4m3.f16");
#endif

// What the ptxas that comes with this nvcc makes of FP8 mma.sync.
constexpr Halves kHalves = FP8LAB_NVCC_12_8 ? Halves::chained : Halves::separate;

const Probe kProbes[] = {
    {"mma.m16n8k32.f32.e4m3.e4m3", "sm90.mma.e4m3", e4m3fn, e4m3fn, mma_probe<E4E4>, kHalves},
    {"mma.m16n8k32.f32.e5m2.e5m2", "sm90.mma.e5m2", e5m2, e5m2, mma_probe<E5E5>, kHalves},
    {"mma.m16n8k32.f32.e4m3.e5m2", "sm90.mma.e4m3", e4m3fn, e5m2, mma_probe<E4E5>, kHalves},
    {"mma.m16n8k32.f32.e5m2.e4m3", "sm90.mma.e5m2", e5m2, e4m3fn, mma_probe<E5E4>, kHalves},
    {"mma.m16n8k16.f32.f16.f16", "sm90.mma.f16", f16, f16, mma_probe<F16>},
    {"mma.m16n8k16.f32.bf16.bf16", "sm90.mma.bf16", bf16, bf16, mma_probe<Bf16>},
    {"mma.m16n8k8.f32.tf32.tf32", "sm90.mma.tf32", tf32, tf32, mma_probe<Tf32>},
#if FP8LAB_NVCC_12_8
    {"mma.m16n8k32.f16.e4m3.e4m3", "sm90.mma.e4m3.f16", e4m3fn, e4m3fn, mma_probe<HalfE4E4>,
     kHalves},
    {"mma.m16n8k32.f16.e5m2.e5m2", "sm90.mma.e5m2.f16", e5m2, e5m2, mma_probe<HalfE5E5>, kHalves},
    {"mma.m16n8k32.f16.e4m3.e5m2", "sm90.mma.e4m3.f16", e4m3fn, e5m2, mma_probe<HalfE4E5>, kHalves},
    {"mma.m16n8k32.f16.e5m2.e4m3", "sm90.mma.e5m2.f16", e5m2, e4m3fn, mma_probe<HalfE5E4>, kHalves},
#endif
};

}  // namespace

std::span<const Probe> mma_probes() { return kProbes; }

}  // namespace fp8lab::cuda
