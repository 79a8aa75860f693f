// Every parameter of every experiment against its range, and random values all over.

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "catch.hpp"
#include "experiments/registry.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "lab/experiment/experiment.hpp"
#include "lab/experiment/model_parameters.hpp"

namespace fp8lab {
namespace {

constexpr rlim_t kMostSeconds = 60;      // of the processor, whatever else the machine does
constexpr unsigned kMostWaiting = 1200;  // for what waits and computes nothing
// What is drawn for a size: larger ones only cost time.
constexpr double kLargestSize = 40.0;

bool is_text_or_flag(const ParameterValue& value) {
  return std::holds_alternative<std::string>(value) || std::holds_alternative<bool>(value);
}
bool is_list(const ParameterValue& value) { return value.index() >= 4; }
bool is_integer(const ParameterValue& value) {
  return std::holds_alternative<std::int64_t>(value) ||
         std::holds_alternative<std::vector<std::int64_t>>(value);
}
bool is_text_list(const ParameterValue& value) {
  return std::holds_alternative<std::vector<std::string>>(value);
}

struct Small {
  std::string_view name;
  std::vector<std::string> changes;
};

const std::vector<std::string> kSmallModel{"vocabulary=32", "length=8",  "width=16", "layers=1",
                                           "heads=2",       "hidden=16", "steps=4",  "warmup=1"};

std::vector<std::string> with_model(std::vector<std::string> changes) {
  changes.insert(changes.begin(), kSmallModel.begin(), kSmallModel.end());
  return changes;
}

/// Forms of the experiments that take a fraction of a second.
const std::vector<Small>& small_forms() {
  static const std::vector<Small> kForms{
      {"accumulator-drift",
       {"k=128,512", "promotion_k=512", "rows=2", "columns=2", "split_k=128", "published_rows=1",
        "bf16_k=32,64", "running_sum_k=256", "accumulators=sm90.wgmma.e4m3,exact"}},
      {"adam-states",
       {"elements=16", "steps=20", "decades=0,2", "stagnation_steps=20", "stagnation_elements=16",
        "betas=0.9", "presets=fp32,coat"}},
      {"attention-fp8",
       {"deviations=1", "lengths=64", "queries=2", "head_size=16", "repeats=2", "cache_lengths=32",
        "cache_queries=2", "caches=e4m3.one,deepseek-v3.2"}},
      {"auto-scaling",
       {"elements=32", "ranks=2,4", "repeats=2", "steps=40", "dynamics_ranks=2",
        "dynamics_elements=32", "settle_steps=5", "spike_period=10"}},
      {"claims", {"ids=F1"}},
      {"cost", {"models=7b", "blocks=llama-7b", "sequences=512", "ranks=2"}},
      {"data-parallel", with_model({"workers=2", "samples=1"})},
      {"delayed-dynamics", {"steps=40", "elements=16", "histories=1,4", "period=10"}},
      {"dynamic-range", {"elements=64", "scales_per_decade=1"}},
      {"failure-ladder", with_model({"seeds=2"})},
      {"format-asymmetry",
       {"tokens=32", "inputs=32", "outputs=32", "tile=32", "promotion_interval=32",
        "sweep_decades=2,4"}},
      {"fp8-allreduce",
       {"elements=32", "ranks=2,4", "gather_elements=32", "gather_ranks=2", "desync_ranks=2",
        "desync_octaves=0,1"}},
      {"fp8-lm", with_model({"systems=fp8-lm", "seeds=1", "samples=1"})},
      {"how-many-bits",
       {"operands=normal", "formats=e4m3fn,e2m1", "blocks=0,32", "terms=8,32",
        "fraction_bits=8,12,16", "k=64", "rows=2", "columns=3"}},
      {"inference-linear",
       {"tokens=4", "inputs=128", "outputs=16", "calibration_batches=1,2", "test_batches=1"}},
      {"int8-vs-fp8", {"elements=200", "clips_per_octave=2", "published_elements=200"}},
      {"leading-indicators",
       with_model({"runs=te-current", "snapshot_every=0,1", "window=2", "outlier_channels=2"})},
      {"long-sums",
       {"features=64", "offsets=1", "classes=2", "inputs=2", "batch=4", "steps=3", "seeds=2"}},
      {"optimizer-precision", with_model({"rows=bf16,fp8-lm", "seeds=1"})},
      {"outlier",
       {"elements=256", "repeats=1", "outliers_per_decade=1", "containment_elements=64,256",
        "published_repeats=1", "product_k=64", "product_outputs=2"}},
      {"recipes", {"rows=32", "columns=128", "read_rows=16", "read_columns=64", "past_steps=1"}},
      {"seed-listings", {"listing_repeats=2", "torch_repeats=1", "torch_outliers=200"}},
      {"sweep-efficiency", {"points=200", "ranks=1,4", "mean_seconds=1", "in_hand=2", "repeats=2"}},
      {"train", with_model({"variants=bf16,te-current", "seeds=1", "ladders=underflow",
                            "underflow_log2=-8", "samples=1", "outlier_channels=2"})},
      {"vendors", {"k=64,256", "rows=2", "columns=2", "repeats=1"}},
      {"walkthrough", {"curve_points=10"}},
  };
  return kForms;
}

/// Uniform choices from one stream.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : stream_(seed, "random parameters") {}

