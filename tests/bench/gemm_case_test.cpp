// What `bench gemm` draws and compares: nothing that it prints tells one number from another.

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <string_view>
#include <tuple>
#include <vector>

// Its parts have no header.
#include "apps/bench/gemm_case.cpp"  // NOLINT(bugprone-suspicious-include)
#include "catch.hpp"
#include "fp8lab/formats/format.hpp"
#include "message_of.hpp"

namespace fp8lab::cli {

// Eigen's products are the tool's alone.
void eigen_gemm_baseline(const float*, const float*, float*, std::int64_t, std::int64_t,
                         std::int64_t, int) {}
void eigen_gemm_avx2(const float*, const float*, float*, std::int64_t, std::int64_t, std::int64_t,
                     int) {}
void eigen_gemm_avx512(const float*, const float*, float*, std::int64_t, std::int64_t, std::int64_t,
                       int) {}

}  // namespace fp8lab::cli

using namespace fp8lab;

namespace {

/// The code of an element as the matrix units number them: TF32 has its bits at the top of 32.
std::uint32_t bench_code(const Format& f, const std::vector<unsigned char>& bytes, std::size_t i) {
  const auto width = static_cast<std::size_t>(f.storage_bits / 8);
  std::uint32_t code = 0;
  std::memcpy(&code, bytes.data() + i * width, width);
  if (width < 4) return code;
  CHECK((code & 0x1fffu) == 0u);
  return code >> 13;
}

}  // namespace

TEST_CASE("wide data of bench gemm are finite codes of both signs, all of them", "[cli]") {
  for (const FormatId id : {FormatId::e4m3fn, FormatId::e5m2, FormatId::e2m1, FormatId::bf16,
                            FormatId::f16, FormatId::tf32}) {
    const Format& f = format(id);
    INFO(f.name);
    const std::size_t count = f.storage_bits > 8 ? 4000 : 12000;
    const RandomStream stream(7, "codes");
    const auto bytes = cli::random_codes(f, static_cast<std::int64_t>(count), "wide", stream);
    REQUIRE(bytes.size() == count * static_cast<std::size_t>(f.storage_bits / 8));
    std::vector<bool> seen(2 * std::size_t{f.sign_mask()});
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t code = bench_code(f, bytes, i);
      const std::uint32_t magnitude = code & ~f.sign_mask();
      const std::uint32_t bits = stream.bits32(i);
      INFO("element " << i << ", drawn " << bits << ", code " << code);
      REQUIRE(code < seen.size());
      REQUIRE(magnitude == bits % (f.max_finite_code() + 1));
      REQUIRE((code != magnitude) == (bits >= 0x80000000u));
      seen[code] = true;
    }
    if (f.storage_bits > 8) continue;
    for (std::uint32_t code = 0; code < seen.size(); ++code)
      CHECK(seen[code] == ((code & ~f.sign_mask()) <= f.max_finite_code()));
  }
}

TEST_CASE("normal and uniform data of bench gemm are casts of 16 normal and of uniform numbers",
          "[cli]") {
  for (const FormatId id : {FormatId::e4m3fn, FormatId::e5m2, FormatId::bf16, FormatId::tf32}) {
    const Format& f = format(id);
    const RandomStream stream(3, "codes");
    for (const std::string_view data : {"normal", "uniform"}) {
      const auto bytes = cli::random_codes(f, 500, data, stream);
      for (std::size_t i = 0; i < 500; ++i) {
        const double value = data == "normal" ? 16 * stream.normal(i) : stream.uniform(i);
        INFO(f.name << " " << data << " " << value);
        REQUIRE(bench_code(f, bytes, i) == encode(f, kNvidiaSatfinite, static_cast<float>(value)));
      }
    }
  }
}

TEST_CASE("scales of bench gemm are four binades, one a row and block", "[cli]") {
  struct Unit {
    const char* name;
    std::int64_t block;  ///< 0: it takes no scales
  };
  for (const Unit& unit : {Unit{"sm90.wgmma.e4m3", 0}, Unit{"sm100.tcgen05.mxf8f6f4.e4m3", 32},
                           Unit{"sm100.tcgen05.mxf4nvf4", 16}}) {
    const InstructionModel& model = find_instruction_model(unit.name);
    INFO(unit.name);
    if (unit.block != 0) CHECK(cli::scale_block(model) == unit.block);
    const RandomStream stream(5, "scales");
    for (const std::int64_t k : {64, 65, 96}) {
      const auto scales =
          cli::random_scales(model.accumulator, 7, k, cli::scale_block(model), stream);
      const std::int64_t blocks = unit.block == 0 ? 0 : (k + unit.block - 1) / unit.block;
      REQUIRE(scales.size() == static_cast<std::size_t>(7 * blocks));
      for (std::size_t i = 0; i < scales.size(); ++i)
        REQUIRE(scales[i] == std::exp2f(static_cast<float>(stream.bits32(i) % 4) - 5.0F));
    }
  }
}

TEST_CASE("bench gemm compares the first and the last, and no more than it says", "[cli]") {
  for (const std::int64_t size : {1, 2, 23, 24, 25, 26, 47, 48, 100, 1000}) {
    const std::vector<std::int64_t> picked = cli::sample(size, 24);
    INFO(size);
    REQUIRE(picked.size() == static_cast<std::size_t>(std::min<std::int64_t>(size, 24)));
    CHECK(picked.front() == 0);
    CHECK(picked.back() == size - 1);
    for (std::size_t i = 1; i < picked.size(); ++i) {
      CHECK(picked[i] > picked[i - 1]);
      if (size <= 24) CHECK(picked[i] == picked[i - 1] + 1);
    }
  }
}

TEST_CASE("bench gemm counts each sampled output that is not the reference's", "[cli]") {
  for (const char* name : {"sm90.wgmma.e4m3", "sm100.tcgen05.mxf4nvf4"})
    for (const auto& [m, n, wrong] :
         {std::tuple{3, 5, 15}, {24, 25, 576}, {25, 7, 168}, {2, 60, 48}}) {
      INFO(name << " " << m << "x" << n);
      cli::GemmCase one(find_instruction_model(name), {m, n, 96}, "uniform", 0);
      CHECK(one.mismatches() == wrong);  // of sums of positive numbers none is the 0 before the run
      one.run(1);
      CHECK(one.mismatches() == 0);
    }
  cli::EigenCase eigen({2, 3, 4});
  eigen.run(1);
  CHECK(test::message_of([&] { eigen.check(); }) == "Eigen: expected k ones, got 0");
}

TEST_CASE("shapes of bench gemm have three positive sides", "[cli]") {
  const auto text = [](const char* given) {
    std::string sides;
    const std::string said = test::message_of([&] {
      for (const cli::Shape& s : cli::parse_shapes(given))
        sides += fmt::format("[{} {} {} {:g}]", s.m, s.n, s.k, s.products());
    });
    return said == "accepted" ? sides : said;
  };
  CHECK(text("2x3x4") == "[2 3 4 24]");
  CHECK(text("1x1x1+100000x100000x100000") == "[1 1 1 1][100000 100000 100000 1e+15]");
  CHECK(text("") == "--shape: expected MxNxK, got nothing");
  for (const char* part : {"2x3", "2x3x4x5", "0x3x4", "2x0x4", "2x3x0", "2x-3x4", "axbxc", "2x3x"})
    CHECK(text(fmt::format("2x3x4+{}", part).c_str()) ==
          fmt::format("--shape: expected MxNxK with positive numbers, or several joined by +, got "
                      "'{}'",
                      part));
}
