// What cuBLASLt does around the tensor cores: which promotion interval and scale
// order give its bits. The candidates are our own products on the same tensor
// cores, so that the answer does not hang on the emulator; the best one is then
// compared with the emulator too.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "command.hpp"
#include "cublaslt.hpp"
#include "cublaslt_library.hpp"
#include "device_gemm.hpp"
#include "random_problem.hpp"
#include "tool/lt_text.hpp"

namespace fp8lab::cuda {
namespace {

/// How cuBLASLt is asked.
struct LtRun {
  int size;  ///< of m and n
  int k;
  LtScales scales;
  bool fast;
};

constexpr std::array<std::array<int, 2>, 3> kSizes{{{256, 512}, {256, 4096}, {2048, 4096}}};

Recipe recipe_of(LtScales scales) {
  return scales == LtScales::per_tensor ? Recipe::per_tensor
         : scales == LtScales::rowwise  ? Recipe::rowwise
                                        : Recipe::blockwise;
}

std::string describe(const LtRun& run) {
  return fmt::format("{0}x{0}x{1} {2}, fast accumulation {3}", run.size, run.k,
                     to_string(recipe_of(run.scales)), run.fast ? "on" : "off");
}

/// cuBLASLt's output; empty, with the reason printed, if it offers none.
std::vector<float> run_cublaslt(const RandomProblem& random, const LtRun& run) {
  LtProblem problem{FormatId::e4m3fn, FormatId::e4m3fn, run.size, run.size, run.k,
                    run.fast,         run.scales};
  const LtGemm usual(problem);
  if (!usual.supported()) {
    fmt::print("{}: not offered: {}\n", describe(run), usual.reason());
    return {};
  }
  fmt::print("{}: {}\n", describe(run), usual.kernel());
  // Parts of K that are added at the end would need models of their own.
  problem.may_split_k = false;
  LtGemm whole(problem);
  if (!whole.supported()) {
    fmt::print("  only with K split: {}\n", whole.reason());
    return {};
  }
  if (usual.split_k() > 1) fmt::print("  without splitting K: {}\n", whole.kernel());

  const auto m = static_cast<std::size_t>(run.size);
  std::vector<float> scale_a = random.scale_a();
  std::vector<float> scale_b = random.scale_b();
  if (run.scales == LtScales::blockwise) {
    // cuBLASLt wants A's scales with rows contiguous, B's rows padded to fours.
    const std::size_t depth = static_cast<std::size_t>(run.k + 127) / 128;
    const std::size_t padded = (depth + 3) / 4 * 4;
    std::vector<float> b_padded(scale_b.size() / depth * padded);
    for (std::size_t i = 0; i < scale_a.size(); ++i)
      scale_a[i % depth * m + i / depth] = random.scale_a()[i];
    for (std::size_t i = 0; i < scale_b.size(); ++i)
      b_padded[i / depth * padded + i % depth] = scale_b[i];
    scale_b = std::move(b_padded);
  }
  const DeviceBuffer<std::uint8_t> a{std::span<const std::uint8_t>(random.a())};
  const DeviceBuffer<std::uint8_t> b{std::span<const std::uint8_t>(random.b())};
  const DeviceBuffer<float> a_s{std::span<const float>(scale_a)};
  const DeviceBuffer<float> b_s{std::span<const float>(scale_b)};
  DeviceBuffer<float> d(random.outputs());
  d.fill(0xab);
  if (!whole.run(a.data(), b.data(), a_s.data(), b_s.data(), d.data())) {
    fmt::print("  refused when it ran: {}\n", whole.reason());
    return {};
  }
  return d.copy_out();
}

std::uint64_t count_same(const std::vector<float>& x, const std::vector<float>& y) {
  return x.size() - count_differing(x, y);
}

/// The first output that differs, and how far outputs are from each other.
void print_differences(const std::vector<float>& library, const std::vector<float>& candidate,
                       int columns) {
  std::size_t first = library.size();
  double largest = 0.0;
  for (std::size_t i = library.size(); i-- > 0;) {
    if (std::bit_cast<std::uint32_t>(library[i]) == std::bit_cast<std::uint32_t>(candidate[i]))
      continue;
    first = i;
    largest = std::max(largest, std::fabs(static_cast<double>(library[i]) - candidate[i]) /
                                    std::fabs(static_cast<double>(library[i])));
  }
  if (first == library.size()) return;
  fmt::print("    first at [{},{}]: cuBLASLt {:a}, candidate {:a}; at most {:.3g} of an output\n",
             first / static_cast<std::size_t>(columns), first % static_cast<std::size_t>(columns),
             library[first], candidate[first], largest);
}

std::vector<LtCandidate> candidates_of(Recipe recipe, int k) {
  std::vector<LtCandidate> candidates;
  for (const std::int64_t interval : {0, 32, 64, 128, 256, 512, 1024, 2048}) {
    if (interval >= k) continue;  // the same as none
    // Scales that change along K need a promotion that divides their block.
    if (recipe == Recipe::blockwise && (interval == 0 || interval > 128)) continue;
    for (const ScaleOrder order : scale_orders()) candidates.push_back({interval, order});
  }
  return candidates;
}

void search(const LtRun& run, std::uint64_t seed) {
  const Recipe recipe = recipe_of(run.scales);
  RandomProblem random(find_instruction_model("sm90.wgmma.e4m3"), run.size, run.size, run.k,
                       Distribution::normal, seed);
  random.set_recipe(recipe, 128, ScaleOrder::product_then_fma);
  const std::vector<float> library = run_cublaslt(random, run);
  if (library.empty()) return;

  std::vector<float> ours(library.size());
  const auto use = [&](const LtCandidate& candidate) {
    random.problem().promotion_interval = candidate.interval;
    random.problem().scale_order = candidate.order;
  };
  std::vector<LtCandidate> candidates = candidates_of(recipe, run.k);
  for (LtCandidate& candidate : candidates) {
    use(candidate);
    gemm_on_tensor_cores(random.problem(), ours, 0);
    candidate.same = count_same(library, ours);
  }
  fmt::print("{}", ranking_text(candidates, library.size()));
  use(*std::ranges::max_element(candidates, {}, &LtCandidate::same));
  gemm_on_tensor_cores(random.problem(), ours, 0);
  print_differences(library, ours, run.size);
  gemm_emulated(random.problem(), ours, 0);
  fmt::print("  the emulator, as the first of these: {}\n",
             share_text(count_same(library, ours), library.size()));
}

}  // namespace

std::vector<Part> search_parts(const Chip& chip, std::uint64_t seed) {
  const std::string missing = chip.capability != 90 ? "the candidates are built from Hopper's wgmma"
                                                    : find_lt_library().missing;
  if (!missing.empty())
    return {{"search", [missing] {
               return std::vector<CheckRow>{{"search", 0, 0, "", "not run: " + missing}};
             }}};
  std::vector<Part> parts;
  for (const auto& [size, k] : kSizes)
    for (const LtScales scales : {LtScales::per_tensor, LtScales::rowwise, LtScales::blockwise})
      for (const bool fast : {false, true}) {
        const LtRun run{size, k, scales, fast};
        parts.push_back({"search " + describe(run), [run, seed] {
                           search(run, seed);
                           return std::vector<CheckRow>{};
                         }});
      }
  return parts;
}

}  // namespace fp8lab::cuda
