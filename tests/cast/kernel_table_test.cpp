// The tables of kernels, and the encodes under many scales that only other rooms call.

#include "fp8lab/cast/kernels/kernels.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>
#include <vector>

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

TEST_CASE("encodes by row and by column keep to strides that are all unlike", "[cast]") {
  constexpr std::size_t kRows = 4;
  constexpr std::size_t kWide = 128;
  constexpr std::size_t kStride = kWide + 24;
  constexpr std::size_t kNextStride = kWide + 40;
  constexpr std::uint8_t kUntouched = 0x55;
  const std::vector<float> in = any_bits(kRows * kStride, 5);
  const std::vector<float> next = any_bits(kRows * kNextStride + 64, 6);
  const std::vector<float> row_factors = any_bits(kRows * 4, 7);
  const std::vector<float> column_factors = any_bits(kWide, 8);
  const EncodePlan plan = make_plan(format(FormatId::e4m3fn), kNvidiaSatfinite, 1.0F);
  const auto code = [&](float x, float factor, bool divide) {
    const float scaled = divide ? x / factor : x * factor;
    return static_cast<std::uint8_t>(
        encode(*plan.format, plan.policy, std::isnan(scaled) ? std::fabs(scaled) : scaled));
  };
  // Row codes that begin on whole vectors, or not; columns' always apart.
  for (const std::size_t row_stride : {kWide + 64, kWide + 8})
    for (const std::size_t offset : {0U, 1U, 32U})
      for (const bool stream : {false, true})
        for (const bool divide : {false, true})
          for (const std::size_t block : {32U, 64U, 96U, 128U}) {
            const std::size_t tiles = (kWide + block - 1) / block;
            constexpr std::size_t kColumnStride = kWide + 16;
            std::vector<std::uint8_t> by_column(kRows * kColumnStride, kUntouched);
            std::vector<std::uint8_t> expected_columns = by_column;
            std::vector<std::uint8_t> memory(kRows * row_stride + 192, kUntouched);
            const std::size_t begin =
                64 - std::bit_cast<std::uintptr_t>(memory.data()) % 64 + offset;
            std::vector<std::uint8_t> expected = memory;
            for (std::size_t r = 0; r < kRows; ++r)
              for (std::size_t c = 0; c < kWide; ++c) {
                const float x = in[r * kStride + c];
                expected[begin + r * row_stride + c] =
                    code(x, row_factors[r * tiles + c / block], divide);
                expected_columns[r * kColumnStride + c] = code(x, column_factors[c], divide);
              }
            for (const Target target : available_targets()) {
              std::ranges::fill(memory, kUntouched);
              std::ranges::fill(by_column, kUntouched);
              kernel_table(target).nearest.encode_crossed({.plan = &plan,
                                                           .in = in.data(),
                                                           .stride = kStride,
                                                           .rows = kRows,
                                                           .columns = kWide,
                                                           .row_factors = row_factors.data(),
                                                           .block = block,
                                                           .column_factors = column_factors.data(),
                                                           .divide = divide,
                                                           .row_codes = memory.data() + begin,
                                                           .row_stride = row_stride,
                                                           .column_codes = by_column.data(),
                                                           .column_stride = kColumnStride,
                                                           .next = next.data(),
                                                           .next_stride = kNextStride,
                                                           .stream = stream});
              INFO(to_string(target)
                   << ", rows of " << row_stride << " at " << offset << ", stream " << stream
                   << ", tiles of " << block << ", divided " << divide);
              CHECK((memory == expected));
              CHECK((by_column == expected_columns));
            }
          }
}

TEST_CASE("encodes of tiles are the same wherever they begin, and around the caches", "[cast]") {
  constexpr std::uint8_t kUntouched = 0x55;
  const std::vector<float> in = any_bits(400, 9);
  const std::vector<float> factors = any_bits(400 + 64, 10);
  for (const auto& [id, policy] :
       {std::pair{FormatId::e4m3fn, kNvidiaSatfinite}, std::pair{FormatId::e5m2, kFlush},
        std::pair{FormatId::e2m1, kNvidiaSatfinite}}) {
    const EncodePlan plan = make_plan(format(id), policy, 1.0F);
    for (const std::size_t block : {1U, 32U, 160U, 1000U})
      for (const std::size_t count : {0U, 1U, 31U, 32U, 64U, 95U, 300U})
        for (const bool stream : {false, true})
          for (const std::size_t offset : {0U, 1U, 4U, 8U, 16U, 24U, 32U}) {
            std::vector<std::uint8_t> memory(count + 128, kUntouched);
            const std::size_t begin =
                64 - std::bit_cast<std::uintptr_t>(memory.data()) % 64 + offset % 64;
            std::vector<std::uint8_t> expected = memory;
            for (std::size_t i = 0; i < count; ++i) {
              const float x = in[i] * factors[i / block];
              expected[begin + i] = static_cast<std::uint8_t>(
                  encode(*plan.format, plan.policy, std::isnan(x) ? std::fabs(x) : x));
            }
            for (const Target target : available_targets()) {
              std::ranges::fill(memory, kUntouched);
              kernel_table(target).nearest.encode_tiles({.plan = &plan,
                                                         .in = in.data(),
                                                         .out = memory.data() + begin,
                                                         .count = count,
                                                         .block = block,
                                                         .factors = factors.data(),
                                                         .stream = stream});
              INFO(plan.format->name << " on " << to_string(target) << ", " << count
                                     << " in tiles of " << block << " at " << offset << ", stream "
                                     << stream);
              CHECK((memory == expected));
            }
          }
  }
}

