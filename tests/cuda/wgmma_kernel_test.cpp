// The kernels around wgmma, run on the host. The instruction is replaced by the
// library's model, which reads its operands through the descriptors.

#include "wgmma_on_host.hpp"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#include "cuda/gemm_finish_kernel.cuh"
#include "cuda/gemm_wgmma_kernel.cuh"
#include "cuda/probes/wgmma_kernel.cuh"
#pragma GCC diagnostic pop

#include <fmt/format.h>

#include <array>
#include <bit>
#include <span>
#include <string>

#include "catch.hpp"
#include "cuda/host_arguments.hpp"
#include "cuda/prediction.hpp"
#include "cuda/tool/random_problem.hpp"
#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/vectors/cases.hpp"

using namespace fp8lab;
using namespace fp8lab::cuda;

namespace {

/// The accumulator's place, from the ISA's figure.
Place figure_place(int thread, int i) {
  return {thread / 32 * 16 + thread % 32 / 4 + (i % 4 >= 2 ? 8 : 0),
          i / 4 * 8 + thread % 4 * 2 + i % 2};
}

template <FormatId kA, FormatId kB>
struct HostWgmma {
  static constexpr int kTerms = kA == FormatId::bf16 ? 16 : 32;

  static void issue(float (&sums)[64], std::uint64_t a, std::uint64_t b, int keep) {
    products_in_flight->start([&sums, a, b, keep] {
      static const AccumulatorModel kModel =
          find_instruction_model(kTerms == 16 ? "sm90.wgmma.bf16" : "sm90.wgmma.e4m3").accumulator;
      const int thread = static_cast<int>(threadIdx.x) % 128;
      for (int i = 0; i < 64; ++i) {
        const Place at = figure_place(thread, i);
        sums[i] = dot_product(kModel, read_row<kTerms>(a, kA, at.row),
                              read_row<kTerms>(b, kB, at.column), keep != 0 ? sums[i] : 0.0F);
      }
    });
  }
};

template <typename Op, int kChunk, bool kPromoted>
std::vector<float> run(const GemmProblem& problem) {
  shared_windows.forget();
  HostArguments host(problem);
  const GemmArguments& g = host.arguments();
  const dim3 grid{static_cast<unsigned>((g.n + 127) / 128),
                  static_cast<unsigned>((g.m + 127) / 128), 1};
  device_on_host::launch(grid, kBlockThreads, [&] { multiply<Op, kChunk, kPromoted>(g); });
  if (g.scaled_at_end) device_on_host::launch({3, 1, 1}, 16, [&] { finish_all(g); });
  return host.result();
}

template <typename Op>
void check(const GemmProblem& problem, const std::string& what) {
  std::vector<float> expected(static_cast<std::size_t>(problem.a.rows * problem.b.rows));
  gemm(problem, expected);
  const std::int64_t interval = problem.promotion_interval;
  const std::int64_t steps = interval / Op::kTerms;
  const std::vector<float> got = interval == 0    ? run<Op, 4, false>(problem)
                                 : steps % 4 == 0 ? run<Op, 4, true>(problem)
                                 : steps % 2 == 0 ? run<Op, 2, true>(problem)
                                                  : run<Op, 1, true>(problem);
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
  struct Shape {
    int m, n, k, interval;
    Recipe recipe;
    bool c;
  };
  const auto check_shapes = [](auto op, const char* model, Distribution distribution,
                               std::span<const Shape> shapes) {
    for (const Shape& s : shapes) {
      RandomProblem random(find_instruction_model(model), s.m, s.n, s.k, distribution, 3);
      random.set_recipe(s.recipe, s.interval, static_cast<ScaleOrder>(s.k % 3));
      if (s.c) random.add_c();
      for (const bool early : {false, true}) {
        copies_are_early = early;
        check<decltype(op)>(random.problem(),
                            fmt::format("{} [{},{}] N_C {} {} copies {}", model, s.m, s.k,
                                        s.interval, to_string(s.recipe), early ? "early" : "late"));
      }
    }
  };
  constexpr Shape kShapes[] = {
      {70, 9, 300, 0, Recipe::unscaled, true},     {5, 130, 130, 0, Recipe::rowwise, true},
      {3, 20, 96, 32, Recipe::unscaled, true},     {130, 3, 200, 64, Recipe::per_tensor, true},
      {9, 131, 300, 128, Recipe::blockwise, true}, {66, 5, 260, 32, Recipe::blockwise, false},
      {4, 7, 700, 256, Recipe::rowwise, false},    {4, 7, 110, 96, Recipe::unscaled, false},
      {4, 7, 150, 160, Recipe::unscaled, true},    {4, 7, 900, 0, Recipe::unscaled, false},
      {4, 7, 900, 128, Recipe::blockwise, false},
  };
  check_shapes(HostWgmma<FormatId::e4m3fn, FormatId::e5m2>{}, "sm90.wgmma.e4m3.e5m2",
               Distribution::all_codes, kShapes);
  // Half as many terms a step and a tile.
  constexpr Shape kBf16Shapes[] = {
      {70, 9, 150, 0, Recipe::unscaled, true},    {5, 130, 65, 0, Recipe::rowwise, true},
      {3, 20, 48, 16, Recipe::unscaled, true},    {130, 3, 100, 32, Recipe::per_tensor, true},
      {9, 131, 140, 64, Recipe::blockwise, true}, {66, 5, 260, 32, Recipe::blockwise, false},
      {4, 7, 350, 128, Recipe::rowwise, false},   {4, 7, 60, 48, Recipe::unscaled, false},
      {4, 7, 75, 80, Recipe::unscaled, true},     {4, 7, 450, 0, Recipe::unscaled, false},
      {4, 7, 450, 128, Recipe::blockwise, false},
  };
  using Bf16 = HostWgmma<FormatId::bf16, FormatId::bf16>;
  check_shapes(Bf16{}, "sm90.wgmma.bf16", Distribution::lognormal, kBf16Shapes);
  check_shapes(Bf16{}, "sm90.wgmma.bf16", Distribution::all_codes, std::span(kBf16Shapes).first(3));
}

namespace {

/// A probe's instruction on mixed inputs, `kColumns` columns.
template <typename RegisterType, int kColumns, bool kRegisters_, FormatId kA = FormatId::e4m3fn,
          FormatId kB = FormatId::e5m2>
struct HostProbe : WgmmaDefaults {
  static constexpr FormatId kAFormat = kA;
  static constexpr FormatId kBFormat = kB;
  using Register = RegisterType;
  static constexpr bool kHalf = std::is_same_v<Register, std::uint32_t>;
  static constexpr int kN = kColumns;
  static constexpr int kRegisters = kColumns / (kHalf ? 4 : 2);
  static constexpr bool kAInRegisters = kRegisters_;

