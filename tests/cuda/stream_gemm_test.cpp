// Products on a framework's stream, with a chip on the host that records what it is asked: layouts,
// streams, devices, order of the work, and what is refused before any of it. The kernels are the
// device's own, run thread by thread.

#include "device_on_host.hpp"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#include "cuda/gemm_emulated_kernel.cuh"
#include "cuda/stream_kernels.cuh"
#pragma GCC diagnostic pop

#include <bit>
#include <string>
#include <vector>

#include "catch.hpp"
#include "cuda/emulated_model.hpp"
#include "cuda/tool/random_problem.hpp"
#include "fp8lab/core/error.hpp"

using namespace fp8lab;
using namespace fp8lab::cuda;

namespace {

constexpr int kCallersDevice = 0;
constexpr int kTensorsDevice = 2;
constexpr std::uintptr_t kStream = 0x5af0;

struct Chip {
  int device = kCallersDevice;
  int capability = 90;
  bool fails = false;
  std::vector<std::string> work{};
  std::vector<std::uintptr_t> streams{};
};
Chip chip;

void queue(const std::string& what, Stream stream) {
  if (chip.fails) throw Error("launch of " + what + ": out of memory");
  CHECK(chip.device == kTensorsDevice);
  chip.work.push_back(what);
  chip.streams.push_back(std::bit_cast<std::uintptr_t>(stream));
}

void pack(const PackArguments& p, Stream stream) {
  queue("pack", stream);
  device_on_host::launch({2, 1, 1}, 16, [&] { pack_rows(p); });
}

void multiply(const GemmArguments& g, const AccumulatorModel& model, FormatId a, FormatId b,
              Stream stream) {
  queue("multiply", stream);
  const EmulatedModel emulated = emulated_model(model);
  const TileFormats formats{emulated_format(a), emulated_format(b)};
  const auto tiles = [](int size, int tile) {
    return static_cast<unsigned>((size + tile - 1) / tile);
  };
  if (fma_path_fits(emulated) && formats.a.storage_bits == 8)
    device_on_host::launch({tiles(g.n, kTileColumns), tiles(g.m, kTileRows), 1}, kThreads,
                           [&] { multiply_by_fma(g, emulated, formats); });
  else
    device_on_host::launch({tiles(g.n, 64), 4, 1}, 64,
                           [&] { multiply_by_integers(g, emulated, formats); });
}

void sum(const ColumnSums& s, Stream stream) {
  queue("sum_columns", stream);
  device_on_host::launch({1, 1, 1}, 4, [&] { sum_columns(s); });
}

constexpr DeviceCalls kCalls{[] { return chip.device; },
                             [](int device) { chip.device = device; },
                             [](int) { return chip.capability; },
                             pack,
                             multiply,
                             sum};
constexpr StreamPlace kPlace{kTensorsDevice, kStream};

/// The product on the chip, whose memory begins poisoned.
std::vector<float> on_stream(const GemmProblem& problem, const StreamPlace& place = kPlace) {
  chip.work.clear();
  chip.streams.clear();
  std::vector<float> d(static_cast<std::size_t>(problem.a.rows * problem.b.rows), -1.0F);
  // One more block than is asked for: where it begins can be aligned, and nothing else is written.
  constexpr std::size_t kAlign = 16;
  const std::size_t bytes = workspace_bytes(problem);
  std::vector<std::uint8_t> memory(bytes + 2 * kAlign, 0xab);
  std::uint8_t* begin = memory.data();
  while (std::bit_cast<std::uintptr_t>(begin) % kAlign != 0) ++begin;
  gemm_on_stream({problem, d, {begin, bytes}}, place, kCalls);
  CHECK(begin[bytes] == 0xab);
  CHECK(chip.device == kCallersDevice);
  return d;
}

void check(const GemmProblem& problem, const std::string& what) {
  std::vector<float> expected(static_cast<std::size_t>(problem.a.rows * problem.b.rows));
  gemm(problem, expected);
  const std::vector<float> got = on_stream(problem);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(got[i]) == std::bit_cast<std::uint32_t>(expected[i])) continue;
    INFO(what << " output " << i << " expected " << expected[i] << " got " << got[i]);
    CHECK(false);
    return;
  }
}