  std::size_t below(std::size_t bound) {
    return static_cast<std::size_t>(stream_.below(next_++, bound));
  }
  double uniform() { return stream_.uniform(next_++); }
  template <class T>
  const T& one_of(const std::vector<T>& values) {
    return values[below(values.size())];
  }

 private:
  RandomStream stream_;
  std::uint64_t next_ = 0;
};

/// A number from inside, from an end of, or from outside of the range.
std::string number(Draws& draws, const ParameterRange& range, bool integer) {
  static const std::vector<std::string> kOdd{"nan", "inf",    "-inf", "0",   "-1",   "1e300",
                                             "1",   "1e-300", "-0.0", "2.5", "1e18", "-1e-9"};
  if (draws.below(2) == 0) return draws.one_of(kOdd);
  double high = range.high;
  if (integer) high = std::max(range.low, std::min(high, kLargestSize));
  const double at = draws.below(3) == 0 ? std::round(draws.uniform()) : draws.uniform();
  const double value = range.low + at * (high - range.low);
  return integer ? fmt::format("{:.0f}", value) : fmt::format("{}", value);
}

std::string assignment(Draws& draws, const Parameters& p, const std::string& key) {
  const ParameterValue& like = p.values().at(key);
  if (std::holds_alternative<bool>(like)) return key + (draws.below(2) == 0 ? "=true" : "=false");
  if (is_text_list(like) || std::holds_alternative<std::string>(like))
    return key + "=" + draws.one_of<std::string>({"", "nothing", "[]", "e4m3fn", "normal", "\"\""});
  const ParameterRange& range = p.ranges().at(key);
  std::string text = key + "=";
  const std::size_t count = is_list(like) ? draws.below(4) : 1;
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) text += ',';
    text += number(draws, range, is_integer(like));
  }
  return text;
}

std::vector<std::int64_t> integers_of(const Parameters& p, const std::string& key) {
  if (std::holds_alternative<std::int64_t>(p.values().at(key))) return {p.integer(key)};
  return p.integers(key);
}

/// In a process of its own: 0 it ran or was refused, anything else is a fault.
int run_apart(const Experiment& experiment, const Parameters& parameters) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit most{kMostSeconds, kMostSeconds};
    ::setrlimit(RLIMIT_CPU, &most);
    ::alarm(kMostWaiting);
    int code = 0;
    try {
      experiment.run({parameters, 1, 1, {}});
    } catch (const Error&) {
    } catch (const std::exception&) {
      code = 3;
    }
    ::_exit(code);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

std::uint64_t environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace

TEST_CASE("every number and every list of an experiment has a range", "[experiments][ranges]") {
  for (const Experiment& experiment : all_experiments()) {
    const Parameters p = Parameters::from_toml(experiment.default_toml, true);
    for (const auto& [key, value] : p.values()) {
      INFO(experiment.name << " " << key);
      // One text has a range only if it names a model.
      CHECK(p.ranges().contains(key) == (!is_text_or_flag(value) || holds_models(p, key)));
      if (is_text_or_flag(value) || is_text_list(value)) continue;
      const ParameterRange& range = p.ranges().at(key);
      CHECK(std::isfinite(range.low));
      CHECK(std::isfinite(range.high));
    }
  }
}

TEST_CASE("no experiment takes NaN, an infinity or a list that is too short",
          "[experiments][ranges]") {
  for (const Experiment& experiment : all_experiments()) {
    Parameters p = Parameters::from_toml(experiment.default_toml, true);
    for (const auto& [key, range] : p.ranges()) {
      INFO(experiment.name << " " << key);
      const ParameterValue value = p.values().at(key);
      if (range.fewest > 0 && is_list(value)) CHECK_THROWS_AS(p.set(key + "=[]"), Error);
      if (is_text_list(value) || is_text_or_flag(value)) continue;
      for (const char* text : {"nan", "inf", "-inf", "1e300", "-1e300"})
        CHECK_THROWS_AS(p.set(key + "=" + text), Error);
    }
  }
}

