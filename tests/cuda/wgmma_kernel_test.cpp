// The kernels around wgmma, run on the host. The instruction is replaced by the
// library's model, which reads its operands as the hardware would: through the
// descriptors' fields, from a stand-in for shared memory.

#include "device_on_host.hpp"

#include <cstring>

namespace fp8lab::cuda {

// Shared memory's window of addresses: what a descriptor's 18 bits can hold.
inline constexpr std::uint32_t kWindow = 0x400;
inline unsigned char* shared_base = nullptr;

#define FP8LAB_DYNAMIC_SHARED(name)           \
  static unsigned char name[112 * 1024] = {}; \
  shared_base = name

inline std::uint32_t shared_address(const unsigned char* pointer) {
  return kWindow + static_cast<std::uint32_t>(pointer - shared_base);
}
inline unsigned char* at_shared(std::uint32_t address) { return shared_base + (address - kWindow); }

inline void shared_writes_before_wgmma() {}
inline void wgmma_fence() {}
inline void wgmma_commit() {}
inline void wgmma_wait() {}
inline void commit_copies() {}
template <int kPending>
void wait_for_copies() {}
template <typename T>
void pin(T&) {}
inline void copy_16_bytes(std::uint32_t to, const std::uint8_t* from) {
  std::memcpy(at_shared(to), from, 16);
}

}  // namespace fp8lab::cuda

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#include "cuda/gemm_wgmma_kernel.cuh"
#pragma GCC diagnostic pop

#include <fmt/format.h>

#include <array>
#include <bit>
#include <string>

#include "catch.hpp"
#include "cuda/host_arguments.hpp"
#include "cuda/tool/random_problem.hpp"
#include "fp8lab/accumulate/accumulate.hpp"

using namespace fp8lab;
using namespace fp8lab::cuda;

namespace {

/// Row `row` of an operand with 32 bytes of K, as the documented layouts place it
/// in shared memory behind a descriptor.
std::array<Unpacked, 32> read_row(std::uint64_t matrix, FormatId id, int row) {
  const auto field = [matrix](int bit) {
    return static_cast<std::uint32_t>((matrix >> bit) & 0x3fffu) << 4;
  };
  const std::uint32_t start = field(0);
  const std::uint32_t leading = field(16);
  const std::uint32_t stride = field(32);
  const bool swizzled = (matrix >> 62) == 1;
  std::array<Unpacked, 32> values;
  for (std::uint32_t byte = 0; byte < 32; ++byte) {
    const auto group = static_cast<std::uint32_t>(row / 8);
    const auto within = static_cast<std::uint32_t>(row % 8);
    std::uint32_t address = start + group * stride;
    if (swizzled) {
      address += within * 128 + byte;
      address ^= (address >> 3) & 0x70u;
    } else {
      address += within * 16 + byte / 16 * leading + byte % 16;
    }
    values[byte] = unpack(format(id), *at_shared(address));
  }
  return values;
}

template <FormatId kA, FormatId kB>
struct HostWgmma {
  static void issue(float (&sums)[64], std::uint64_t a, std::uint64_t b, int keep) {
    const AccumulatorModel model = find_instruction_model("sm90.wgmma.e4m3").accumulator;
    const int thread = static_cast<int>(threadIdx.x) % 128;
    for (int i = 0; i < 64; ++i) {
      // The accumulator's place, from the ISA's figure.
      const int row = thread / 32 * 16 + thread % 32 / 4 + (i % 4 >= 2 ? 8 : 0);
      const int column = i / 4 * 8 + thread % 4 * 2 + i % 2;
      sums[i] = dot_product(model, read_row(a, kA, row), read_row(b, kB, column),
                            keep != 0 ? sums[i] : 0.0F);
    }
  }
};

template <int kChunk, bool kPromoted>
std::vector<float> run(const GemmProblem& problem) {
  HostArguments host(problem);
  const GemmArguments& g = host.arguments();
  const dim3 grid{static_cast<unsigned>((g.n + 127) / 128),
                  static_cast<unsigned>((g.m + 127) / 128), 1};
  device_on_host::launch(grid, kBlockThreads, [&] {
    multiply<HostWgmma<FormatId::e4m3fn, FormatId::e5m2>, kChunk, kPromoted>(g);
  });
  if (g.scaled_at_end) device_on_host::launch({3, 1, 1}, 16, [&] { finish_all(g); });
  return host.result();
}

void check(const GemmProblem& problem, const std::string& what) {
  std::vector<float> expected(static_cast<std::size_t>(problem.a.rows * problem.b.rows));
  gemm(problem, expected);
  const std::int64_t interval = problem.promotion_interval;
  const std::vector<float> got = interval == 0         ? run<4, false>(problem)
                                 : interval % 128 == 0 ? run<4, true>(problem)
                                 : interval % 64 == 0  ? run<2, true>(problem)
                                                       : run<1, true>(problem);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(got[i]) == std::bit_cast<std::uint32_t>(expected[i])) continue;
    if (++wrong > 3) continue;
    INFO(what << " output " << i << std::hex << " expected "
              << std::bit_cast<std::uint32_t>(expected[i]) << " got "
              << std::bit_cast<std::uint32_t>(got[i]));
    CHECK(false);
  }
  INFO(what);
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("the tensor-core product feeds wgmma and promotes as documented", "[cuda][slow]") {
  const InstructionModel& model = find_instruction_model("sm90.wgmma.e4m3.e5m2");
  struct Shape {
    int m, n, k, interval;
    Recipe recipe;
    bool c;
  };
  constexpr Shape kShapes[] = {
      {70, 9, 300, 0, Recipe::unscaled, true},     {5, 130, 130, 0, Recipe::rowwise, true},
      {3, 20, 96, 32, Recipe::unscaled, true},     {130, 3, 200, 64, Recipe::per_tensor, true},
      {9, 131, 300, 128, Recipe::blockwise, true}, {66, 5, 260, 32, Recipe::blockwise, false},
      {4, 7, 700, 256, Recipe::rowwise, false},    {4, 7, 110, 96, Recipe::unscaled, false},
      {4, 7, 150, 160, Recipe::unscaled, true},
  };
  for (const Shape& s : kShapes) {
    RandomProblem random(model, s.m, s.n, s.k, Distribution::all_codes, 3);
    random.set_recipe(s.recipe, s.interval, static_cast<ScaleOrder>(s.k % 3));
    if (s.c) random.add_c();
    check(random.problem(),
          fmt::format("[{},{}] N_C {} {}", s.m, s.k, s.interval, to_string(s.recipe)));
  }
}
