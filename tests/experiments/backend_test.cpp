// Experiments on another backend: one that counts what it is given and answers with
// the library's bits, as a chip that agrees with its model does.

#include "fp8lab/gemm/backend.hpp"

#include <atomic>
#include <bit>
#include <string>
#include <vector>

#include "catch.hpp"
#include "experiments/quick_run.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/scaling/presets.hpp"
#include "sweep_share.hpp"

using namespace fp8lab;

namespace {

bool is_fp8(FormatId id) { return id == FormatId::e4m3fn || id == FormatId::e5m2; }

/// Answers with the library's bits and counts what it did. `fault`: XORed into the first code of
/// every cast; 0 for a chip that agrees. Must outlive its backend.
class Counting {
 public:
  explicit Counting(std::uint8_t fault = 0) : fault_(fault) {}

  [[nodiscard]] int products() const { return products_; }
  [[nodiscard]] int bf16_products() const { return bf16_products_; }
  [[nodiscard]] int casts() const { return casts_; }

  [[nodiscard]] Backend backend() {
    return {"counting",
            [this](const GemmProblem& problem, std::span<float> d, int threads) {
              const bool bf16 =
                  problem.a.format == FormatId::bf16 && problem.b.format == FormatId::bf16;
              if (!bf16 && (!is_fp8(problem.a.format) || !is_fp8(problem.b.format))) return false;
              ++(bf16 ? bf16_products_ : products_);
              gemm(problem, d, threads);
              return true;
            },
            [this](FormatId format, const CastPolicy& policy, std::span<const float> values,
                   std::span<std::uint8_t> codes) {
              if (!fits_satfinite(format, policy, values)) return false;
              ++casts_;
              for (std::size_t i = 0; i < codes.size(); ++i)
                codes[i] =
                    static_cast<std::uint8_t>(encode(fp8lab::format(format), policy, values[i]));
              if (!codes.empty()) codes[0] ^= fault_;
              return true;
            }};
  }

 private:
  std::uint8_t fault_;
  std::atomic<int> products_{0};
  std::atomic<int> bf16_products_{0};
  std::atomic<int> casts_{0};
};

struct Run {
  std::string name;
  std::vector<std::string> changes;
  bool has_products;
};

const std::vector<Run> kRuns{
    {"dynamic-range", {"elements=500", "scales_per_decade=2"}, false},
    {"outlier",
     {"elements=1024", "repeats=2", "published_repeats=1", "containment_elements=512,1024"},
     true},
    {"format-asymmetry",
     {"tokens=64", "inputs=64", "outputs=64", "tile=32", "promotion_interval=32"},
     true},
    {"walkthrough", {}, false},
    {"inference-linear", {}, true},
    {"train",
     {"variants=bf16,te-current+outliers,deepgemm", "seeds=1", "steps=4", "warmup=2", "width=32",
      "hidden=32", "length=16", "underflow_log2=-8"},
     true},
};

const std::vector<Run> kLongerRuns{
    {"accumulator-drift", {}, true}, {"recipes", {}, false},       {"delayed-dynamics", {}, false},
    {"auto-scaling", {}, false},     {"fp8-allreduce", {}, false},
};

void check_runs(const std::vector<Run>& runs) {
  const SweepShare share;
  for (const Run& run : runs) {
    if (!share.takes_one_in(2, "runs on a backend: " + run.name, 0)) continue;
    CAPTURE(run.name);
    const Results expected = run_quick(run.name, 2, run.changes);
    Counting counting;
    const Results got = run_quick(run.name, 2, run.changes, counting.backend());
    CHECK(all_csv(got) == all_csv(expected));
    CHECK(got.findings == expected.findings);
    CHECK((counting.products() > 0) == run.has_products);
    CHECK(counting.casts() > 0);
  }
}

/// Random numbers and, here and there, what casts treat in its own way.
std::vector<float> awkward(std::size_t count) {
  const RandomStream random(3, "tests/backend");
  std::vector<float> x;
  for (std::size_t i = 0; i < count; ++i) x.push_back(static_cast<float>(random.normal(i)));
  constexpr std::uint32_t kSpecial[] = {0x7fc00000, 0xffc00001, 0x7f800000, 0xff800000,
                                        0x80000000, 0x00000001, 0x7f7fffff};
  for (std::size_t i = 0; i < std::size(kSpecial); ++i)
    x[i * count / std::size(kSpecial)] = std::bit_cast<float>(kSpecial[i]);
  return x;
}

}  // namespace

TEST_CASE("experiments run their products and casts on the backend of their run",
          "[experiments][backend]") {
  check_runs(kRuns);
}

