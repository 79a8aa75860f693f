#include "fp8lab/scaling/delayed.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"

using namespace fp8lab;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("delayed scaling: the new scale serves the next step", "[scaling]") {
  DelayedScaling scaling(FormatId::e4m3fn, {.history = 3});
  CHECK(scaling.scale() == 1.0F);
  scaling.record(2.0F);
  CHECK(scaling.scale() == 1.0F);
  CHECK(scaling.history() == std::vector<float>{2, 0, 0});
  scaling.update();
  CHECK(scaling.scale() == 224.0F);
  CHECK(scaling.inverse_scale() == 1.0F / 224.0F);
  CHECK(scaling.history() == std::vector<float>{0, 0, 2});
}

TEST_CASE("delayed scaling: the slots roll and the oldest is dropped", "[scaling]") {
  DelayedScaling scaling(FormatId::e4m3fn, {.history = 3});
  const std::vector<float> trace{8, 4, 2, 1, 1};
  // The maximum over the last three amaxes, the current one included.
  const std::vector<float> scales{56, 56, 56, 112, 224};
  for (std::size_t i = 0; i < trace.size(); ++i) {
    scaling.record(trace[i]);
    scaling.update();
    INFO("step " << i);
    CHECK(scaling.scale() == scales[i]);
  }
  CHECK(scaling.history() == std::vector<float>{0, 1, 1});
}

TEST_CASE("delayed scaling: most_recent, margin and several casts a step", "[scaling]") {
  DelayedScaling recent(FormatId::e4m3fn,
                        {.history = 4, .margin = 1, .algorithm = AmaxAlgorithm::most_recent});
  recent.record(7.0F);
  recent.record(3.5F);
  recent.update();
  CHECK(recent.scale() == 32.0F);  // 448 / 2 / 7
  recent.record(1.75F);
  recent.update();
  CHECK(recent.scale() == 128.0F);
}

TEST_CASE("delayed scaling: zero, NaN and Inf keep the scale", "[scaling]") {
  DelayedScaling scaling(FormatId::e4m3fn, {.history = 2});
  scaling.record(4.0F);
  scaling.update();
  scaling.record(kNan);
  scaling.update();  // NaN left slot 0 at zero: nothing moves
  CHECK(scaling.scale() == 112.0F);
  CHECK(scaling.history() == std::vector<float>{0, 4});
  scaling.record(kInf);
  scaling.update();
  CHECK(scaling.scale() == 112.0F);
  scaling.record(1.0F);
  scaling.update();  // the Inf is still in the history of two
  CHECK(scaling.scale() == 112.0F);
  scaling.record(1.0F);
  scaling.update();
  CHECK(scaling.scale() == 448.0F);
}

TEST_CASE("delayed scaling: a zero amax rolls only where asked", "[scaling]") {
  DelayedScaling scaling(FormatId::e4m3fn, {.history = 2, .zero_amax = ZeroAmax::roll});
  scaling.record(4.0F);
  scaling.update();
  scaling.update();
  CHECK(scaling.scale() == 112.0F);
  CHECK(scaling.history() == std::vector<float>{0, 0});
}

TEST_CASE("delayed scaling: a tiny amax gives FLT_MAX, a history of 1 works", "[scaling]") {
  DelayedScaling scaling(FormatId::e5m2, {.history = 1});
  scaling.record(0x1p-149F);
  scaling.update();
  CHECK(scaling.scale() == std::numeric_limits<float>::max());
  scaling.record(57344.0F);
  scaling.update();
  CHECK(scaling.scale() == 1.0F);
  CHECK(scaling.history() == std::vector<float>{0});
}

TEST_CASE("delayed scaling: equals a plain window of the last amaxes", "[scaling]") {
  const RandomStream random(3, "delayed");
  for (const std::int64_t history : {1, 2, 7, 64}) {
    DelayedScaling scaling(FormatId::e4m3fn, {.history = history});
    std::deque<float> window;
    for (std::uint64_t step = 0; step < 500; ++step) {
      const auto amax = static_cast<float>(std::exp(3.0 * random.normal(step)));
      window.push_front(amax);
      if (window.size() > static_cast<std::size_t>(history)) window.pop_back();
      scaling.record(amax);
      scaling.update();
      const float expected = 448.0F / *std::max_element(window.begin(), window.end());
      INFO("history " << history << " step " << step);
      REQUIRE(scaling.scale() == expected);
    }
  }
}