/// The codes of a matrix at other places: element (row, k) at row * row_stride + k * k_stride.
struct Moved {
  std::vector<std::uint8_t> words;
  CodeMatrix matrix;
};
Moved moved(const CodeMatrix& from, std::int64_t row_stride, std::int64_t k_stride) {
  const auto size =
      static_cast<std::size_t>((from.rows - 1) * row_stride + (from.k - 1) * k_stride);
  Moved to{std::vector<std::uint8_t>(size + 1, 0x7f), from};  // NaN between
  for (std::int64_t row = 0; row < from.rows; ++row)
    for (std::int64_t k = 0; k < from.k; ++k)
      to.words[static_cast<std::size_t>(row * row_stride + k * k_stride)] =
          static_cast<std::uint8_t>(code_at(from, row, k));
  to.matrix.data = to.words.data();
  to.matrix.row_stride = row_stride;
  to.matrix.k_stride = k_stride;
  return to;
}

const InstructionModel& hopper() { return find_instruction_model("sm90.wgmma.e4m3"); }

}  // namespace

TEST_CASE("a product on a stream has the library's bits under any strides", "[cuda]") {
  chip = {};
  RandomProblem random(hopper(), 5, 9, 150, Distribution::normal, 3);
  random.set_recipe(Recipe::blockwise, 128, ScaleOrder::b_then_fma_a);
  const GemmProblem problem = random.problem();
  check(problem, "row-major");
  CHECK(chip.work == std::vector<std::string>{"pack", "pack", "multiply"});

  const auto turned = moved(problem.b, 1, 9);    // a weight stored as [k, n]
  const auto spread = moved(problem.a, 400, 2);  // every other column of a wider matrix
  GemmProblem strided = problem;
  strided.a = spread.matrix;
  strided.b = turned.matrix;
  check(strided, "strided");
}

TEST_CASE("an operand in whole tiles is read where it is", "[cuda]") {
  chip = {};
  RandomProblem random(hopper(), 128, 3, 128, Distribution::normal, 4);
  std::vector<std::uint8_t> memory(128 * 128 + 16);
  std::size_t first = 0;
  while (std::bit_cast<std::uintptr_t>(memory.data() + first) % 16 != 0) ++first;
  std::copy(random.a().begin(), random.a().end(),
            memory.begin() + static_cast<std::ptrdiff_t>(first));
  GemmProblem problem = random.problem();
  problem.a.data = memory.data() + first;
  CHECK(workspace_bytes(problem) == 128 * 128);  // of B alone
  check(problem, "A in place");
  CHECK(chip.work == std::vector<std::string>{"pack", "multiply"});

  // The same at an odd address, of fewer rows, and with a gap between rows, is copied.
  std::copy(random.a().begin(), random.a().end(),
            memory.begin() + static_cast<std::ptrdiff_t>(first) + 1);
  problem.a.data = memory.data() + first + 1;
  CHECK(workspace_bytes(problem) == 2 * 128 * 128);
  check(problem, "A at an odd address");
  problem.a = random.problem().a;
  problem.a.rows = 127;
  CHECK(workspace_bytes(problem) == 2 * 128 * 128);
  problem.a.rows = 128;
  problem.a.row_stride = 256;
  CHECK(workspace_bytes(problem) == 2 * 128 * 128);
}

TEST_CASE("words of two bytes are packed too", "[cuda]") {
  chip = {};
  constexpr std::int64_t kK = 37;
  std::vector<std::uint16_t> words(7 * kK);
  std::uint32_t state = 1;
  for (std::uint16_t& word : words) {  // BF16 of either sign, from 2^-16 to 2^16
    state = state * 1664525u + 1013904223u;
    word = static_cast<std::uint16_t>(0x3780u + (state >> 20) % 0x1000u + (state >> 31 << 15));
  }
  GemmProblem problem;
  problem.model = find_instruction_model("sm90.wgmma.bf16").accumulator;
  problem.a = {FormatId::bf16, words.data(), 3, kK, kK, 1};
  problem.b = {FormatId::bf16, words.data() + 3 * kK, 4, kK, 1, 4};  // stored as [k, n]
  check(problem, "BF16");
  CHECK(chip.work.size() == 3);
}

TEST_CASE("work is queued on the caller's stream, whose 0 is the legacy default stream", "[cuda]") {
  chip = {};
  const RandomProblem random(hopper(), 2, 2, 32, Distribution::normal, 5);
  on_stream(random.problem());
  CHECK(chip.streams == std::vector<std::uintptr_t>(3, kStream));
  on_stream(random.problem(), {kTensorsDevice, 0});
  CHECK(chip.streams == std::vector<std::uintptr_t>(3, 1));
}

