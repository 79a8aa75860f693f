// The layout maps against the PTX ISA's formulas, written here once more from
// the tables of its sections, element by element and not by bytes.

#include "cuda/layout.hpp"

#include <set>
#include <utility>

#include "catch.hpp"

using namespace fp8lab::cuda;

namespace {

struct RowColumn {
  int row;
  int column;
};

// mma.m16n8k32, 8-bit A: a0..a15, sixteen elements a thread.
RowColumn mma_a_8bit(int lane, int i) {
  const int group = lane >> 2;
  const int thread_in_group = lane % 4;
  const int row = (i < 4 || (i >= 8 && i < 12)) ? group : group + 8;
  const int column = i < 8 ? thread_in_group * 4 + (i & 3) : thread_in_group * 4 + (i & 3) + 16;
  return {row, column};
}

// mma.m16n8k32, 8-bit B: b0..b7, {k, n}.
RowColumn mma_b_8bit(int lane, int i) {
  const int k = i < 4 ? (lane % 4) * 4 + (i & 3) : (lane % 4) * 4 + (i & 3) + 16;
  return {k, lane >> 2};
}

// mma.m16n8k16, 16-bit A: a0..a7.
RowColumn mma_a_16bit(int lane, int i) {
  const int group = lane >> 2;
  const int row = (i < 2 || (i >= 4 && i < 6)) ? group : group + 8;
  const int column = i < 4 ? (lane % 4) * 2 + (i & 1) : (lane % 4) * 2 + (i & 1) + 8;
  return {row, column};
}

// mma.m16n8k8, TF32 A: a0..a3.
RowColumn mma_a_tf32(int lane, int i) {
  return {(i == 0 || i == 2) ? lane >> 2 : (lane >> 2) + 8,
          (i == 0 || i == 1) ? lane % 4 : lane % 4 + 4};
}

// mma.m16n8, C and D: c0..c3.
RowColumn mma_c(int lane, int i) {
  return {i < 2 ? lane >> 2 : (lane >> 2) + 8, (lane % 4) * 2 + (i & 1)};
}

// wgmma m64nN, D: the figure's 8 x 8 blocks, four values a thread and 8 columns.
RowColumn wgmma_d(int thread, int i) {
  const int warp = thread / 32;
  const int lane = thread % 32;
  const int block = i / 4;
  const int within = i % 4;
  return {warp * 16 + (within >= 2 ? 8 : 0) + lane / 4, block * 8 + (lane % 4) * 2 + within % 2};
}

}  // namespace

TEST_CASE("fragments of A lie where the PTX ISA puts them, for every element width", "[cuda]") {
  for (int thread = 0; thread < 128; ++thread) {
    const int lane = thread % 32;
    const int warp_row = 16 * (thread / 32);
    for (int reg = 0; reg < 4; ++reg) {
      const Place place = a_fragment(thread, reg);
      INFO("thread " << thread << " register " << reg);
      for (int byte = 0; byte < 4; ++byte) {
        const RowColumn expected = mma_a_8bit(lane, 4 * reg + byte);
        CHECK(place.row == warp_row + expected.row);
        CHECK(place.column + byte == expected.column);
      }
      for (int half = 0; half < 2; ++half) {
        const RowColumn expected = mma_a_16bit(lane, 2 * reg + half);
        CHECK(place.row == warp_row + expected.row);
        CHECK(place.column + 2 * half == 2 * expected.column);
      }
      CHECK(place.row == warp_row + mma_a_tf32(lane, reg).row);
      CHECK(place.column == 4 * mma_a_tf32(lane, reg).column);
    }
  }
}

TEST_CASE("fragments of B and accumulators lie where the PTX ISA puts them", "[cuda]") {
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 8; ++i) {
      const Place place = b_fragment(lane, i / 4);
      CHECK(place.row == mma_b_8bit(lane, i).column);
      CHECK(place.column + i % 4 == mma_b_8bit(lane, i).row);
    }
    for (int i = 0; i < 4; ++i) {
      CHECK(accumulator(lane, i).row == mma_c(lane, i).row);
      CHECK(accumulator(lane, i).column == mma_c(lane, i).column);
    }
  }
  std::set<std::pair<int, int>> seen;
  for (int thread = 0; thread < 128; ++thread)
    for (int i = 0; i < 128; ++i) {
      const RowColumn expected = wgmma_d(thread, i);
      CHECK(accumulator(thread, i) == Place{expected.row, expected.column});
      seen.insert({expected.row, expected.column});
    }
  CHECK(seen.size() == 64 * 256);  // N = 256: every output has one owner
}

TEST_CASE("the unswizzled tile is made of 8 x 16 byte core matrices", "[cuda]") {
  std::set<std::uint32_t> offsets;
  for (int row = 0; row < 64; ++row)
    for (int byte = 0; byte < 32; ++byte) {
      // The documented canonical layout: ((8, rows/8), (16, 2)) with strides
      // ((16, stride), (1, leading)).
      const std::uint32_t expected = static_cast<std::uint32_t>(row % 8) * 16 +
                                     static_cast<std::uint32_t>(row / 8) * kCoreStrideBytes +
                                     static_cast<std::uint32_t>(byte % 16) +
                                     static_cast<std::uint32_t>(byte / 16) * kCoreLeadingBytes;
      CHECK(core_matrix_offset(row, byte) == expected);
      offsets.insert(expected);
    }
  CHECK(offsets.size() == 64 * 32);
  CHECK(*offsets.rbegin() == 64 * 32 - 1);
}

TEST_CASE("the swizzled tile exchanges 16-byte chunks within 1024-byte atoms", "[cuda]") {
  std::set<std::uint32_t> offsets;
  for (int row = 0; row < 128; ++row)
    for (int byte = 0; byte < 128; ++byte) {
      // Chunk j of row r of an atom of 8 rows stands at chunk j xor r.
      const int atom = row / 8;
      const int chunk = (byte / 16) ^ (row % 8);
      const int expected = atom * 1024 + (row % 8) * 128 + chunk * 16 + byte % 16;
      CHECK(swizzled_offset(row, byte) == static_cast<std::uint32_t>(expected));
      offsets.insert(swizzled_offset(row, byte));
    }
  CHECK(offsets.size() == 128 * 128);
}

TEST_CASE("descriptor fields stand at their documented bits", "[cuda]") {
  const std::uint64_t core = core_descriptor(0x12340);
  CHECK((core & 0x3fff) == 0x1234);
  CHECK(((core >> 16) & 0x3fff) == 128 / 16);
  CHECK(((core >> 32) & 0x3fff) == 256 / 16);
  CHECK(((core >> 49) & 7) == 0);
  CHECK((core >> 62) == 0);

  const std::uint64_t third = swizzled_descriptor(0x8400, 3);
  CHECK((third & 0x3fff) == (0x8400 + 96) / 16);
  CHECK(((third >> 32) & 0x3fff) == 1024 / 16);
  CHECK((third >> 62) == 1);
  // Bits that the format leaves empty.
  CHECK((third & 0x3ff1c000c000c000u) == 0);
}