TEST_CASE("any number of FP16 and BF16 numbers is widened, and no more", "[cast]") {
  std::vector<std::uint16_t> in(140);
  for (const FormatId input : {FormatId::f16, FormatId::bf16}) {
    for (std::size_t i = 0; i < in.size(); ++i)
      in[i] = static_cast<std::uint16_t>(i * 977 + (i % 5 == 0 ? 0x7c00 : 0));
    for (std::size_t count = 0; count <= 130; ++count) {
      const std::size_t offset = count % 9;
      std::vector<float> expected(in.size(), 42.0F);
      for (std::size_t i = 0; i < count; ++i) expected[i] = decode_table(input)[in[offset + i]];
      for (const Target target : available_targets()) {
        std::vector<float> got(in.size(), 42.0F);
        kernel_table(target).decode.widen(input, in.data() + offset, got.data(), count);
        INFO(format(input).name << " on " << to_string(target) << ", " << count << " from "
                                << offset);
        bool equal = true;
        for (std::size_t i = 0; i < got.size(); ++i)
          equal =
              equal && (std::isnan(expected[i]) ? std::isnan(got[i])
                                                : std::bit_cast<std::uint32_t>(got[i]) ==
                                                      std::bit_cast<std::uint32_t>(expected[i]));
        CHECK(equal);
      }
    }
  }
}

TEST_CASE("any number of codes is decoded, and no more", "[cast]") {
  for (const FormatId id : {FormatId::e4m3fn, FormatId::e5m2, FormatId::e2m1}) {
    const Format& f = format(id);
    for (const float scale : {1.0F, 0x1.8p-40F, 0x1.8p126F})
      for (std::size_t count = 0; count <= 70; ++count) {
        std::vector<std::uint8_t> codes(count + 9);
        for (std::size_t i = 0; i < codes.size(); ++i)
          codes[i] = static_cast<std::uint8_t>((i * 37 + 2) & ((1U << f.code_bits()) - 1));
        const std::size_t offset = count % 9;
        for (const Target target : available_targets()) {
          std::vector<float> got(count + 4, 42.0F);
          kernel_table(target).decode.decode({.format = &f,
                                              .in = codes.data() + offset,
                                              .out = got.data(),
                                              .count = count,
                                              .inverse_scale = scale});
          INFO(f.name << " on " << to_string(target) << ", " << count << " codes, scale " << scale);
          int wrong = 0;
          for (std::size_t i = 0; i < got.size(); ++i) {
            const float expected =
                i < count ? static_cast<float>(decode(f, codes[offset + i])) * scale : 42.0F;
            wrong += std::isnan(expected) ? !std::isnan(got[i])
                                          : std::bit_cast<std::uint32_t>(expected) !=
                                                std::bit_cast<std::uint32_t>(got[i]);
          }
          CHECK(wrong == 0);
        }
      }
  }
}

TEST_CASE("codes by way of FP16 decode under every inverse scale that leaves it exact", "[cast]") {
  for (const Format& f : kFormats) {
    if (f.code_bits() > 8) continue;
    std::vector<std::uint8_t> codes(256);
    for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i);
    // Up to where a factor overflows, and on.
    for (int exponent = 96; exponent < 128; ++exponent) {
      const float scale = std::ldexp(1.75F, exponent);
      for (const Target target : available_targets()) {
        std::vector<float> got(codes.size());
        kernel_table(target).decode.decode({.format = &f,
                                            .in = codes.data(),
                                            .out = got.data(),
                                            .count = codes.size(),
                                            .inverse_scale = scale});
        int wrong = 0;
        for (std::size_t i = 0; i < codes.size(); ++i) {
          const auto code = static_cast<std::uint32_t>(i) & ((1U << f.code_bits()) - 1);
          const float expected = static_cast<float>(decode(f, code)) * scale;
          wrong += std::isnan(expected) ? !std::isnan(got[i])
                                        : std::bit_cast<std::uint32_t>(expected) !=
                                              std::bit_cast<std::uint32_t>(got[i]);
        }
        INFO(f.name << " on " << to_string(target) << ", inverse scale " << scale);
        CHECK(wrong == 0);
      }
    }
  }
}
