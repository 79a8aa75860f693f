// A guard, a monitor, a watch and a language against plain ones that are written here, step by
// step, and products of operands whose rows lie apart.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/linear/multiply.hpp"
#include "io/temporary.hpp"
#include "train/same_bits.hpp"
#include "training/train/data.hpp"
#include "training/train/divergence.hpp"
#include "training/train/gradient_reducer.hpp"
#include "training/train/guard.hpp"
#include "training/train/mlp.hpp"
#include "training/train/monitor.hpp"
#include "training/train/trainer.hpp"

using namespace fp8lab;
using namespace fp8lab::train;

namespace {

/// A run that only counts, and fails where it is told: by its loss or by a gradient.
struct CountingRun {
  Mlp<float> model{{.vocabulary = 2, .context = 1, .embedding = 1, .hidden = 1, .layers = 1},
                   {fp32_recipe(), fp32_recipe(), {}},
                   1};
  std::int64_t steps = 0;
  std::vector<std::int64_t> path;  ///< what was done, in order: a state is this path
  bool fails = false;
  bool by_loss = false;

  GuardedRun guarded() {
    return {[this] { return steps; },
            [this](const PassContext&) {
              model.parameters().back()->gradient.back() =
                  fails && !by_loss ? std::numeric_limits<float>::infinity() : 1.0F;
              return fails && by_loss ? std::numeric_limits<double>::quiet_NaN()
                                      : static_cast<double>(steps) + 0.5;
            },
            [this](double loss) {
              path.push_back(steps);
              return StepRecord{.step = steps++, .loss = loss};
            },
            [this] { path.push_back(-1 - steps++); },
            [this]() -> Model<float>& { return model; },
            [this]() -> GuardedRun::State {
              return {steps, [this, at = steps, before = path] {
                        steps = at;
                        path = before;
                      }};
            }};
  }
};

/// What a guard does, in words: two states, the older of which is known to be good.
class PlainGuard {
 public:
  PlainGuard(std::int64_t every, int most) : every_(every), most_(most) {}

  std::string step(bool fails) {
    if (left_out.contains(now)) {
      ++skipped;
      return fmt::format("skipped {}", now++);
    }
    const std::int64_t newest = fresh >= 0 ? fresh : good;
    if (fresh < 0 && (newest < 0 || now - newest >= every_)) {
      fresh = now;
      ++snapshots;
    }
    if (fails) {
      if (good < 0) return fmt::format("step {} has no step before it", now);
      if (since == most_) return fmt::format("step {} after {} rollbacks", now, since);
      const std::int64_t failed = now;
      if (failed_once.contains(failed)) left_out.insert(failed);
      failed_once.insert(failed);
      fresh = -1;
      now = good;
      ++rollbacks;
      ++since;
      return fmt::format("rolled back from {}", failed);
    }
    if (fresh >= 0) good = fresh;
    fresh = -1;
    if (now < furthest) {
      ++replayed;
    } else {
      furthest = now + 1;
      since = 0;
    }
    return fmt::format("took {}", now++);
  }

  std::int64_t now = 0;
  std::int64_t snapshots = 0;
  std::int64_t rollbacks = 0;
  std::int64_t replayed = 0;
  std::int64_t skipped = 0;