  static const InstructionModel& model() {
    return find_instruction_model(kHalf ? "sm90.wgmma.e4m3.f16" : "sm90.wgmma.e4m3.e5m2");
  }

  static void issue(Register (&sums)[kRegisters], std::uint64_t a, std::uint64_t b) {
    issue_rows(sums, b, [&](int row) { return read_row(a, kA, row); });
  }

  // Fragments are spread over the warpgroup: every thread shows its own, and
  // reads the rows that it needs.
  static void issue(Register (&sums)[kRegisters], const std::uint32_t (&a)[4], std::uint64_t b) {
    static std::array<std::array<std::uint8_t, 32>, 64> rows;
    const int thread = static_cast<int>(threadIdx.x);
    for (int reg = 0; reg < 4; ++reg)
      for (int byte = 0; byte < 4; ++byte) {
        // mma.m16n8k32's table: a0..a15, four a register.
        const int row = thread / 32 * 16 + thread % 32 / 4 + (reg % 2 == 1 ? 8 : 0);
        const int column = thread % 4 * 4 + byte + (reg >= 2 ? 16 : 0);
        rows[static_cast<std::size_t>(row)][static_cast<std::size_t>(column)] =
            static_cast<std::uint8_t>(a[reg] >> (8 * byte));
      }
    __syncthreads();
    issue_rows(sums, b, [&](int row) {
      std::array<Unpacked, 32> values;
      for (std::size_t i = 0; i < 32; ++i)
        values[i] = unpack(format(kA), rows[static_cast<std::size_t>(row)][i]);
      return values;
    });
    __syncthreads();
  }