TEST_CASE("the caller's device is current again, after an error too", "[cuda]") {
  chip = {};
  const RandomProblem random(hopper(), 2, 2, 32, Distribution::normal, 5);
  chip.fails = true;
  CHECK_THROWS_WITH(on_stream(random.problem()), contains("out of memory"));
  CHECK(chip.device == kCallersDevice);
  chip = {};
  chip.capability = 75;
  CHECK_THROWS_WITH(on_stream(random.problem()),
                    contains("device: expected one of compute capability 8.0 or later, got 7.5"));
  CHECK(chip.work.empty());
  CHECK(chip.device == kCallersDevice);
}

TEST_CASE("what the device cannot compute is refused before anything is queued", "[cuda]") {
  chip = {};
  RandomProblem random(hopper(), 2, 3, 64, Distribution::normal, 5);
  const auto refused = [](const GemmProblem& problem, const std::string& message) {
    CHECK_THROWS_WITH(on_stream(problem), contains(message));
    CHECK(chip.work.empty());
  };
  GemmProblem problem = random.problem();
  problem.model = find_instruction_model("fp32").accumulator;
  refused(problem, "model: expected a fused dot product");
  // Its scales would be read on the host: the address is one of the device.
  problem.model = find_instruction_model("sm100.tcgen05.mxf8f6f4.e4m3").accumulator;
  problem.scale_a = problem.scale_b = {{std::bit_cast<const float*>(std::uintptr_t{64}), 6}, 1, 32};
  refused(problem, "model: expected a fused dot product");
  problem = random.problem();
  problem.a.format = FormatId::e2m1;
  refused(problem, "format: expected e4m3fn, e5m2, f16, bf16 or tf32, got");
  problem = random.problem();
  problem.b.k = 32;
  refused(problem, "b: expected [n, k] with k = 64");
  problem = random.problem();
  problem.scale_a = {{std::bit_cast<const float*>(std::uintptr_t{64}), 3}, 1, 0};
  refused(problem, "scale_a: expected [ceil(2/1), ceil(64/64)] = [2, 1], got 3 values");
  problem.scale_a = {{std::bit_cast<const float*>(std::uintptr_t{66}), 2}, 1, 0};
  refused(problem, "scale_a: expected an address that is a multiple of 4");
  problem = random.problem();
  problem.promotion_interval = 5;
  refused(problem, "promotion_interval: expected 0 or a multiple of the model's 32 terms");
  problem = random.problem();
  problem.a.k = problem.b.k = 0;
  refused(problem, "k: expected 1 or more, got 0");
  random.add_c();
  refused(random.problem(), "c: expected none in a product on a stream");
  std::vector<float> d(6);
  random.problem().c = nullptr;
  CHECK_THROWS_WITH(gemm_on_stream({random.problem(), d, {}}, kPlace, kCalls),
                    contains("workspace: expected 32768 bytes, got 0"));
  CHECK_THROWS_WITH(gemm_on_stream({random.problem(), std::span(d).first(5), {}}, kPlace, kCalls),
                    contains("d: expected [m, n] = [2, 3], got 5 elements"));
  CHECK(chip.work.empty());
}

TEST_CASE("no rows are no work", "[cuda]") {
  chip = {};
  RandomProblem random(hopper(), 2, 3, 64, Distribution::normal, 5);
  GemmProblem problem = random.problem();
  problem.a.rows = 0;
  CHECK(on_stream(problem).empty());
  CHECK(chip.work.empty());
}

TEST_CASE("columns are summed row after row", "[cuda]") {
  chip = {};
  // 2^24 + 1 + 1 is 2^24 in this order alone; the third column is padding.
  const std::vector<float> x{0x1p24F, 1.0F, 9.0F, 1.0F, 1.0F, 9.0F, 1.0F, 0x1p24F, 9.0F};
  std::vector<float> sums(2, -1.0F);
  sum_columns_on_stream({x.data(), sums.data(), 3, 2, 3}, kPlace, kCalls);
  CHECK(sums == std::vector<float>{0x1p24F, 0x1p24F + 2.0F});
  CHECK(chip.streams == std::vector<std::uintptr_t>{kStream});
  sum_columns_on_stream({x.data(), sums.data(), 0, 2, 0}, kPlace, kCalls);
  CHECK(sums == std::vector<float>{0.0F, 0.0F});
  CHECK_THROWS_WITH(sum_columns_on_stream({x.data(), sums.data(), 3, 2, 1}, kPlace, kCalls),
                    contains("row_stride: expected 2 or more, got 1"));
  CHECK_THROWS_WITH(sum_columns_on_stream({x.data(), sums.data(), -1, 2, 3}, kPlace, kCalls),
                    contains("x: expected rows >= 0"));
}
