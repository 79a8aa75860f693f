// Which products and casts each experiment sends to the backend of its run. An argument that was
// forgotten leaves a product on the CPU and changes no result: only a count shows it.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "catch.hpp"
#include "experiments/quick_run.hpp"
#include "experiments/registry.hpp"
#include "fp8lab/gemm/backend.hpp"
#include "sweep_share.hpp"

using namespace fp8lab;

namespace {

/// What a run asks of its backend; a cast that another policy would not fit is asked for too.
struct Requests {
  std::uint64_t products = 0;
  std::uint64_t outputs = 0;  ///< elements of all products
  std::uint64_t casts = 0;
  std::uint64_t elements = 0;  ///< of all casts
};

struct Row {
  std::string_view experiment;
  Requests requests;
  const char* shorter[4] = {};  ///< parameters of a run that asks in the same places, less often
};

// Their quick forms.
constexpr Row kShort[] = {
    {"outlier",
     {84, 1344, 536, 3177984},
     {"elements=1024", "repeats=2", "published_repeats=1", "containment_elements=512,1024"}},
    {"format-asymmetry", {144, 2359296, 444, 7274496}, {"tensor_repeats=2"}},
    {"accumulator-drift",
     {250, 16000, 260, 2932736},
     {"k=512,1024", "promotion_k=512", "bf16_k=128,256", "fit_repeats=2"}},
    {"how-many-bits", {1824, 466944, 48, 786432}, {"fraction_bits=8,12,16"}},
    {"attention-fp8", {5960, 11345920, 2992, 14069760}},
    {"walkthrough", {0, 0, 30, 30}},
    {"recipes", {0, 0, 252, 33030144}},
    {"inference-linear", {120, 491520, 180, 2949120}},
    {"vendors", {360, 23040, 240, 4177920}},
    {"failure-ladder", {768, 1376256, 1536, 2752512}},
    {"long-sums", {576, 38561280, 1152, 77122560}, {"steps=12", "warmup=2"}},
    {"fp8-lm", {3456, 4349952, 9792, 13741056}},
};

constexpr Row kLong[] = {
    {"dynamic-range", {0, 0, 14000, 57344000}},
    {"delayed-dynamics", {0, 0, 324000, 82944000}},
    {"auto-scaling", {0, 0, 10050, 1317273600}},
    {"fp8-allreduce", {0, 0, 83380, 84803584}},
    {"train", {32400, 232243200, 64800, 464486400}},
    {"leading-indicators", {16584, 118874112, 33168, 237748224}},
    {"data-parallel", {46080, 231997440, 122880, 628162560}},
    {"claims", {107511, 770403328, 227376, 2124779294}},
};

// Their arithmetic is not that of matrix units and whole tensors.
constexpr std::string_view kNone[] = {"seed-listings", "int8-vs-fp8",         "adam-states",
                                      "cost",          "optimizer-precision", "sweep-efficiency"};

/// Has nothing, so that the library computes all, and counts what it was asked.
class Asked {
 public:
  [[nodiscard]] Backend backend() {
    return {"asked",
            [this](const GemmProblem&, std::span<float> d, int) {
              ++products_;
              outputs_ += d.size();
              return false;
            },
            [this](FormatId, const CastPolicy&, std::span<const float> values,
                   std::span<std::uint8_t>) {
              ++casts_;
              elements_ += values.size();
              return false;
            }};
  }
  [[nodiscard]] Requests requests() const { return {products_, outputs_, casts_, elements_}; }

 private:
  std::atomic<std::uint64_t> products_{0};
  std::atomic<std::uint64_t> outputs_{0};
  std::atomic<std::uint64_t> casts_{0};
  std::atomic<std::uint64_t> elements_{0};
};

void check(const Row& row) {
  const Requests& expected = row.requests;
  CAPTURE(row.experiment);
  std::vector<std::string> changes;
  for (const char* one : row.shorter)
    if (one != nullptr) changes.emplace_back(one);
  Asked asked;
  run_quick(row.experiment, 2, changes, asked.backend());
  const Requests got = asked.requests();
  CHECK(got.products == expected.products);
  CHECK(got.outputs == expected.outputs);
  CHECK(got.casts == expected.casts);
  CHECK(got.elements == expected.elements);
}

}  // namespace

TEST_CASE("experiments ask their backend for every product and cast", "[experiments][backend]") {
  const SweepShare share;
  std::uint64_t item = 0;
  for (const Row& row : kShort)
    if (share.takes_one_in(5, "requests of short experiments", item++)) check(row);
}

TEST_CASE("longer experiments ask theirs for every product and cast",
          "[experiments][backend][slow]") {
  const SweepShare share;
  std::uint64_t item = 0;
  const auto takes = [&] { return share.takes_one_in(3, "requests of experiments", item++); };
  for (const Row& row : kLong)
    if (takes()) check(row);
  for (const std::string_view name : kNone)
    if (takes()) check({name, {}});
}

TEST_CASE("each experiment is in one of the lists of requests", "[experiments][backend]") {
  std::vector<std::string_view> listed(std::begin(kNone), std::end(kNone));
  for (const Row& row : kShort) listed.push_back(row.experiment);
  for (const Row& row : kLong) listed.push_back(row.experiment);
  std::vector<std::string_view> all;
  for (const Experiment& experiment : all_experiments()) all.push_back(experiment.name);
  std::ranges::sort(listed);
  std::ranges::sort(all);
  CHECK(listed == all);
}
