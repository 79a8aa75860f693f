#pragma once
// A chip on the host: the probes' own kernels, run thread by thread, with a tensor core that
// gathers its operands from fragments and descriptors as the ISA lays them out (written a second
// time here), and computes what a test plants in it.

#include "wgmma_on_host.hpp"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#include "cuda/probes/mma_kernel.cuh"
#include "cuda/probes/mma_scaled_kernel.cuh"
#include "cuda/probes/wgmma_kernel.cuh"
// The kernel of tcgen05 asks for what this header would have as PTX.
namespace fp8lab::cuda {

using Row = std::array<std::uint8_t, 32>;

/// Tensor memory: lanes by columns.
inline std::array<std::array<std::uint32_t, 512>, 128> tensor_lanes;
inline std::vector<std::function<void()>> issued;

template <int kColumns>
void tcgen05_allocate(std::uint32_t* where) {
  static_assert(kColumns >= 32 && (kColumns & (kColumns - 1)) == 0);
  *where = 64;  // not at the beginning
}
template <int kColumns>
void tcgen05_free(std::uint32_t) {}
inline void init_barrier(std::uint32_t) {}
inline void commit(std::uint32_t) {}
inline void fence_before_sync() {}
inline void fence_after_sync() {}
inline void wait_for_stores() {}
inline void shared_writes_before_tcgen05() {}
/// What was issued happens here, as late as it may.
inline void wait_for(std::uint32_t, std::uint32_t) {
  if (threadIdx.x == 0) {
    for (const auto& work : issued) work();
    issued.clear();
  }
  __syncthreads();
}
inline std::uint32_t& own_cell(std::uint32_t address, int column) {
  // A warp reaches the 32 lanes that its number names.
  const std::uint32_t lane = (address >> 16) + threadIdx.x % 32;
  if (lane / 32 != threadIdx.x / 32) std::abort();
  return tensor_lanes[lane][(address & 0xffffu) + static_cast<std::uint32_t>(column)];
}
inline void store_columns(std::uint32_t address, const std::uint32_t (&x)[8]) {
  for (int i = 0; i < 8; ++i) own_cell(address, i) = x[i];
}
inline void load_columns(std::uint32_t (&x)[8], std::uint32_t address) {
  for (int i = 0; i < 8; ++i) x[i] = own_cell(address, i);
}

}  // namespace fp8lab::cuda
#include "cuda/probes/tcgen05_kernel.cuh"
#pragma GCC diagnostic pop

#include <array>
#include <bit>
#include <functional>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include "cuda/probes/instructions.hpp"
#include "cuda/tool/candidates.hpp"
#include "fp8lab/cast/cast.hpp"

namespace fp8lab::cuda {

/// What the tensor core does with one instruction's operands.
struct Planted {
  ProbedInstruction probe;
  Candidate unit;
  Unheeded unheeded = Unheeded::nothing;  ///< done here to the operands, not by `unit`
};
inline Planted planted;

/// Bytes of K behind a descriptor that has no swizzle.
template <std::size_t kBytes = 32>
std::array<std::uint8_t, kBytes> row_behind(std::uint64_t matrix, int row) {
  const auto field = [matrix](int bit) {
    return static_cast<std::uint32_t>((matrix >> bit) & 0x3fffu) << 4;
  };
  std::array<std::uint8_t, kBytes> bytes{};
  for (std::uint32_t i = 0; i < kBytes; ++i)
    bytes[i] = *shared_windows.pointer(field(0) + static_cast<std::uint32_t>(row / 8) * field(32) +
                                       static_cast<std::uint32_t>(row % 8) * 16 +
                                       i / 16 * field(16) + i % 16);
  return bytes;
}

inline std::vector<std::uint32_t> codes_of(const Row& row, FormatId id) {
  const Format& f = format(id);
  std::vector<std::uint32_t> narrow;
  const NarrowOperands where = planted.probe.narrow_operands();
  if (f.code_bits() < 8 && where != NarrowOperands::in_bytes) {
    // A stream of bits, which begins anew in every 16 bytes; bytes that it does not reach are zero.
    const std::size_t group = where == NarrowOperands::in_halves ? 32 : 16;
    const auto bits = static_cast<std::size_t>(f.code_bits());
    const auto bit = [&](std::size_t at) {
      return static_cast<std::uint32_t>(row[at / 8] >> (at % 8)) & 1u;
    };
    for (std::size_t first = 0; first < 8 * row.size(); first += 128) {
      for (std::size_t i = 0; i < group; ++i) {
        std::uint32_t code = 0;
        for (std::size_t j = 0; j < bits; ++j) code |= bit(first + i * bits + j) << j;
        narrow.push_back(code);
      }
      for (std::size_t at = group * bits; at < 128; ++at)
        if (bit(first + at) != 0) std::abort();
    }
    return narrow;
  }
  if (f.code_bits() < 8) {
    // Bits outside an operand's place in its byte must be zero.
    const int shift = id == FormatId::e2m1 ? 2 : 0;
    const std::uint32_t mask = id == FormatId::e2m1 ? 0xfu : 0x3fu;
    for (const std::uint8_t byte : row) {
      if ((byte & ~(mask << shift)) != 0) std::abort();
      narrow.push_back((byte >> shift) & mask);
    }
    return narrow;
  }
  const auto bytes = static_cast<std::size_t>(f.storage_bits / 8);
  std::vector<std::uint32_t> codes(row.size() / bytes);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    std::uint32_t word = 0;
    std::memcpy(&word, row.data() + i * bytes, bytes);
    codes[i] = f.storage_bits == 32 ? word >> (23 - f.mantissa_bits) : word;
  }
  return codes;
}