TEST_CASE("what once crashed, hung or gave 0 % is refused", "[experiments][ranges]") {
  const auto [name, change, message] = GENERATE(table<std::string, std::string, std::string>({
      {"recipes", "magnitude=nan", "magnitude: expected a finite number in"},
      {"outlier", "sigma=nan", "sigma: expected a finite number in"},
      {"outlier", "sigma=-1", "got -1.0"},
      {"outlier", "containment_outlier=inf", "got inf"},
      {"outlier", "outliers_per_decade=0", "got 0"},
      {"outlier", "outliers_per_decade=-1", "got -1"},
      {"outlier", "outlier_from=nan", "got nan"},
      {"outlier", "outlier_from=inf", "got inf"},
      {"outlier", "outlier_to=inf", "got inf"},
      {"outlier", "outlier_to=-1", "outlier_to: expected at least outlier_from = 0, got -1"},
      {"outlier", "containment_elements=", "1 to 64 values, got 0"},
      {"format-asymmetry", "activation_sigma=nan", "got nan"},
      {"auto-scaling", "drift_octaves=nan", "got nan"},
      {"auto-scaling", "ranks=", "got 0"},
      {"adam-states", "decades=", "got 0"},
      {"dynamic-range", "scale_to=inf", "got inf"},
      {"dynamic-range", "scale_to=-3", "scale_to: expected at least scale_from = -2, got -3"},
      {"dynamic-range", "scales_per_decade=-1", "got -1"},
      {"recipes", "magnitude=1e30", "magnitude: expected a magnitude at which every"},
  }));
  INFO(name << " " << change);
  const Experiment& experiment = find_experiment(name);
  Parameters p = Parameters::from_toml(experiment.default_toml, true);
  if (name == "recipes") p.set("decades=30");
  const auto run = [&, &change = change] {
    p.set(change);
    experiment.run({p, 1, 1, {}});
  };
  CHECK_THROWS_WITH(run(), contains(message));
}

// FP8LAB_DRAWS says how many (2000 at night), FP8LAB_DRAW_SEED repeats a run.
TEST_CASE("random values of any parameter neither crash nor hang", "[experiments][ranges]") {
  const std::uint64_t seed =
      environment("FP8LAB_DRAW_SEED", environment("FP8LAB_SEED", std::random_device{}()));
  const std::uint64_t count = environment("FP8LAB_DRAWS", 150);
  CAPTURE(seed);
  Draws draws(seed);
  std::size_t ran = 0;
  std::size_t refused = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const Small& small = draws.one_of(small_forms());
    const Experiment& experiment = find_experiment(small.name);
    Parameters p = Parameters::from_toml(experiment.default_toml, true);
    for (const std::string& change : small.changes) p.set(change);
    std::vector<std::string> keys;
    for (const auto& [key, value] : p.values()) keys.push_back(key);
    const std::string& key = draws.one_of(keys);
    const std::string change = assignment(draws, p, key);
    CAPTURE(i, small.name, change);
    try {
      p.set(change);
    } catch (const Error&) {
      ++refused;
      continue;
    }
    // A figure from a NaN would read 0 %.
    CHECK(change.find("nan") == std::string::npos);
    CHECK(change.find("inf") == std::string::npos);
    bool large = false;
    if (is_integer(p.values().at(key)))
      for (const std::int64_t v : integers_of(p, key)) large = large || v > 4096;
    if (large) continue;
    ++ran;
    // 9 and 24: longer than a minute of the processor; 14: it waits; other signals: a crash;
    // 768: an exception that is none of ours.
    CHECK(run_apart(experiment, p) == 0);
  }
  std::printf("random parameters: seed %llu, %zu ran, %zu refused\n",
              static_cast<unsigned long long>(seed), ran, refused);
  CHECK(ran > count / 10);
  CHECK(refused > count / 10);
}

TEST_CASE("the small forms of the random values name every experiment", "[experiments][ranges]") {
  CHECK(small_forms().size() == all_experiments().size());
  for (const Experiment& experiment : all_experiments())
    CHECK(std::ranges::find(small_forms(), experiment.name, &Small::name) != small_forms().end());
}

}  // namespace fp8lab