 private:
  std::int64_t every_;
  int most_;
  std::int64_t good = -1;
  std::int64_t fresh = -1;
  std::int64_t furthest = 0;
  int since = 0;
  std::set<std::int64_t> failed_once;
  std::set<std::int64_t> left_out;
};

std::string said_of(NanGuard& guard) {
  try {
    const GuardedStep step = guard.step({});
    switch (step.outcome) {
      case GuardOutcome::taken:
        CHECK(step.record.loss == static_cast<double>(step.record.step) + 0.5);
        return fmt::format("took {}", step.record.step);
      case GuardOutcome::rolled_back:
        return fmt::format("rolled back from {}", step.record.step);
      case GuardOutcome::skipped:
        CHECK(step.record.loss == 0.0);
        return fmt::format("skipped {}", step.record.step);
    }
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

}  // namespace

TEST_CASE("a guard does what a plain one does, whatever fails and however", "[train]") {
  const RandomStream random(7, "guards");
  std::uint64_t draw = 0;
  for (const std::int64_t every : {1, 2, 3, 7})
    for (const int most : {1, 2, 5})
      for (int run = 0; run < 12; ++run) {
        CountingRun counting;
        NanGuard guard(counting.guarded(), {.snapshot_every = every, .most_rollbacks = most});
        PlainGuard plain(every, most);
        // From a failure in four steps to one in sixteen; the very first one mostly succeeds.
        const std::uint64_t rare = run % 3 == 0 ? 4 : run % 3 == 1 ? 8 : 16;
        for (int i = 0; i < 60; ++i) {
          counting.fails = random.below(draw++, rare) == 0 && (i > 0 || run == 0);
          counting.by_loss = random.below(draw++, 2) == 0;
          const std::string expected = plain.step(counting.fails);
          const std::string got = said_of(guard);
          INFO("a snapshot every " << every << ", at most " << most << " rollbacks, call " << i);
          if (expected.starts_with("step ")) {
            const bool first = expected.ends_with("it");
            CHECK(got == fmt::format("gradients of step {}: expected finite, got not finite, {}",
                                     plain.now,
                                     first ? "and there is no step before it"
                                           : fmt::format("after {} rollbacks", most)));
            break;
          }
          REQUIRE(got == expected);
          REQUIRE(counting.steps == plain.now);
          REQUIRE(guard.snapshots() == plain.snapshots);
          REQUIRE(guard.rollbacks() == plain.rollbacks);
          REQUIRE(guard.replayed_steps() == plain.replayed);
          REQUIRE(guard.skipped_steps() == plain.skipped);
          REQUIRE(counting.path.size() == static_cast<std::size_t>(counting.steps));
        }
      }
}

TEST_CASE("a guard of a run that goes on counts from its step", "[train]") {
  CountingRun counting;
  counting.steps = 40;
  NanGuard guard(counting.guarded(), {.snapshot_every = 10, .most_rollbacks = 1});
  CHECK(said_of(guard) == "took 40");
  for (int i = 0; i < 3; ++i) {
    // One rollback after each new step: none of them is the second without progress.
    CHECK(said_of(guard) == fmt::format("took {}", 41 + i));
    counting.fails = true;
    CHECK(said_of(guard) == fmt::format("rolled back from {}", 42 + i));
    counting.fails = false;
    for (int again = 0; again < 2 + i; ++again)
      CHECK(said_of(guard) == fmt::format("took {}", 40 + again));
  }
  CHECK(guard.replayed_steps() == 2 + 3 + 4);
  CHECK(guard.snapshots() == 1);
}

TEST_CASE("a watch's rise is its mean above the lowest full one or a guess", "[train]") {
  const RandomStream random(8, "losses");
  std::uint64_t draw = 0;
  for (const std::int64_t window : {1, 2, 3, 10})
    for (const double uniform : {1e300, 4.0}) {
      DivergenceWatch watch({.window = window, .rise = 1.0, .uniform_loss = uniform});
      std::vector<double> finite;
      for (int i = 0; i < 60; ++i) {
        // Eighths: means of up to ten of them are compared as they are added.
        double loss = static_cast<double>(random.below(draw++, 64)) / 8.0;
        const auto odd = random.below(draw++, 20);
        if (odd == 0) loss = std::numeric_limits<double>::quiet_NaN();
        if (odd == 1) loss = -std::numeric_limits<double>::infinity();
        watch.observe(loss);
        if (std::isfinite(loss)) finite.push_back(loss);
        double lowest = uniform;
        double mean = 0.0;
        for (std::size_t end = 1; end <= finite.size(); ++end) {
          const std::size_t size = std::min(end, static_cast<std::size_t>(window));
          double sum = 0.0;
          for (std::size_t j = end - size; j < end; ++j) sum += finite[j];
          mean = sum / static_cast<double>(size);
          if (size == static_cast<std::size_t>(window)) lowest = std::min(lowest, mean);
        }
        const double expected =
            std::isfinite(loss) ? mean - lowest : std::numeric_limits<double>::infinity();
        INFO("window " << window << ", loss " << i << ": " << loss);
        REQUIRE(watch.rise() == expected);
        REQUIRE(watch.diverged() == (expected > 1.0));
      }
    }
}

TEST_CASE("monitor: whole lines, and warnings above a limit alone", "[train]") {
  Recipe unit;
  unit.rule = ScaleRule::unit;
  const auto observe = [&](TrainingMonitor& monitor, std::string_view name,
                           const std::vector<float>& x) {
    const FloatMatrix matrix{x, 1, static_cast<std::int64_t>(x.size())};
    monitor.observe(name, matrix, quantize(unit, matrix));
  };
  constexpr float kInf = std::numeric_limits<float>::infinity();
  // Of ten elements one is NaN, four are lost, one is at and two above the largest number.
  const std::vector<float> x{std::nanf(""), 1e-5F, -1e-6F, 448.0F, 500.0F,
                             kInf,          1.0F,  0.0F,   2e-6F,  3e-6F};
  const FloatMatrix matrix{x, 1, 10};
  const QuantizationStatistics s = quantization_statistics(matrix, quantize(unit, matrix));
  TrainingMonitor monitor({.history = 2}, 9);
  std::ostringstream log;
  monitor.log_to(&log);
  observe(monitor, "a", x);
  monitor.observe("b", std::vector<float>{-3.0F, kInf, -kInf});
  monitor.end_step({{"z", 1.5}, {"loss", 2.0}});
  monitor.set_step(4);
  monitor.end_step();
  nlohmann::ordered_json line{{"step", 9}, {"tensor", "a"}, {"amax", kInf}, {"not_finite", 2}};
  line["underflow_percent"] = s.underflow_percent;
  line["overflow_percent"] = s.overflow_percent;
  line["saturated_percent"] = s.saturated_percent;
  line["nan_percent"] = s.nan_percent;
  line["sqnr_db"] = s.sqnr_db;
  line["scale_min"] = s.scale_min;
  line["scale_max"] = s.scale_max;
  CHECK(log.str() == line.dump() +
                         "\n{\"step\":9,\"tensor\":\"b\",\"amax\":null,\"not_finite\":2}\n"
                         "{\"step\":9,\"loss\":2.0,\"z\":1.5}\n{\"step\":4}\n");
  CAPTURE(s.underflow_percent, s.overflow_percent, s.saturated_percent, s.nan_percent);
  CHECK(
      std::set<double>{s.underflow_percent, s.overflow_percent, s.saturated_percent, s.nan_percent}
          .size() == 4);
  CHECK(monitor.step() == 5);

  const auto words = [](const TrainingMonitor& of) {
    std::string all;
    for (const MonitorWarning& w : of.warnings())
      all += fmt::format("{} {}: {} {:g} > {:g}\n", w.step, w.tensor, to_string(w.kind), w.value,
                         w.threshold);
    return all;
  };
  CHECK(words(monitor) == fmt::format("9 a: not finite 2 > 0\n9 a: overflow {:g} > 0.1\n"
                                      "9 a: underflow {:g} > 5\n9 b: not finite 2 > 0\n",
                                      s.overflow_percent, s.underflow_percent));
  // At the limits and just beyond them: of eight elements two are lost, one is too large.
  const std::vector<float> odd{1e-5F, 1e-5F, 500.0F, 1.0F, 1.0F, 1.0F, 1.0F, 1.0F};
  for (const double at : {0.0, 1e-9}) {
    TrainingMonitor exact({.underflow_percent = 25.0 - at, .overflow_percent = 12.5 - at});
    observe(exact, "a", odd);
    CHECK(words(exact) == (at == 0.0 ? "" : "0 a: overflow 12.5 > 12.5\n0 a: underflow 25 > 25\n"));
    CHECK(exact.tensors().at("a").not_finite == 0);
  }
  // A jump is one above the largest of the last two, whatever came before; zeros are no ground.
  TrainingMonitor jumps({.history = 2, .amax_jump = 4.0});
  for (const float amax : {0.0F, 5.0F, 20.0F, 81.0F, 1.0F, 2.0F, 8.0F, 33.0F}) {
    jumps.observe("j", std::vector<float>{-amax});
    jumps.end_step();
  }
  CHECK(words(jumps) == "3 j: amax jump 4.05 > 4\n7 j: amax jump 4.125 > 4\n");
  CHECK(jumps.tensors().at("j").amaxes == std::deque<float>{8.0F, 33.0F});
}

TEST_CASE("synthetic language: every token by its draws", "[train]") {
  // The language written once more: successors first, then each sequence by its own stream.
  for (const auto& [vocabulary, successors, markov, copy, length] :
       {std::tuple<std::int64_t, std::int64_t, double, double, std::int64_t>{50, 3, 0.5, 0.4, 3},
        {7, 5, 1.0, 0.0, 1},
        {90, 1, 0.0, 0.9, 5}}) {
    const std::uint64_t seed = 11;
    const auto rank = [](double uniform, std::int64_t count) {
      // Zipf's exponent 0: all ranks alike.
      std::int64_t at = 0;
      while (at + 1 < count && static_cast<double>(at + 1) <= uniform * static_cast<double>(count))
        ++at;
      return at;
    };
    const RandomStream table(seed, "language.successors");
    std::vector<std::int64_t> follows;
    for (std::int64_t i = 0; i < vocabulary * successors; ++i)
      follows.push_back(rank(table.uniform(static_cast<std::uint64_t>(i)), vocabulary));
    const auto data = synthetic_language({.vocabulary = vocabulary,
                                          .zipf_exponent = 0.0,
                                          .markov_share = markov,
                                          .successors = successors,
                                          .copy_share = copy,
                                          .copy_length = length},
                                         seed);
    for (const std::int64_t index : {0, 3}) {
      const Batch batch = data->batch(index, 2, 30);
      std::vector<std::int32_t> inputs;
      std::vector<std::int32_t> targets;
      for (std::int64_t s = 0; s < 2; ++s) {
        const RandomStream random(seed, fmt::format("language.sequence{}", 2 * index + s));
        std::vector<std::int64_t> tokens;
        std::int64_t left = 0;
        std::int64_t from = 0;
        for (std::uint64_t t = 0; t < 31; ++t) {
          const auto at = static_cast<std::int64_t>(t);
          if (left == 0 && at > length &&
              random.uniform(4 * t) < copy / static_cast<double>(length)) {
            left = length;
            from = static_cast<std::int64_t>(
                random.below(4 * t + 1, static_cast<std::uint64_t>(at - length)));
          }
          if (left > 0) {
            --left;
            tokens.push_back(tokens[static_cast<std::size_t>(from++)]);
          } else if (at > 0 && random.uniform(4 * t + 2) < markov) {
            tokens.push_back(follows[static_cast<std::size_t>(
                tokens.back() * successors + rank(random.uniform(4 * t + 3), successors))]);
          } else {
            tokens.push_back(rank(random.uniform(4 * t + 3), vocabulary));
          }
        }
        inputs.insert(inputs.end(), tokens.begin(), tokens.end() - 1);
        targets.insert(targets.end(), tokens.begin() + 1, tokens.end());
      }
      INFO("vocabulary " << vocabulary << ", batch " << index);
      CHECK(batch.inputs == inputs);
      CHECK(batch.targets == targets);
      CHECK(batch.sequences == 2);
      CHECK(batch.length == 30);
    }
    CHECK(data->vocabulary() == vocabulary);
    CHECK(data->identity() == fmt::format("language {} 0x0p+0 {:a} {} {:a} {} seed 11", vocabulary,
                                          markov, successors, copy, length));
  }
}

TEST_CASE("text: a sequence is its own draw, by its number over all batches", "[train]") {
  const TemporaryFolder folder("texts");
  std::string bytes;
  for (int i = 0; i < 41; ++i) bytes += static_cast<char>(210 + i);
  write_text(folder / "x", bytes);
  const auto data = text_file(folder / "x", 6);
  const RandomStream random(6, "text.position");
  for (const std::int64_t sequences : {1, 3})
    for (const std::int64_t index : {0, 1, 5}) {
      const Batch batch = data->batch(index, sequences, 7);
      REQUIRE(batch.inputs.size() == static_cast<std::size_t>(sequences * 7));
      for (std::int64_t s = 0; s < sequences; ++s) {
        const auto begin = static_cast<std::int64_t>(
            random.below(static_cast<std::uint64_t>(index * sequences + s), 41));
        for (std::int64_t t = 0; t < 7; ++t) {
          const auto at = static_cast<std::size_t>(s * 7 + t);
          INFO("batch " << index << " of " << sequences << ", token " << at);
          CHECK(batch.inputs[at] == 210 + (begin + t) % 41);
          CHECK(batch.targets[at] == 210 + (begin + t + 1) % 41);
        }
      }
    }
  CHECK(data->vocabulary() == 256);
  CHECK(data->identity() ==
        fmt::format("text of 41 bytes, hash {:016x}, seed 6", RandomStream::hash(bytes)));
}

TEST_CASE("multiply: operands and outputs whose rows lie apart, on every target", "[train]") {
  // Sizes beside those of a task, of a slab of K and of every kernel's block.
  const RandomStream random(9, "apart");
  for (const ProductSize size :
       {ProductSize{63, 17, 255}, {64, 33, 256}, {65, 31, 257}, {5, 70, 513}, {130, 1, 2}}) {
    const std::int64_t d_stride = size.n + 3;
    const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
    // Rows that lie apart, elements that do, and both.
    for (const auto& [row, k] : {std::pair<std::int64_t, std::int64_t>{size.k + 5, 1},
                                 {1, std::max(size.m, size.n) + 2},
                                 {2 * size.k + 1, 2}}) {
      std::vector<float> a(at((size.m - 1) * row + (size.k - 1) * k + 1));
      std::vector<float> b(at((size.n - 1) * row + (size.k - 1) * k + 1));
      for (std::size_t i = 0; i < a.size(); ++i) a[i] = random.bits32(2 * i) % 7 ? 1.0F : -0.7F;
      for (std::size_t i = 0; i < a.size(); ++i)
        a[i] *= 0.5F + static_cast<float>(random.uniform(2 * i));
      for (std::size_t i = 0; i < b.size(); ++i)
        b[i] = static_cast<float>(random.uniform(2 * i + 1)) - 0.5F;
      std::vector<float> expected(at(size.m * d_stride), 7.0F);
      for (std::int64_t i = 0; i < size.m; ++i)
        for (std::int64_t j = 0; j < size.n; ++j) {
          float sum = 0.0F;
          for (std::int64_t t = 0; t < size.k; ++t)
            sum = std::fma(a[at(i * row + t * k)], b[at(j * row + t * k)], sum);
          expected[at(i * d_stride + j)] = sum;
        }
      for (const Target target : available_targets())
        for (const int threads : {1, 3}) {
          std::vector<float> d(expected.size(), 7.0F);
          multiply_with_target({a.data(), row, k}, {b.data(), row, k}, {d.data(), d_stride}, size,
                               threads, target);
          INFO(size.m << " x " << size.n << " x " << size.k << ", strides " << row << ", " << k
                      << " on " << to_string(target) << ", " << threads << " threads");
          CHECK(same_bits(d, expected));
        }
      const std::vector<double> wide_a(a.begin(), a.end());
      const std::vector<double> wide_b(b.begin(), b.end());
      std::vector<double> wide(expected.size(), 7.0);
      multiply(Operand<double>{wide_a.data(), row, k}, {wide_b.data(), row, k},
               {wide.data(), d_stride}, size, 1);
      std::size_t wrong = 0;
      for (std::int64_t i = 0; i < size.m; ++i)
        for (std::int64_t j = 0; j < d_stride; ++j) {
          double sum = j < size.n ? 0.0 : 7.0;
          for (std::int64_t t = 0; t < size.k && j < size.n; ++t)
            sum = std::fma(wide_a[at(i * row + t * k)], wide_b[at(j * row + t * k)], sum);
          wrong += wide[at(i * d_stride + j)] == sum ? 0U : 1U;
        }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("a sum of lanes is in one order, whatever its length", "[train]") {
  // Powers of two so far apart that each order loses others: lane by lane, then pairs of pairs.
  const RandomStream random(10, "lanes");
  for (std::int64_t n = 0; n <= 40; ++n) {
    std::vector<float> x;
    for (std::int64_t i = 0; i < n; ++i) {
      const auto draw = static_cast<std::uint64_t>(41 * n + i);
      x.push_back(std::ldexp(static_cast<float>(random.uniform(draw)) - 0.5F,
                             static_cast<int>(random.below(draw, 24))));
    }
    float lane[8] = {};
    for (std::size_t i = 0; i < x.size(); ++i) lane[i % 8] += x[i];
    const float even = (lane[0] + lane[4]) + (lane[2] + lane[6]);
    const float odd = (lane[1] + lane[5]) + (lane[3] + lane[7]);
    INFO(n << " terms");
    CHECK(lane_sum<float>(n, [&](std::int64_t i) { return x[static_cast<std::size_t>(i)]; }) ==
          even + odd);
  }
}

TEST_CASE("options have the values that are written beside them", "[train]") {
  // The text by which checkpoints are told apart: those of other versions have it too.
  const auto cast = [](const char* format, int source) {
    return fmt::format(
        "{}/te/{}/0x0/false/0x0p+0/nearest_even-0-0-saturate-positive_all_ones-0x0p+0/"
        "1024-0x0p+0-max-0/16",
        format, source);
  };
  const auto product = [](const char* arithmetic, const char* sum, int interval) {
    return fmt::format("{}/{}-stored-chained/{}/product_then_fma", arithmetic, sum, interval);
  };
  const std::string plain =
      product("fp32", "fused_dot_product-32-13-13-toward_zero--1-f32-stored--1024", 0);
  const std::string bf16 = product("bf16", "float32-1-23-23-nearest_even--1-f32-stored--1024", 0);
  const auto recipe = [&](const std::array<std::string, 3>& casts,
                          const std::array<std::string, 3>& products, bool bf16_outputs) {
    return nlohmann::json{{"activation", casts[0]},      {"weight", casts[1]},
                          {"gradient", casts[2]},        {"forward", products[0]},
                          {"dgrad", products[1]},        {"wgrad", products[2]},
                          {"bf16_outputs", bf16_outputs}};
  };
  const std::string e4m3 = cast("e4m3fn", 0);
  const nlohmann::json head = recipe({e4m3, e4m3, e4m3}, {bf16, bf16, bf16}, true);
  nlohmann::json expected{
      {"batch", {8, 64}},
      {"blocks", recipe({e4m3, e4m3, e4m3}, {plain, plain, plain}, false)},
      {"clip_norm", 1.0},
      {"head", head},
      {"loss_scale", 1.0},
      {"model", {"transformer", 256, 64, 128, 2, 4, 256, 1, 1}},
      {"optimizer", {"f32", "f32", "f32", "f32", 0.9F, 0.95F, 1e-8F, 0.1, 0, true}},
      {"outliers", {0, 0}},
      {"schedule", {0.003, 20, 300, 0.1}},
      {"seed", 1}};
  TrainerOptions options;
  CHECK(describe(options) == expected.dump());
  options.model = MlpShape{};
  options.recipe.blocks = find_linear_recipe("te-delayed");
  const char* sum = "fused_dot_product-32-13-13-toward_zero--1-f32-stored--139";
  const std::string split = product("fp8", sum, 128);
  expected["blocks"] = recipe({cast("e4m3fn", 1), cast("e4m3fn", 1), cast("e5m2", 1)},
                              {product("fp8", sum, 0), split, split}, true);
  expected["model"] = {"mlp", 256, 4, 32, 128, 2};
  CHECK(describe(options) == expected.dump());
  CHECK(synthetic_language({}, 9)->identity() ==
        fmt::format("language 256 {:a} {:a} 8 {:a} 12 seed 9", 1.1, 0.75, 0.3));

  const MonitorOptions monitor;
  CHECK((monitor.history == 16 && monitor.underflow_percent == 5.0 &&
         monitor.overflow_percent == 0.1 && monitor.amax_jump == 8.0));
  const GuardOptions guard;
  CHECK((guard.snapshot_every == 1 && guard.most_rollbacks == 8));
  const DivergenceOptions divergence;
  CHECK((divergence.window == 10 && divergence.rise == 1.0 && divergence.uniform_loss == 1e300));
  const ReductionOptions reduction;
  CHECK((reduction.ranks == 1 && reduction.topology == Topology::ring &&
         reduction.wire.name == "e4m3fn" && reduction.scaling == GradientScaling::none));
  CHECK(reduction.auto_scaling == AutoScalingOptions{.threshold = 1e-5,
                                                     .steps_to_double = 1000,
                                                     .clean_steps = 0,
                                                     .growth = GrowthLaw::exponential});
}