TEST_CASE("delayed scaling: bad options are refused", "[scaling]") {
  CHECK_THROWS_WITH(DelayedScaling(FormatId::e4m3fn, {.history = 0}),
                    contains("history: expected at least 1, got 0"));
  CHECK_THROWS_WITH(DelayedScaling(FormatId::e4m3fn, {.margin = std::nan("")}), contains("margin"));
  CHECK_THROWS_WITH(MsAmpScaling(FormatId::e4m3fn, 0), contains("window"));
  CHECK_THROWS_WITH(find_amax_algorithm("mean"), contains("max or most_recent"));
}

TEST_CASE("delayed scaling: Flax keeps the reciprocal of its scale", "[scaling]") {
  DelayedScaling flax(FormatId::e4m3fn, {.history = 2, .zero_amax = ZeroAmax::roll},
                      ScaleRule::flax);
  const auto step = [&](float amax) {
    flax.record(amax);
    flax.update();
    return flax.scale();
  };
  const float scale = 448.0F / 0x1.06p0F;
  REQUIRE(1.0F / (1.0F / scale) != scale);
  CHECK(step(0x1.06p0F) == scale);
  CHECK(step(kNan) == 1.0F / (1.0F / scale));  // as Inf: kept while it is in the history
  CHECK(step(2.0F) == 1.0F / (1.0F / (1.0F / (1.0F / scale))));
  CHECK(step(0.0F) == 224.0F);
  CHECK(step(0.0F) == 1.0F / (1.0F / 224.0F));
  CHECK(step(0x1p-130F) == kInf);
  CHECK(flax.inverse_scale() == 0.0F);
  CHECK_THROWS_WITH(DelayedScaling(FormatId::e4m3fn, {}, ScaleRule::torchao),
                    contains("rule: expected te, flax or flax_bf16"));
}

TEST_CASE("MS-AMP: just in time during the warm-up, then the window", "[scaling]") {
  MsAmpScaling scaling(FormatId::e4m3fn, 2);
  CHECK(scaling.scale_for(1.0F) == 256.0F);
  scaling.update();
  CHECK(scaling.scale_for(100.0F) == 4.0F);
  scaling.update();  // window {100, 1}, two updates: the warm-up is over
  CHECK(scaling.scale() == 4.0F);
  CHECK(scaling.scale_for(1000.0F) == 4.0F);  // too large for the old scale: overflows
  scaling.update();
  CHECK(scaling.scale() == 0.25F);
  MsAmpScaling always(FormatId::e4m3fn, 1);
  for (int step = 0; step < 3; ++step) {
    CHECK(always.scale_for(1.0F) == 256.0F);
    always.update();
    CHECK(always.scale_for(0.0F) == 256.0F);
  }
}

TEST_CASE("MS-AMP: a non-finite amax restarts the warm-up", "[scaling]") {
  MsAmpScaling scaling(FormatId::e4m3fn, 1 + 1);
  for (int step = 0; step < 4; ++step) {
    (void)scaling.scale_for(1.0F);
    scaling.update();
  }
  (void)scaling.scale_for(kNan);
  scaling.update();
  CHECK(scaling.scale() == 256.0F);
  CHECK(scaling.scale_for(100.0F) == 4.0F);  // just in time again
}

TEST_CASE("MS-AMP: a NaN that is still in the window keeps the scale", "[scaling]") {
  MsAmpScaling scaling(FormatId::e4m3fn, 3);
  (void)scaling.scale_for(1000.0F);
  scaling.update();
  CHECK(scaling.scale_for(kNan) == 0.25F);
  scaling.update();
  CHECK(scaling.updates() == 0);
  CHECK(scaling.scale_for(100.0F) == 4.0F);
  scaling.update();
  CHECK(scaling.scale() == 4.0F);  // not that of the 1000 beside the NaN
  CHECK(scaling.scale_for(2.0F) == 128.0F);
  scaling.update();
  CHECK(scaling.scale() == 128.0F);
  CHECK(scaling.scale_for(1.0F) == 256.0F);
  scaling.update();
  CHECK(scaling.scale() == 4.0F);  // the NaN has left: 100 is the largest
  CHECK(scaling.updates() == 3);
}