 private:
  template <typename ReadA>
  static void issue_rows(Register (&sums)[kRegisters], std::uint64_t b, ReadA read_a) {
    for (int i = 0; i < kColumns / 2; ++i) {
      const Place at = figure_place(static_cast<int>(threadIdx.x), i);
      const auto columns = read_row(b, kB, at.column);
      float c = 0.0F;
      if constexpr (kHalf)
        c = static_cast<float>(
            decode(format(FormatId::f16), (sums[i / 2] >> (16 * (i % 2))) & 0xffffu));
      else
        c = sums[i];
      const float d = dot_product(model().accumulator, read_a(at.row), columns, c);
      if constexpr (kHalf) {
        const std::uint32_t code = encode(format(FormatId::f16), kNvidiaNosat, d);
        sums[i / 2] = i % 2 == 0 ? (sums[i / 2] & 0xffff0000u) | code
                                 : (sums[i / 2] & 0xffffu) | (code << 16);
      } else {
        sums[i] = d;
      }
    }
  }
};

template <typename Probe>
void check_probe(const std::string& what) {
  shared_windows.forget();
  InstructionModel model = Probe::model();
  model.a_format = Probe::kAFormat;
  model.b_format = Probe::kBFormat;
  constexpr int kSteps = 6;  // one full chain of instructions, and a shorter one
  for (const CaseKind kind : {CaseKind::adversarial, CaseKind::special}) {
    std::vector<VectorCase> cases;
    for (std::uint64_t i = 0; i < 2 * kTile; ++i)
      cases.push_back(generate_case(model, 32 * kSteps, kind, 4, i));
    const TileBatch batch = pack_tiles(cases, model.a_format, model.b_format, kSteps);
    std::vector<float> d(2 * kTileOutputs, -1.0F);
    device_on_host::launch({2, 1, 1}, 128, [&] {
      wgmma_probe<Probe>({batch.a.data(), batch.b.data(), batch.c.data(), d.data(), kSteps});
    });
    const std::vector<float> expected =
        library_results(batch, {model.accumulator, model.a_format, model.b_format}, 0, 2);
    INFO(what << " " << to_string(kind));
    CHECK(count_differing(d, expected) == 0);
    // The diagonal holds the cases themselves.
    const VectorCase diagonal = case_of_output(cases, kTileOutputs + 5 * kTile + 5);
    CHECK(diagonal.a == cases[kTile + 5].a);
    CHECK(diagonal.b == cases[kTile + 5].b);
    CHECK(diagonal.c == cases[kTile + 5].c);
  }
}

}  // namespace

TEST_CASE("the probes feed wgmma the cases and read its sums back", "[cuda][slow]") {
  check_probe<HostProbe<float, 64, false>>("binary32, A in shared memory");
  check_probe<HostProbe<float, 64, true>>("binary32, A in registers");
  check_probe<HostProbe<float, 8, false>>("binary32, 8 columns");
  check_probe<HostProbe<std::uint32_t, 64, false>>("FP16, A in shared memory");
  check_probe<HostProbe<std::uint32_t, 64, true>>("FP16, A in registers");
  check_probe<HostProbe<std::uint32_t, 64, true, FormatId::e5m2, FormatId::e4m3fn>>(
      "FP16, A in registers, E5M2 by E4M3");
}
