// cuda/README.md says of each experiment which of its products and casts run on the chip with
// `--backend cuda`. Here each runs on a backend that takes what the chip has, and computes it with
// the library.

#include <fmt/format.h>

#include <fstream>
#include <sstream>
#include <string>

#include "catch.hpp"
#include "cuda/chip_products.hpp"
#include "cuda/tool/experiments.hpp"
#include "experiments/registry.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/gemm/backend.hpp"
#include "sweep_share.hpp"

using namespace fp8lab;
using namespace fp8lab::cuda;

namespace {

Backend as_cuda() {
  return {"as cuda",
          [](const GemmProblem& problem, std::span<float> d, int threads) {
            if (!has_tensor_core_product(problem)) return false;
            gemm(problem, d, threads);
            return true;
          },
          [](FormatId format, const CastPolicy& policy, std::span<const float> values,
             std::span<std::uint8_t> codes) {
            if (!fits_satfinite(format, policy, values)) return false;
            for (std::size_t i = 0; i < codes.size(); ++i)
              codes[i] =
                  static_cast<std::uint8_t>(encode(fp8lab::format(format), policy, values[i]));
            return true;
          }};
}

std::string share(std::uint64_t asked, std::uint64_t done) {
  if (asked == 0) return "no use";
  return done == 0 ? "none" : done == asked ? "all" : "some";
}

std::string readme() {
  const std::ifstream file(FP8LAB_CUDA_README);
  REQUIRE(file.good());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("the chip has products of FP8 and BF16 under its own models", "[cuda]") {
  const std::vector<std::uint8_t> codes(64, 0);
  const auto has = [&](const char* model, FormatId a, FormatId b) {
    GemmProblem problem;
    problem.model = find_instruction_model(model).accumulator;
    problem.a = {a, codes.data(), 1, 32, 32, 1};
    problem.b = {b, codes.data(), 1, 32, 32, 1};
    return has_tensor_core_product(problem);
  };
  using enum FormatId;
  CHECK(has("sm90.wgmma.e4m3", e4m3fn, e5m2));
  CHECK(has("sm90.wgmma.bf16", bf16, bf16));
  CHECK(!has("fp32", bf16, bf16));
  CHECK(!has("sm90.wgmma.e4m3", bf16, bf16));
  CHECK(!has("sm90.wgmma.bf16", e4m3fn, e4m3fn));
  CHECK(!has("sm90.wgmma.f16", f16, f16));
}

TEST_CASE("the list of what experiments run on the chip is right", "[cuda][slow]") {
  const std::string text = readme();
  const SweepShare sweep;
  std::uint64_t number = 0;
  for (const Experiment& experiment : all_experiments()) {
    INFO(experiment.name);
    const bool named = text.find(fmt::format("\n| `{}` |", experiment.name)) != std::string::npos;
    CHECK(named);
    if (!sweep.takes_one_in(10, "experiments on the chip", number++)) continue;
    const RanThere ran = what_ran(experiment, as_cuda(), 1, true);
    const std::string row =
        fmt::format("\n| `{}` | {} | {} |\n", experiment.name,
                    share(ran.products_asked, ran.products), share(ran.casts_asked, ran.casts));
    INFO("the list must have" << row);
    const bool listed = text.find(row) != std::string::npos;
    CHECK(listed);
  }
}
