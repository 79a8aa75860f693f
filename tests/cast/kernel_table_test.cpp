// The tables of kernels, and the encodes under many scales that only other rooms call.

#include "fp8lab/cast/kernels/kernels.hpp"

#include <bit>

#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"

using namespace fp8lab;
using namespace fp8lab::cast_kernels;

namespace {

constexpr std::size_t kColumns = 192;

/// Any bits at all, and then products of every size.
std::vector<float> any_bits(std::size_t count, std::uint64_t seed) {
  const RandomStream random(seed, "kernel_table_test");
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = i % 3 == 0 ? std::bit_cast<float>(random.bits32(i))
                           : static_cast<float>(random.normal(i)) * 100.0F;
  return values;
}

/// The plans of kernels for rounding to nearest, by format and profile.
std::vector<EncodePlan> plans() {
  std::vector<EncodePlan> result;
  for (const FormatId id : {FormatId::e4m3fn, FormatId::e5m2, FormatId::e4m3fnuz, FormatId::e2m1})
    for (const CastProfile& profile : kCastProfiles) {
      const EncodePlan plan = make_plan(format(id), profile.policy, 1.0F);
      if (plan.kernel == EncodeKernel::nearest) result.push_back(plan);
    }
  return result;
}

std::vector<std::uint8_t> tile_codes(const KernelTable& kernels, TileTask task) {
  // The byte behind the last code is not written.
  std::vector<std::uint8_t> codes(task.count + 1, 0x55);
  task.out = codes.data();
  kernels.nearest.encode_tiles(task);
  return codes;
}

std::vector<std::uint8_t> crossed_codes(const KernelTable& kernels, CrossTask task) {
  std::vector<std::uint8_t> codes(2 * task.rows * task.columns);
  task.row_codes = codes.data();
  task.column_codes = codes.data() + task.rows * task.columns;
  kernels.nearest.encode_crossed(task);
  return codes;
}

}  // namespace

TEST_CASE("every instruction set has casts of its own", "[cast]") {
  for (const Target target : available_targets()) {
    const KernelTable& table = kernel_table(target);
    INFO(to_string(target));
    const bool own = target != Target::scalar;
    CHECK((table.nearest.encode != kScalarKernels.nearest.encode) == own);
    CHECK((table.rounding.encode != kScalarKernels.rounding.encode) == own);
    CHECK((table.general.encode != kScalarKernels.general.encode) == own);
    CHECK((table.decode.decode != kScalarKernels.decode.decode) == own);
  }
}

TEST_CASE("encodes of tiles are the reference's on every target", "[cast]") {
  const std::vector<float> in = any_bits(kColumns, 1);
  const std::vector<float> factors = any_bits(kColumns + 64, 2);
  for (const EncodePlan& plan : plans())
    for (const std::size_t block : {1U, 32U, 64U, 96U, 1000U})
      for (const std::size_t count : {1U, 15U, 33U, 63U, 130U, 192U})
        for (const bool divide : {false, true}) {
          const TileTask task{.plan = &plan,
                              .in = in.data(),
                              .count = count,
                              .block = block,
                              .factors = factors.data(),
                              .divide = divide};
          const std::vector<std::uint8_t> expected = tile_codes(kScalarKernels, task);
          for (const Target target : available_targets()) {
            INFO(plan.format->name << " on " << to_string(target) << ", " << count
                                   << " in tiles of " << block << ", divided: " << divide);
            CHECK((tile_codes(kernel_table(target), task) == expected));
          }
        }
}

TEST_CASE("encodes by row and by column are the reference's on every target", "[cast]") {
  constexpr std::size_t kRows = 5;
  const std::vector<float> wild = any_bits(kRows * kColumns, 3);
  const std::vector<float> wild_factors = any_bits(kRows * kColumns, 4);
  // Neither overflow nor NaN.
  const std::vector<float> tame_factors(kRows * kColumns, 0.37F);
  std::vector<float> tame(wild.size());
  for (std::size_t i = 0; i < tame.size(); ++i)
    tame[i] = (i % 2 == 0 ? 0.001F : -0.013F) * static_cast<float>(i % 101);
  for (const EncodePlan& plan : plans()) {
    if (plan.nearest_plan.small_numbers != SmallNumbers::gradual) continue;
    for (const std::size_t block : {32U, 96U, 192U})
      for (const bool bounded : {false, true})
        for (const bool divide : {false, true}) {
          const std::vector<float>& factors = bounded ? tame_factors : wild_factors;
          const std::vector<float>& in = bounded ? tame : wild;
          const CrossTask task{.plan = &plan,
                               .in = in.data(),
                               .stride = kColumns,
                               .rows = kRows,
                               .columns = kColumns,
                               .row_factors = factors.data(),
                               .block = block,
                               .column_factors = factors.data() + 100,
                               .divide = divide,
                               .bounded = bounded,
                               .row_stride = kColumns,
                               .column_stride = kColumns,
                               .next = in.data(),
                               .next_stride = kColumns};
          const std::vector<std::uint8_t> expected = crossed_codes(kScalarKernels, task);
          for (const Target target : available_targets()) {
            INFO(plan.format->name << " on " << to_string(target) << ", tiles of " << block
                                   << ", bounded: " << bounded << ", divided: " << divide);
            CHECK((crossed_codes(kernel_table(target), task) == expected));
          }
        }
  }
}

TEST_CASE("a tile at the end of a row has a factor of its own", "[cast]") {
  const EncodePlan plan = make_plan(format(FormatId::e4m3fn), kNvidiaNosat, 1.0F);
  const auto code = [&](float x) {
    return static_cast<std::uint8_t>(encode(*plan.format, plan.policy, x));
  };
  for (const std::size_t block : {64U, 96U, 128U, 160U, 192U, 1000U}) {
    const std::size_t tiles = (kColumns + block - 1) / block;
    constexpr std::size_t kRows = 3;
    const std::vector<float> ones(kRows * kColumns, 1.0F);
    std::vector<float> rows(kRows * tiles);
    std::vector<float> columns(kColumns);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i + 1);
    for (std::size_t c = 0; c < kColumns; ++c) columns[c] = static_cast<float>(c % 15 + 1);
    const CrossTask task{.plan = &plan,
                         .in = ones.data(),
                         .stride = kColumns,
                         .rows = kRows,
                         .columns = kColumns,
                         .row_factors = rows.data(),
                         .block = block,
                         .column_factors = columns.data(),
                         .row_stride = kColumns,
                         .column_stride = kColumns,
                         .next = ones.data(),
                         .next_stride = kColumns};
    std::vector<std::uint8_t> expected(2 * kRows * kColumns);
    for (std::size_t r = 0; r < kRows; ++r)
      for (std::size_t c = 0; c < kColumns; ++c) {
        expected[r * kColumns + c] = code(rows[r * tiles + c / block]);
        expected[(kRows + r) * kColumns + c] = code(columns[c]);
      }
    for (const Target target : available_targets()) {
      INFO(to_string(target) << ", " << tiles << " tiles of " << block);
      CHECK((crossed_codes(kernel_table(target), task) == expected));
    }
  }
}