TEST_CASE("delayed scaling: names of its options", "[scaling]") {
  CHECK(to_string(AmaxAlgorithm::max) == "max");
  CHECK(to_string(AmaxAlgorithm::most_recent) == "most_recent");
  CHECK(find_amax_algorithm("max") == AmaxAlgorithm::max);
  CHECK(find_amax_algorithm("most_recent") == AmaxAlgorithm::most_recent);
  CHECK(to_string(ZeroAmax::keep_history) == "keep_history");
  CHECK(to_string(ZeroAmax::roll) == "roll");
  CHECK(find_zero_amax("keep_history") == ZeroAmax::keep_history);
  CHECK(find_zero_amax("roll") == ZeroAmax::roll);
  CHECK_THROWS_WITH(find_zero_amax("keep"), contains("keep_history"));
}

TEST_CASE("delayed scaling: an amax of either sign is a magnitude", "[scaling]") {
  DelayedScaling scaling(FormatId::e4m3fn, {.history = 2});
  scaling.record(-2.0F);
  CHECK(scaling.history() == std::vector<float>{2, 0});
  scaling.record(1.0F);
  scaling.record(kNan);
  CHECK(scaling.history() == std::vector<float>{2, 0});
  scaling.record(-kInf);
  CHECK(scaling.history() == std::vector<float>{kInf, 0});
}

TEST_CASE("delayed scaling: a history that is restored goes on from its oldest slot", "[scaling]") {
  DelayedScaling scaling(FormatId::e4m3fn, {.history = 4});
  scaling.restore(3.0F, std::vector<float>{8, 1, 2, 4});
  CHECK(scaling.scale() == 3.0F);
  CHECK(scaling.history() == std::vector<float>{8, 1, 2, 4});
  scaling.update();
  CHECK(scaling.scale() == 56.0F);
  CHECK(scaling.history() == std::vector<float>{0, 2, 4, 8});
  scaling.record(0.5F);
  scaling.update();
  CHECK(scaling.history() == std::vector<float>{0, 4, 8, 0.5F});
  CHECK_THROWS_WITH(scaling.restore(1.0F, std::vector<float>(3)),
                    "history: expected 4 slots, got 3");
  CHECK_THROWS_WITH(scaling.restore(1.0F, std::vector<float>(5)),
                    "history: expected 4 slots, got 5");
}

TEST_CASE("delayed scaling: a copy goes on as its source, whatever it had seen before",
          "[scaling]") {
  const RandomStream random(5, "restored");
  std::uint64_t draw = 0;
  const auto amax = [&] {
    const auto kind = random.below(draw++, 8);
    return kind == 0 ? 0.0F : kind == 1 ? kInf : static_cast<float>(1 + random.below(draw++, 97));
  };
  for (const AmaxAlgorithm algorithm : {AmaxAlgorithm::max, AmaxAlgorithm::most_recent})
    for (const ZeroAmax zero_amax : {ZeroAmax::keep_history, ZeroAmax::roll})
      for (const std::int64_t history : {1, 2, 3, 5})
        for (int before = 0; before < 6; ++before) {
          const DelayedOptions options{
              .history = history, .algorithm = algorithm, .zero_amax = zero_amax};
          DelayedScaling source(FormatId::e4m3fn, options);
          DelayedScaling copy(FormatId::e4m3fn, options);
          for (int step = 0; step < 4; ++step) {
            source.record(amax());
            source.update();
          }
          for (int step = 0; step < before; ++step) {
            copy.record(100.0F + static_cast<float>(step));
            copy.update();
          }
          source.record(3.0F);
          copy.record(1000.0F);
          copy.restore(source.scale(), source.history());
          for (int step = 0; step < 8; ++step) {
            INFO("history " << history << ", " << before << " updates before, step " << step);
            REQUIRE(copy.scale() == source.scale());
            REQUIRE(copy.history() == source.history());
            const float next = amax();
            for (DelayedScaling* one : {&source, &copy}) {
              one->record(next);
              one->update();
            }
          }
        }
}