/// Two of every four elements of B, as a word of metadata says: four bits a group.
inline Row selected(const std::array<std::uint8_t, 64>& b, std::uint32_t metadata) {
  const auto bytes = static_cast<std::size_t>(format(planted.probe.b_format).storage_bits / 8);
  Row row{};
  for (std::size_t i = 0; i < row.size() / bytes; ++i) {
    const std::size_t group = i / 2;
    const std::uint32_t nibble = metadata >> (4 * (group % 8));
    if ((nibble & 3) >= ((nibble >> 2) & 3)) std::abort();  // not in order
    std::size_t place = i % 2 == 0 ? nibble & 3 : (nibble >> 2) & 3;
    if (planted.unheeded == Unheeded::metadata) place = i % 2;
    for (std::size_t byte = 0; byte < bytes; ++byte)
      row[i * bytes + byte] = b[(4 * group + place) * bytes + byte];
  }
  return row;
}

/// Elements with the other sign.
inline Row negated(Row row, FormatId id) {
  if (planted.unheeded == Unheeded::negation) return row;
  const auto bytes = static_cast<std::size_t>(format(id).storage_bits / 8);
  for (std::size_t i = bytes - 1; i < row.size(); i += bytes) row[i] ^= 0x80;
  return row;
}

/// What planted_result computed last: where a mismatch is reduced, all outputs of a tile are one.
struct LastResult {
  VectorCase operands;
  std::uint32_t d = 0;
};
inline thread_local std::optional<LastResult> last_result;

/// One output of one instruction, of which a row has block scales. `terms`: the first ones of a row
/// that it takes; 0: all.
inline float planted_result(const Row& a, const Row& b, float c,
                            std::vector<std::uint8_t> scale_a = {},
                            std::vector<std::uint8_t> scale_b = {}, std::size_t terms = 0) {
  const auto forget = [](std::vector<std::uint8_t>& scales, Unheeded own) {
    if (planted.unheeded != Unheeded::scales && planted.unheeded != own) return;
    // 2^0 of either format.
    for (std::uint8_t& scale : scales)
      scale = planted.probe.scales->format == ScaleFormat::ue8m0 ? 127 : 7 << 3;
  };
  forget(scale_a, Unheeded::scale_a);
  forget(scale_b, Unheeded::scale_b);
  VectorCase one;
  one.scales_a = std::move(scale_a);
  one.scales_b = std::move(scale_b);
  one.a = codes_of(a, planted.probe.a_format);
  one.b = codes_of(b, planted.probe.b_format);
  if (terms > 0) {
    one.a.resize(terms);
    one.b.resize(terms);
  }
  one.c = std::bit_cast<std::uint32_t>(c);
  const auto inputs = [](const VectorCase& of) {
    return std::tie(of.a, of.b, of.c, of.scales_a, of.scales_b);
  };
  if (!last_result || inputs(last_result->operands) != inputs(one))
    last_result = {one, result_of(planted.unit, planted.probe, one)};
  return std::bit_cast<float>(last_result->d);
}

/// An accumulator register of FP16 or of binary32.
inline float get_sum(const float* registers, int i) { return registers[i]; }
inline void put_sum(float* registers, int i, float value) { registers[i] = value; }
inline float get_sum(const std::uint32_t* registers, int i) {
  return static_cast<float>(
      decode(format(FormatId::f16), (registers[i / 2] >> (16 * (i % 2))) & 0xffffu));
}
inline void put_sum(std::uint32_t* registers, int i, float value) {
  const std::uint32_t code = encode(format(FormatId::f16), kNvidiaNosat, value);
  const int shift = 16 * (i % 2);
  registers[i / 2] = (registers[i / 2] & (0xffff0000u >> shift)) | (code << shift);
}

