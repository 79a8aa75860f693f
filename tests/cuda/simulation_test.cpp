// The whole way of a cross-check without a GPU: the probes' kernels on the host, the judge and the
// files; which cases are made; which instruction a chip has. What the tool says of planted
// deviations is in deviations_test.cpp.

#include <unistd.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "catch.hpp"
#include "cuda/tool/batches.hpp"
#include "cuda/tool/mismatches.hpp"
#include "fp8lab/vectors/replay.hpp"
#include "simulated_judge.hpp"

using namespace fp8lab;
using namespace fp8lab::cuda;

namespace {

/// A folder that goes when the test does.
class Folder {
 public:
  Folder()
      : path_(std::filesystem::temp_directory_path() /
              ("fp8lab_simulation_" + std::to_string(getpid()))) {}
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Another F, by one bit.
Candidate one_bit_less(const ProbedInstruction& probe) {
  Candidate unit = as_predicted(probe);
  --unit.model.alignment_fraction_bits;
  return unit;
}

constexpr Chip kHopper{90, 13000};

}  // namespace

TEST_CASE("rows that differ are kept as a file that replays", "[cuda][long]") {
  const ProbedInstruction probe = find("wgmma.m64n64k32.f32.e5m2.e5m2.registers", kHopper);
  const Folder folder;
  const Candidate unit = one_bit_less(probe);
  const CheckRow row = judge({probe, unit}, 1, 8, folder.path());
  REQUIRE(row.mismatches > 0);
  std::size_t rows = 0;
  for (const char* ending : {".txt", ".chained.txt"}) {
    const VectorFile file = read_vectors(folder.path() / (std::string(probe.name) + ending));
    rows += file.cases.size();
    CHECK(file.header.at("executed") == "as one instruction");
    // Every row differs from what the probe is held to, and is what the unit gives.
    CHECK(replay(file).mismatches == file.cases.size());
    CHECK(replay(file, unit.model).mismatches == 0);
  }
  CHECK(rows <= row.mismatches);
  CHECK(rows > kMostKept);  // of some kind all, or the limit
}

TEST_CASE("mismatches of FP16 halves replay as they were executed", "[cuda]") {
  const Chip old{90, 12040};
  const ProbedInstruction probe = find("mma.m16n8k32.f32.e5m2.e5m2", old);
  CHECK(probe.halves == Halves::separate);
  CHECK(judge({probe, as_predicted(probe)}, 2, 2).mismatches == 0);
  const Folder folder;
  Candidate chained = as_predicted(probe);
  chained.model.halves_order = HalvesOrder::chained;
  REQUIRE(judge({probe, chained}, 4, 2, folder.path()).mismatches > 0);
  const VectorFile file = read_vectors(folder.path() / (std::string(probe.name) + ".txt"));
  CHECK(file.header.at("executed") == "as separate FP16 halves");
  CHECK(replay(file).mismatches == file.cases.size());
  CHECK(replay(file, chained.model).mismatches == 0);
}

TEST_CASE("a chip that differs in the signs of zeros alone is said to", "[cuda]") {
  const ProbedInstruction probe = find("wgmma.m64n64k32.f16.e5m2.e5m2.shared", kHopper);
  planted = {probe, as_predicted(probe)};
  JudgeOptions options;
  options.tiles = 4;
  options.outputs = 4 * kTileOutputs;
  const CheckRow row = judge_probe(
      probe,
      [](const TileBatch& batch) {
        std::vector<float> d = simulate(batch);
        for (float& x : d) x = x == 0.0F ? -x : x;
        return d;
      },
      nullptr, options);
  CHECK(row.mismatches > 0);
  CHECK_THAT(row.note, contains("all in the sign of a zero; none of "));
}

TEST_CASE("a second opinion that is another one is a mismatch", "[cuda]") {
  const ProbedInstruction probe = find("mma.m16n8k16.f32.bf16.bf16", kHopper);
  planted = {probe, as_predicted(probe)};
  JudgeOptions options;
  options.tiles = 1;
  options.outputs = kTileOutputs;
  CHECK(judge_probe(
            probe, simulate, [] { return std::uint64_t{3}; }, options)
            .mismatches == 3);
  CHECK(judge_probe(
            probe, simulate, [] { return std::uint64_t{0}; }, options)
            .mismatches == 0);
}

TEST_CASE("the first batch has every pair of FP8 codes", "[cuda]") {
  const ProbedInstruction probe = find("mma.m16n8k32.f32.e4m3.e5m2", kHopper);
  const CaseBatch batch = make_batch(probe, 1, 0, 20);
  std::set<std::pair<std::uint32_t, std::uint32_t>> pairs;
  for (std::size_t i = 0; i < 16ull * kTileOutputs; ++i) {
    const VectorCase one = case_of_output(batch.cases, i);
    pairs.emplace(one.a[1], one.b[1]);
    CHECK(one.c == 0);
  }
  CHECK(pairs.size() == 65536);
  CHECK(make_batch(probe, 1, 7, 1).steps == kChained);
  CHECK(make_batch(probe, 1, 7, 1).cases[0].a.size() == 32ull * kChained);
}

TEST_CASE("batches are the same with every compiler", "[cuda]") {
  const auto sum_of = [](const char* name) {
    std::uint64_t sum = 0xcbf29ce484222325u;  // FNV-1a
    const auto add = [&](std::uint64_t value) { sum = (sum ^ value) * 0x100000001b3u; };
    for (const std::uint64_t batch : {2u, 7u})
      for (const VectorCase& one : make_batch(find(name, kHopper), 11, batch, 32).cases) {
        for (const std::uint32_t code : one.a) add(code);
        for (const std::uint32_t code : one.b) add(code);
        add(one.c);
      }
    return sum;
  };
  CHECK(sum_of("mma.m16n8k32.f32.e4m3.e5m2") == 0x8d2c54622458bf4cu);
  CHECK(sum_of("mma.m16n8k16.f32.bf16.bf16") == 0xbb414d75b8c0f2bdu);
}

TEST_CASE("the first batch of instructions with block scales has every pair of codes", "[cuda]") {
  const auto [name, capability, a_codes, b_codes] = GENERATE(table<const char*, int, int, int>(
      {{"mma.m16n8k32.mxf8f6f4.f32.e4m3.e5m2", 120, 256, 256},
       {"mma.m16n8k32.mxf8f6f4.f32.e2m1.e4m3", 120, 16, 256},
       {"tcgen05.m128n64k32.mxf8f6f4.f32.e3m2.e3m2", 100, 64, 64},
       {"mma.m16n8k64.mxf4nvf4.f32.e2m1.e2m1.ue4m3", 120, 16, 16}}));
  const ProbedInstruction probe = find(name, {capability, 13000});
  const CaseBatch batch = make_batch(probe, 1, 0, 16);
  const auto columns = static_cast<std::size_t>(std::max(1, b_codes / kTile));
  const std::size_t tiles = columns * static_cast<std::size_t>(std::max(1, a_codes / kTile));
  std::set<std::pair<std::uint32_t, std::uint32_t>> pairs;
  for (std::size_t i = 0; i < tiles * kTileOutputs; ++i) {
    const VectorCase one = case_of_output(batch.cases, i);
    pairs.emplace(one.a[1], one.b[1]);
  }
  CHECK(pairs.size() == static_cast<std::size_t>(a_codes * b_codes));
}

TEST_CASE("aimed cases of instructions with block scales reach the bottom of binary32", "[cuda]") {
  const ProbedInstruction probe = find("mma.m16n8k32.mxf8f6f4.f32.e4m3.e4m3", {120, 13000});
  const CaseBatch batch = make_batch(probe, 1, 2, 16);
  std::size_t subnormal = 0;
  std::size_t subnormal_c = 0;
  for (std::size_t i = 15ull * kTile; i < 16ull * kTile; ++i) {
    const VectorCase& one = batch.cases[i];
    CHECK(one.scales_a.size() == one.a.size() / 32);
    const float d = std::bit_cast<float>(result_of(as_predicted(probe), probe, one));
    subnormal += d != 0.0F && std::abs(d) < std::numeric_limits<float>::min() ? 1 : 0;
    subnormal_c += one.c << 1 != 0 && (one.c >> 23 & 0xff) == 0 ? 1 : 0;
  }
  CHECK(subnormal >= 8);
  CHECK(subnormal_c >= 8);
}

TEST_CASE("which instruction a chip has follows from the chip and from who compiled", "[cuda]") {
  constexpr std::array kCubins{80, 86, 89, 90, 100, 120};
  CHECK(compiler_of(90, kCubins, 13000, 12040, false) == 13000);
  CHECK(compiler_of(90, kCubins, 13000, 12040, true) == 12040);
  CHECK(compiler_of(87, kCubins, 13000, 12040, false) == 13000);
  CHECK(compiler_of(121, kCubins, 13000, 13010, false) == 13000);
  CHECK(compiler_of(110, kCubins, 13000, 13010, false) == 13010);
  CHECK(halves_of({90, 13000}) == Halves::chained);
  CHECK(halves_of({90, 12060}) == Halves::separate);
  CHECK(halves_of({100, 12080}) == Halves::chained);
  CHECK(halves_of({89, 12060}) == Halves::none);
  CHECK(halves_of({120, 12060}) == Halves::none);

  CHECK(find("mma.m16n8k32.f32.e4m3.e4m3", {89, 13000}).model == "sm89.mma.e4m3");
  CHECK(find("mma.m16n8k32.f32.e4m3.e4m3", {121, 13000}).model == "sm120.mma.e4m3");
  CHECK(find("mma.m16n8k16.f32.f16.f16", {86, 13000}).model == "sm80.mma.f16");
  CHECK(find("mma.m16n8k32.f32.e4m3.e5m2", kHopper).model == "sm90.mma.e4m3");
  CHECK(find("mma.m16n8k32.f32.e4m3.e5m2", kHopper).standing() == Standing::assumed);
  CHECK(find("mma.m16n8k32.f32.e4m3.e5m2", {89, 13000}).model == "sm89.mma.e4m3.e5m2");
  CHECK(instructions_of({80, 13000}).size() == 6);
  CHECK(find("mma.m16n8k16.f32.e4m3.e4m3", {89, 13000}).model == "sm89.mma.e4m3");
  CHECK(find("mma.m16n8k16.f32.e4m3.e4m3", {120, 13000}).model == "sm120.mma.e4m3:terms=16");
  CHECK(find("mma.m16n8k16.f32.e4m3.e4m3", {120, 13000}).terms() == 16);
  CHECK(find("mma.sp.m16n8k64.f32.e4m3.e4m3", {89, 13000}).standing() == Standing::assumed);
  CHECK(instructions_of({70, 13000}).empty());
  // Every instruction is probed somewhere, and no name stands twice.
  std::set<std::string_view> probed;
  for (const int capability : {80, 89, 90, 100, 120})
    for (const ProbedInstruction& probe : instructions_of({capability, 13000})) {
      probed.insert(probe.name);
      CHECK_NOTHROW(probe.prediction());
    }
  CHECK(probed.size() == all_instructions().size());
}