TEST_CASE("delayed scaling: margins are powers of two of any sign and part", "[scaling]") {
  for (const auto& [margin, scale] :
       {std::pair{0.0F, 448.0F}, {1.0F, 224.0F}, {-2.0F, 1792.0F}, {3.0F, 56.0F}}) {
    DelayedScaling scaling(FormatId::e4m3fn, {.margin = margin});
    scaling.record(1.0F);
    scaling.update();
    CHECK(scaling.scale() == scale);
    CHECK(scaling.inverse_scale() == 1.0F / scale);
  }
  DelayedScaling half(FormatId::e5m2, {.margin = 0.5F});
  half.record(1.0F);
  half.update();
  CHECK(half.scale() == 57344.0F * std::exp2(-0.5F));
  for (const float margin : {kInf, -kInf, kNan})
    CHECK_THROWS_WITH(DelayedScaling(FormatId::e4m3fn, {.margin = margin}),
                      contains("margin: expected a finite number, got"));
  CHECK_THROWS_WITH(DelayedScaling(FormatId::e4m3fn, {.history = -1}),
                    "history: expected at least 1, got -1");
  CHECK_THROWS_WITH(MsAmpScaling(FormatId::e4m3fn, 0), "window: expected at least 1, got 0");
  CHECK_THROWS_WITH(find_amax_algorithm("mean"),
                    "algorithm: expected max or most_recent, got 'mean'");
}

TEST_CASE("MS-AMP: a state has up to as many clean updates as its window has slots", "[scaling]") {
  MsAmpScaling scaling(FormatId::e4m3fn, 3);
  const std::vector<float> window{0.0F, 4.0F, 2.0F};
  for (std::int64_t updates = -1; updates <= 4; ++updates) {
    const auto restore = [&] { scaling.restore(8.0F, updates, window); };
    INFO(updates);
    if (updates < 0 || updates > 3) {
      CHECK_THROWS_WITH(restore(), "updates: expected 0 to 3, got " + std::to_string(updates));
      continue;
    }
    restore();
    CHECK(scaling.updates() == updates);
    CHECK(scaling.scale() == 8.0F);
    CHECK(scaling.is_just_in_time() == (updates < 3));
    CHECK(scaling.scale_for(1.0F) == (updates < 3 ? 256.0F : 8.0F));
    scaling.update();  // 1, 4 and 2
    CHECK(scaling.scale() == 64.0F);
    CHECK(scaling.updates() == std::min<std::int64_t>(3, updates + 1));
    for (int step = 0; step < 4; ++step) {
      (void)scaling.scale_for(1.0F);
      scaling.update();
    }
    CHECK(scaling.updates() == 3);
    CHECK(scaling.scale() == 256.0F);
  }
  CHECK_THROWS_WITH(scaling.restore(1.0F, 0, std::vector<float>(2)),
                    "window: expected 3 slots, got 2");
}

TEST_CASE("MS-AMP: a copy goes on as its source, whatever it had seen before", "[scaling]") {
  const RandomStream random(6, "restored");
  std::uint64_t draw = 0;
  for (const std::int64_t window : {1, 2, 3, 5})
    for (int before = 0; before < 6; ++before)
      for (int after = 0; after < 7; ++after) {
        MsAmpScaling source(FormatId::e4m3fn, window);
        MsAmpScaling copy(FormatId::e4m3fn, window);
        const auto step = [](MsAmpScaling& one, float amax) {
          const float scale = one.scale_for(amax);
          one.update();
          return scale;
        };
        const auto drawn = [&] {
          const auto kind = random.below(draw++, 9);
          return kind == 0 ? kNan : static_cast<float>(std::exp2(static_cast<double>(kind) - 4.0));
        };
        for (int i = 0; i < after; ++i) (void)step(source, drawn());
        for (int i = 0; i < before; ++i) (void)step(copy, 1000.0F);
        copy.restore(source.scale(), source.updates(), source.window());
        for (int i = 0; i < 8; ++i) {
          INFO("window " << window << ", step " << i << " after " << before << " and " << after);
          const float next = drawn();
          REQUIRE(step(copy, next) == step(source, next));
          REQUIRE(copy.scale() == source.scale());
          REQUIRE(copy.updates() == source.updates());
        }
      }
}