TEST_CASE("experiments run BF16 products of a matrix unit on the backend too",
          "[experiments][backend]") {
  // So many steps, since outputs are rounded to BF16: a sum's last bits show where they move a tie.
  constexpr int kSteps = 12;
  std::vector<std::string> run{"variants=bf16,te-current", "seeds=1", "ladders=[]", "steps=12"};
  const Results in_fp32 = run_quick("train", 2, run);
  Counting none;
  CHECK(all_csv(run_quick("train", 2, run, none.backend())) == all_csv(in_fp32));
  CHECK(none.bf16_products() == 0);

  run.emplace_back("bf16_accumulator=sm90.wgmma.bf16");
  const Results expected = run_quick("train", 2, run);
  CHECK(all_csv(expected) != all_csv(in_fp32));
  Counting counting;
  CHECK(all_csv(run_quick("train", 2, run, counting.backend())) == all_csv(expected));
  // Each step: 15 of BF16's layers and head, 3 of the other run's head.
  CHECK(counting.bf16_products() == kSteps * (15 + 3));

  const std::vector<std::string> sums{"features=64", "batch=4",
                                      "seeds=2",     "steps=3",
                                      "warmup=1",    "bf16_accumulator=sm90.wgmma.bf16"};
  Counting of_sums;
  (void)run_quick("long-sums", 2, sums, of_sums.backend());
  CHECK(of_sums.bf16_products() > 0);
  CHECK_THROWS_WITH(run_quick("train", 2, {"bf16_accumulator=sm90"}),
                    contains("bf16_accumulator: ") && contains("'sm90'"));
  CHECK_THROWS_WITH(run_quick("train", 2, {"bf16_accumulator=sm120.mma.mxf4nvf4"}),
                    contains("bf16_accumulator: expected a model that takes BF16"));
}

TEST_CASE("longer experiments run theirs there too", "[experiments][backend][slow]") {
  check_runs(kLongerRuns);
}

TEST_CASE("a backend that casts otherwise changes what experiments find",
          "[experiments][backend][repeats][long]") {
  const Results expected = run_quick("inference-linear", 2);
  Counting wrong(0x80);
  CHECK((all_csv(run_quick("inference-linear", 2, {}, wrong.backend())) != all_csv(expected)));
}

TEST_CASE("every recipe casts on a backend what it casts itself", "[scaling][backend]") {
  constexpr std::int64_t kRows = 256;
  constexpr std::int64_t kColumns = 256;
  const std::vector<float> x = awkward(kRows * kColumns);
  const SweepShare share;
  std::uint64_t number = 0;
  for (const Preset& preset : presets())
    for (const TensorRole role :
         {TensorRole::activation, TensorRole::weight, TensorRole::gradient}) {
      if (!share.takes_one_in(3, "recipes on a backend", number++)) continue;
      CAPTURE(preset.name, to_string(role));
      const Recipe& recipe = preset.recipe(role);
      const FloatMatrix matrix{x, kRows, kColumns};
      Quantizer on_cpu(recipe);
      Quantizer on_backend(recipe);
      const std::vector<float> calm(x.size(), 1.0F);
      if (recipe.source != ScaleSource::current) {
        on_cpu.observe({calm, kRows, kColumns});
        on_backend.observe({calm, kRows, kColumns});
      }
      const QuantizedTensor expected = on_cpu.quantize(matrix, true, 2);
      Counting counting;
      const QuantizedTensor got = on_backend.quantize(matrix, true, 2, {}, counting.backend());
      // Where NaN or Inf gives another code than satfinite, the library casts.
      const bool saturates = recipe.policy.overflow == OverflowPolicy::saturate &&
                             (recipe.policy.nan == NanPolicy::positive_all_ones ||
                              recipe.policy.nan == NanPolicy::signed_all_ones);
      // Backends cast to FP8 alone.
      const bool fp8 = format(recipe.format).code_bits() == 8;
      CHECK((counting.casts() == 2 || (counting.casts() == 0 && (!saturates || !fp8))));
      CHECK(got.codes == expected.codes);
      CHECK(got.transposed->codes == expected.transposed->codes);
      // A named target is the host's own kernels.
      Counting unused;
      const QuantizedTensor again =
          on_backend.quantize(matrix, true, 2, current_target(), unused.backend());
      CHECK(again.codes.size() == x.size());
      CHECK(unused.casts() == 0);
    }
}

TEST_CASE("values under one scale go to a backend too", "[scaling][backend]") {
  const std::vector<float> x = awkward(1001);
  for (const FormatId id : {FormatId::e4m3fn, FormatId::e5m2})
    for (const bool divide : {false, true}) {
      std::vector<std::uint8_t> expected(x.size());
      std::vector<std::uint8_t> got(x.size());
      const TileScale scale{3.1F, 0.32F, 0};
      encode_scaled(format(id), kNvidiaSatfinite, x, scale, divide, expected);
      Counting counting;
      encode_scaled(format(id), kNvidiaSatfinite, x, scale, divide, got, counting.backend());
      CHECK(counting.casts() == 1);
      CHECK(got == expected);
    }
}