/// Threads show their fragments to each other: 128 of them, a row of bytes for each of 64 rows.
class Fragments {
 public:
  Row& row(int index) { return rows_[static_cast<std::size_t>(index)]; }
  /// mma.m16n8k32's table: four bytes of a register.
  void put(int row_index, int column, std::uint32_t word) {
    for (int byte = 0; byte < 4; ++byte)
      row(row_index)[static_cast<std::size_t>(column + byte)] =
          static_cast<std::uint8_t>(word >> (8 * byte));
  }

 private:
  std::array<Row, 64> rows_{};
};
inline Fragments a_fragments;
inline Fragments b_fragments;

inline void show_a(const std::uint32_t (&a)[4]) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int reg = 0; reg < 4; ++reg)
    a_fragments.put(thread / 32 * 16 + thread % 32 / 4 + (reg % 2 == 1 ? 8 : 0),
                    thread % 4 * 4 + (reg >= 2 ? 16 : 0), a[reg]);
}

/// kNegated: 1 if the instruction negates A, 2 if B; kElement: bytes of an element of a sparse one.
template <typename RegisterType, int kColumns, bool kFromRegisters, int kNegated = 0,
          int kElement = 0>
struct SimulatedWgmma : WgmmaDefaults {
  using Register = RegisterType;
  static constexpr int kN = kColumns;
  static constexpr int kRegisters =
      kColumns / (std::is_same_v<RegisterType, std::uint32_t> ? 4 : 2);
  static constexpr bool kAInRegisters = kFromRegisters;
  static constexpr std::uint32_t kSigns = kElement == 2 ? 0x80008000u : 0x80808080u;
  static constexpr std::uint32_t kFlipA = kNegated == 1 ? kSigns : 0;
  static constexpr std::uint32_t kFlipB = kNegated == 2 ? kSigns : 0;
  static constexpr int kSparseElement = kNegated == 0 ? kElement : 0;
  static inline std::uint32_t kFiller = 0;  // set by `simulate`: of the probe's format

  static void issue(Register (&sums)[kRegisters], std::uint64_t a, std::uint64_t b) {
    // Asynchronous: done when it is waited for.
    products_in_flight->start([&sums, a, b] {
      issue_rows(
          sums,
          [a](int row) {
            const Row bytes = row_behind(a, row);
            return kNegated == 1 ? negated(bytes, planted.probe.a_format) : bytes;
          },
          [b](int column) {
            const Row bytes = row_behind(b, column);
            return kNegated == 2 ? negated(bytes, planted.probe.b_format) : bytes;
          });
    });
  }
  static void issue(Register (&sums)[kRegisters], std::uint64_t a, std::uint64_t b,
                    std::uint32_t metadata) {
    products_in_flight->start([&sums, a, b, metadata] {
      issue_rows(
          sums, [a](int row) { return row_behind(a, row); },
          [b, metadata](int column) { return selected(row_behind<64>(b, column), metadata); });
    });
  }
  static void issue(Register (&sums)[kRegisters], const std::uint32_t (&a)[4], std::uint64_t b) {
    show_a(a);
    __syncthreads();
    issue_rows(
        sums, [](int row) { return a_fragments.row(row); },
        [b](int column) { return row_behind(b, column); });
    __syncthreads();
  }

 private:
  template <typename ReadA, typename ReadB>
  static void issue_rows(Register (&sums)[kRegisters], ReadA read_a, ReadB read_b) {
    const int thread = static_cast<int>(threadIdx.x);
    for (int i = 0; i < kColumns / 2; ++i) {
      const int row = thread / 32 * 16 + thread % 32 / 4 + (i % 4 >= 2 ? 8 : 0);
      const int column = i / 4 * 8 + thread % 4 * 2 + i % 2;
      put_sum(sums, i, planted_result(read_a(row), read_b(column), get_sum(sums, i)));
    }
  }
};

/// How kinds of tcgen05 number the types of operands.
inline std::uint32_t tcgen05_type(FormatId id) {
  const bool halves = planted.probe.narrow_operands() == NarrowOperands::in_halves;
  switch (id) {
    case FormatId::e5m2:
    case FormatId::bf16:
      return 1;
    case FormatId::tf32:
      return 2;
    case FormatId::e2m3:
      return 3;
    case FormatId::e3m2:
      return 4;
    case FormatId::e2m1:
      return halves ? 1 : 5;
    default:
      return 0;
  }
}

