#pragma once
// Where matrix elements sit in registers and in shared memory, as the PTX ISA
// documents it for mma.sync ("Matrix Fragments for mma.m16n8k32" and its
// siblings) and wgmma.mma_async ("Register Fragments", "Shared Memory Matrix
// Layout", "Matrix Descriptor Format").
//
// Every instruction that is used here takes 32 bytes of K from each row of A
// and of B (32 FP8, 16 FP16 or BF16, 8 TF32 elements), and in bytes all types
// share one layout. Columns of operands below are therefore byte offsets in K.

#include <cstdint>

#include "host_device.hpp"

namespace fp8lab::cuda {

/// Bytes of K that one instruction takes from each row.
inline constexpr int kStepBytes = 32;

struct Place {
  int row = 0;     ///< of A or D; of B: its column n
  int column = 0;  ///< of D; of A and B: the first of four bytes of K

  friend constexpr bool operator==(const Place&, const Place&) = default;
};

/// A in registers: where register `reg` (0 .. 3) of `thread` comes from. wgmma:
/// 128 threads, 64 rows; mma.sync: the first 32 threads, 16 rows.
FP8LAB_HD constexpr Place a_fragment(int thread, int reg) {
  const int lane = thread % 32;
  return {16 * (thread / 32) + lane / 4 + 8 * (reg % 2), 4 * (lane % 4) + 16 * (reg / 2)};
}

/// B of mma.sync in registers: register `reg` of `lane`, 0 and 1, or 0 to 3 of the 64 bytes that a
/// sparse instruction takes.
FP8LAB_HD constexpr Place b_fragment(int lane, int reg) {
  return {lane / 4, 4 * (lane % 4) + 16 * reg};
}

/// Block scales of mma.sync ("Selection of scaling vector"): whose scales `lane` holds. With
/// selector 0 the first two threads of four give A's rows lane / 4 and lane / 4 + 8, the first one
/// B's column; the others hold the same.
FP8LAB_HD constexpr int scale_row_of_a(int lane) { return lane / 4 + 8 * (lane % 2); }
FP8LAB_HD constexpr int scale_column_of_b(int lane) { return lane / 4; }

/// The accumulator: element `index` of `thread`, index < N / 2. mma.sync has N =
/// 8 and one warp. FP16 accumulators hold elements 2i and 2i + 1 in register i.
FP8LAB_HD constexpr Place accumulator(int thread, int index) {
  const int lane = thread % 32;
  return {16 * (thread / 32) + lane / 4 + 8 * (index / 2 % 2),
          8 * (index / 4) + 2 * (lane % 4) + index % 2};
}

/// How shared memory is swizzled, as the descriptor encodes it.
enum class Swizzle : std::uint32_t { none = 0, bytes128 = 1 };

/// A K-major tile with 32 bytes of K (`row_bytes`) and no swizzle: core matrices of 8 rows by
/// 16 bytes, each 128 contiguous bytes, those of a row group beside each other.
FP8LAB_HD constexpr std::uint32_t core_matrix_offset(int row, int byte,
                                                     int row_bytes = kStepBytes) {
  return static_cast<std::uint32_t>((row / 8) * 8 * row_bytes + (byte / 16) * 128 + (row % 8) * 16 +
                                    byte % 16);
}
inline constexpr std::uint32_t kCoreLeadingBytes = 128;  ///< to the next 16 bytes of K
inline constexpr std::uint32_t kCoreStrideBytes = 256;   ///< to the next 8 rows

/// A K-major tile with 128 bytes of K and the 128-byte swizzle: rows of 128
/// bytes whose 16-byte chunks are exchanged by the row's number modulo 8. The
/// tile must start at a multiple of 1024 bytes.
FP8LAB_HD constexpr std::uint32_t swizzled_offset(int row, int byte) {
  const auto linear = static_cast<std::uint32_t>(row * 128 + byte);
  return linear ^ (((linear >> 7) & 7u) << 4);
}
inline constexpr std::uint32_t kSwizzledStrideBytes = 1024;  ///< to the next 8 rows

/// The matrix descriptor: start address, leading and stride byte offsets in
/// units of 16 bytes at bits 0, 16 and 32, and the swizzle at bit 62. The base
/// offset (bit 49) stays 0 because tiles are aligned. The leading offset is
/// ignored where the swizzle spans the tile's K.
FP8LAB_HD constexpr std::uint64_t descriptor(std::uint32_t shared_address,
                                             std::uint32_t leading_bytes,
                                             std::uint32_t stride_bytes, Swizzle swizzle) {
  const auto field = [](std::uint32_t bytes) {
    return static_cast<std::uint64_t>((bytes & 0x3ffffu) >> 4);
  };
  return field(shared_address) | (field(leading_bytes) << 16) | (field(stride_bytes) << 32) |
         (static_cast<std::uint64_t>(swizzle) << 62);
}

FP8LAB_HD constexpr std::uint64_t core_descriptor(std::uint32_t shared_address) {
  return descriptor(shared_address, kCoreLeadingBytes, kCoreStrideBytes, Swizzle::none);
}

/// Sparse instructions keep two of every four elements of A along K, and a word of metadata says
/// which: four bits a group, the place of the first element in the lower two. This word has the
/// places 0 1, 1 2, 0 3 and 2 3 twice. As all threads hold it, it does not matter which rows and
/// groups a thread's word is for.
inline constexpr std::uint32_t kSparseMetadata = 0xec94ec94u;
FP8LAB_HD constexpr int sparse_place(int group, int which) {
  return static_cast<int>((kSparseMetadata >> (4 * (group % 8) + 2 * which)) & 3u);
}

/// Bytes of K that a sparse instruction takes from each row of B: twice those of A.
inline constexpr int kSparseBytes = 2 * kStepBytes;

/// Word `word` of 16 of a row of B for a sparse instruction: the 32 bytes `dense` at the places
/// that the metadata names, `filler` at the others.
FP8LAB_HD inline std::uint32_t sparse_word(const std::uint8_t* dense, int word, int element_bytes,
                                           std::uint32_t filler) {
  std::uint32_t bits = 0;
  for (int byte = 0; byte < 4; ++byte) {
    const int element = (4 * word + byte) / element_bytes;
    const int group = element / 4;
    std::uint32_t value = (filler >> (8 * (byte % element_bytes))) & 0xffu;
    for (int which = 0; which < 2; ++which)
      if (sparse_place(group, which) == element % 4)
        value = dense[(2 * group + which) * element_bytes + byte % element_bytes];
    bits |= value << (8 * byte);
  }
  return bits;
}

/// A tile of such rows.
FP8LAB_HD constexpr std::uint64_t sparse_descriptor(std::uint32_t shared_address) {
  return descriptor(shared_address, kCoreLeadingBytes, 8 * kSparseBytes, Swizzle::none);
}

/// Step `step` (32 bytes of K) of a swizzled tile: the start address moves on
/// within the row, the hardware applies the swizzle to the whole address.
FP8LAB_HD constexpr std::uint64_t swizzled_descriptor(std::uint32_t shared_address, int step) {
  return descriptor(shared_address + static_cast<std::uint32_t>(step * kStepBytes), 16,
                    kSwizzledStrideBytes, Swizzle::bytes128);
}

/// The same tile as tcgen05 asks for it ("Shared memory descriptor"): the fields above, and a
/// constant 1 at bit 46.
FP8LAB_HD constexpr std::uint64_t tcgen05_descriptor(std::uint32_t shared_address) {
  return core_descriptor(shared_address) | (std::uint64_t{1} << 46);
}
FP8LAB_HD constexpr std::uint64_t tcgen05_sparse_descriptor(std::uint32_t shared_address) {
  return sparse_descriptor(shared_address) | (std::uint64_t{1} << 46);
}

/// tcgen05's instruction descriptor for K-major operands: the sums' type at bit 4 (1:
/// binary32, 0: FP16), A's at 7, B's at 10, N / 8 at 17, M / 16 at 24. Types: of kind f16 0 FP16, 1
/// BF16; of tf32 2; of f8f6f4 0 E4M3, 1 E5M2.
FP8LAB_HD constexpr std::uint32_t tcgen05_instruction(int sum_type, int a_type, int b_type, int m,
                                                      int n) {
  return (static_cast<std::uint32_t>(sum_type) << 4) | (static_cast<std::uint32_t>(a_type) << 7) |
         (static_cast<std::uint32_t>(b_type) << 10) | (static_cast<std::uint32_t>(n / 8) << 17) |
         (static_cast<std::uint32_t>(m / 16) << 24);
}

/// What either descriptor has beside that: bit 2 for a sparse A, bits 13 and 14 for A and B
/// negated.
FP8LAB_HD constexpr std::uint32_t tcgen05_form(bool sparse, bool negate_a, bool negate_b) {
  return (sparse ? 1u << 2 : 0u) | (negate_a ? 1u << 13 : 0u) | (negate_b ? 1u << 14 : 0u);
}

/// The same for block scales, whose sums are always binary32: bits 4 and 29 say in which byte of
/// its word B's and A's first scale is (here the lowest), bit 23 the scales' type (0 UE4M3, 1
/// UE8M0). Types: of kind mxf8f6f4 0 E4M3, 1 E5M2, 3 E2M3, 4 E3M2, 5 E2M1; of mxf4nvf4 1 E2M1.
FP8LAB_HD constexpr std::uint32_t tcgen05_scaled_instruction(int scale_type, int a_type, int b_type,
                                                             int m, int n) {
  return tcgen05_instruction(0, a_type, b_type, m, n) |
         (static_cast<std::uint32_t>(scale_type) << 23);
}

/// Block scales of tcgen05 in tensor memory: a word of at most four scales for each of 128 rows,
/// four columns of 32 lanes, and the same again in each warp's lanes. Whose scales stand in
/// `column`, 0 to 3, of `lane`.
FP8LAB_HD constexpr int tcgen05_scale_row(int lane, int column) { return 32 * column + lane % 32; }

}  // namespace fp8lab::cuda