/// kElement: bytes of an element of a sparse instruction.
template <bool kHalf, int kScaleCount, int kElement = 0>
struct SimulatedTcgen05 : Tcgen05Defaults {
  static inline int kA = 0;  // set by `simulate`: the kernel's descriptor is not a constant here
  static inline int kB = 0;
  static inline int kScaleType = 0;
  static inline std::uint32_t kFlipA = 0;
  static inline std::uint32_t kFlipB = 0;
  static inline std::uint32_t kFiller = 0;
  static constexpr int kSparseElement = kElement;
  static constexpr bool kHalfSums = kHalf;
  static constexpr int kScales = kScaleCount;

  /// `beside`: of a sparse instruction, where its metadata is; then where scales of A and B are.
  template <typename... Columns>
  static void issue(std::uint32_t d, std::uint64_t a, std::uint64_t b, std::uint32_t instruction,
                    Columns... beside) {
    constexpr std::size_t kFirstScale = kElement > 0 ? 1 : 0;
    static_assert(sizeof...(Columns) == kFirstScale + (kScaleCount > 0 ? 2 : 0));
    const std::array<std::uint32_t, 4> columns{beside...};
    const auto field = [instruction](int bit, std::uint32_t mask) {
      return (instruction >> bit) & mask;
    };
    // K-major operands, version 1 descriptors; binary32 sums are 1, FP16 ones 0. With block scales,
    // instead of that: scales in the low bytes, and their type.
    const std::uint32_t sums = kScaleCount > 0 || kHalf ? 0 : 1;
    const bool ue8m0 = planted.probe.scales && planted.probe.scales->format == ScaleFormat::ue8m0;
    if (field(0, 3) != 0 || field(2, 1) != (kElement > 0 ? 1 : 0) || field(3, 1) != 0 ||
        field(4, 3) != sums || field(15, 3) != 0 || field(29, 7) != 0 ||
        field(7, 7) != tcgen05_type(planted.probe.a_format) ||
        field(10, 7) != tcgen05_type(planted.probe.b_format) || field(23, 1) != (ue8m0 ? 1 : 0) ||
        ((a >> 46) & 7) != 1 || ((b >> 46) & 7) != 1 || a >> 52 != 0 || b >> 52 != 0)
      std::abort();
    issued.emplace_back([=] {
      for (int row = 0; row < static_cast<int>(16 * field(24, 0x1f)); ++row)
        for (int column = 0; column < static_cast<int>(8 * field(17, 0x3f)); ++column) {
          std::uint32_t& cell = tensor_lanes[static_cast<std::size_t>(row)]
                                            [(d & 0xffffu) + static_cast<std::uint32_t>(column)];
          // FP16 sums have the low half of a word; the other half may hold anything.
          float sum = std::bit_cast<float>(cell);
          if (kHalf) sum = get_sum(&cell, 0);
          Row of_a = row_behind(a, row);
          Row of_b{};
          if constexpr (kElement > 0)
            of_b = selected(row_behind<64>(b, column), metadata_of(columns[0], row));
          else
            of_b = row_behind(b, column);
          if (field(13, 1) != 0) of_a = negated(of_a, planted.probe.a_format);
          if (field(14, 1) != 0) of_b = negated(of_b, planted.probe.b_format);
          sum = planted_result(of_a, of_b, sum, scales_of(columns[kFirstScale], row),
                               scales_of(columns[kFirstScale + 1], column));
          cell = std::bit_cast<std::uint32_t>(sum);
          if (!kHalf) continue;
          cell = 0xdead0000u;
          put_sum(&cell, 0, sum);
        }
    });
  }

 private:
  /// Four bits for each of 16 groups: two columns of a row's lane, which hold the same here.
  static std::uint32_t metadata_of(std::uint32_t columns, int row) {
    const auto& lane = tensor_lanes[static_cast<std::size_t>(row)];
    const std::size_t column = columns & 0xffffu;
    if (column % 4 != 0 || lane[column] != lane[column + 1]) std::abort();
    return lane[column];
  }
  /// Row 32 j + l of 128: lane l of column j, in every quarter of the lanes.
  static std::vector<std::uint8_t> scales_of(std::uint32_t columns, int row) {
    std::vector<std::uint8_t> bytes;
    if (kScaleCount == 0) return bytes;
    const std::size_t column = (columns & 0xffffu) + static_cast<std::size_t>(row) / 32;
    const auto lane = static_cast<std::size_t>(row) % 32;
    const std::uint32_t word = tensor_lanes[lane][column];
    for (const std::size_t other : std::array<std::size_t, 3>{32, 64, 96})
      if (tensor_lanes[lane + other][column] != word) std::abort();
    for (int i = 0; i < kScaleCount; ++i)
      bytes.push_back(static_cast<std::uint8_t>(word >> (8 * i)));
    return bytes;
  }
};

}  // namespace fp8lab::cuda
