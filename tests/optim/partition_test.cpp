#include "training/optim/partition.hpp"

#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "training/optim/adamw.hpp"
#include "training/optim/expansion.hpp"

using namespace fp8lab;

TEST_CASE("whole tensors go to the least loaded rank, largest first", "[optim]") {
  const std::vector<std::int64_t> bytes{3, 7, 5, 5, 2};
  const Partition p = partition_whole_tensors(bytes, 2);
  // 7 -> 0; 5 -> 1; 5 -> 1; 3 -> 0; 2: both hold 10, so rank 0.
  CHECK(p.rank_of == std::vector<std::size_t>{0, 0, 1, 1, 0});
  CHECK(p.load == std::vector<std::int64_t>{12, 10});
  CHECK(p.imbalance() == 12.0 / 11.0 - 1.0);
}

TEST_CASE("a tensor larger than a fair share unbalances every partition", "[optim]") {
  const std::vector<std::int64_t> bytes{100, 1, 1, 1, 1};
  const Partition p = partition_whole_tensors(bytes, 4);
  CHECK(p.largest() == 100);
  CHECK(p.smallest() == 1);
  CHECK(std::accumulate(p.load.begin(), p.load.end(), std::int64_t{0}) == 104);
}

TEST_CASE("partitions need ranks and sizes", "[optim]") {
  const std::vector<std::int64_t> negative{-1};
  CHECK_THROWS_WITH(partition_whole_tensors({}, 0), contains("ranks"));
  CHECK_THROWS_WITH(partition_whole_tensors(negative, 1), contains("bytes"));
  CHECK(partition_whole_tensors({}, 3).imbalance() == 0.0);
}

TEST_CASE("partitions of nothing, of tensors without bytes and of more ranks than tensors",
          "[optim]") {
  const std::vector<std::int64_t> empty{0, 0};
  const Partition none = partition_whole_tensors(empty, 3);
  CHECK(none.rank_of == std::vector<std::size_t>{0, 0});
  CHECK(none.load == std::vector<std::int64_t>{0, 0, 0});
  CHECK(none.imbalance() == 0.0);
  const std::vector<std::int64_t> sizes{4, 0, 9};
  const Partition three = partition_whole_tensors(sizes, 5);
  CHECK(three.rank_of == std::vector<std::size_t>{1, 2, 0});
  CHECK(three.load == std::vector<std::int64_t>{9, 4, 0, 0, 0});
  CHECK(three.largest() == 9);
  CHECK(three.smallest() == 0);
  CHECK(three.imbalance() == 9.0 / 2.6 - 1.0);
  CHECK(partition_whole_tensors(sizes, 1).imbalance() == 0.0);
}

TEST_CASE("an exponent of expansion stays between a sixteenth and eight", "[optim]") {
  const Format& f = format(FormatId::e4m3fn);
  const auto exponent = [&](float smallest) {
    return expansion_of(std::vector<float>{1.0F, -smallest}, f).exponent;
  };
  // log2(448^2 / 2) = 16.61 octaves over those of the group, in whole sixteenths.
  CHECK(exponent(0x1p-1F) == 8.0F);
  CHECK(exponent(0x1p-2F) == 8.0F);
  CHECK(exponent(0x1p-3F) == 88.0F / 16.0F);
  CHECK(exponent(0x1p-16F) == 16.0F / 16.0F);
  CHECK(exponent(0x1p-17F) == 15.0F / 16.0F);
  CHECK(expansion_of(std::vector<float>{0x1p127F, 0.0F}, f).exponent == 1.0F / 16.0F);
  CHECK(expansion_of(std::vector<float>{0x1p60F, 0.0F}, f).exponent == 2.0F / 16.0F);
  // The centre is the geometric mean of the largest and the smallest magnitude.
  CHECK(expansion_of(std::vector<float>{-4.0F, 2.0F, 1.0F}, f).centre == 2.0F);
}

TEST_CASE("optimizer: each refusal says what was expected, word for word", "[optim]") {
  const auto refused = [](const auto& call, const std::string& text) {
    CHECK_THROWS_WITH(call(), text);
  };
  refused([] { partition_whole_tensors({}, 0); }, "ranks: expected at least 1, got 0");
  const std::vector<std::int64_t> negative{3, -1};
  refused([&] { partition_whole_tensors(negative, 1); },
          "bytes: expected sizes of 0 or more, got -1");
  const std::vector<float> x(300, 1.0F);
  const auto with = [&](const StateFormat& m) {
    return [&x, m] {
      AdamWOptions options;
      options.m = m;
      AdamW(options, std::vector<Parameter>{{"w", {300}, x}});
    };
  };
  refused(with({FormatId::e2m1}),
          "state format: expected f32, f16, bf16, e4m3fn or e5m2, got e2m1");
  refused(with({FormatId::f32, StateScaling::group, ScaleRule::te}),
          "state scaling: expected none for f32, got group");
  refused(with({FormatId::e5m2, StateScaling::group, ScaleRule::torchao}),
          "state scale rule: expected ms_amp or te, got torchao");
  refused(
      [&] {
        AdamW({}, std::vector<Parameter>{{"", {300}, x}});
      },
      "parameter name: expected a unique name that is not empty, got ''");
  refused(
      [&] {
        AdamW({}, std::vector<Parameter>{{"w", {7, 43}, x}});
      },
      "w: expected [7, 43] = 301 values, got 300");
  refused(
      [&] {
        AdamW({}, std::vector<Parameter>{{"w", {13, 23}, x}});
      },
      "w: expected [13, 23] = 299 values, got 300");
  AdamW optimizer({}, std::vector<Parameter>{{"w", {3, 100}, x}});
  const std::vector<std::span<const float>> two{x, x};
  const std::vector<std::span<const float>> shorter{std::span(x).first(299)};
  const std::vector<std::span<const float>> right{x};
  refused([&] { optimizer.step(two, 0.1); }, "gradients: expected one a parameter = 1, got 2");
  refused([&] { optimizer.step(shorter, 0.1); }, "gradient of w: expected 300 elements, got 299");
  refused([&] { optimizer.step(right, std::numeric_limits<double>::infinity()); },
          "lr: expected a finite number, got inf");
  StateTensor state({FormatId::e4m3fn, StateScaling::group, ScaleRule::te}, 300);
  refused([&] { state.assign(std::span(x).first(299), 1); },
          "values: expected 300 elements, got 299");
  refused([&] { state.store(128, std::span(x).first(171)); },
          "range: expected bounds at multiples of 128, got [128, 299) of 300");
  CHECK_NOTHROW(state.store(128, std::span(x).first(172)));
  CHECK_NOTHROW(state.store(128, std::span(x).first(128)));
  std::vector<float> out(301);
  refused([&] { state.load(0, out); }, "range: expected inside 300 elements, got [0, 301)");
  refused([&] { state.load(299, std::span(out).first(2)); },
          "range: expected inside 300 elements, got [299, 301)");
  CHECK_NOTHROW(state.load(300, std::span(out).first(0)));

  std::vector<NamedTensor> tensors;
  state.append_to(tensors, "s", {300});
  REQUIRE(tensors.size() == 2);
  refused([&] { state.restore(std::span(tensors).first(1), "s", {300}); },
          "s.inverse_scale: expected a tensor of the optimizer's state, got none");
  refused([&] { state.restore(tensors, "t", {300}); },
          "t: expected a tensor of the optimizer's state, got none");
  refused(
      [&] {
        state.restore(tensors, "s", {3, 100});
      },
      "s: expected e4m3fn [3, 100], got e4m3fn [300]");
  for (const float bad : {0.0F, -1.0F, std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()})
    for (std::size_t place = 0; place < 3; ++place) {
      std::vector<float> scales(3, 1.0F);
      scales[place] = bad;
      std::vector<NamedTensor> other = tensors;
      other[1].tensor.bytes = std::as_bytes(std::span(scales));
      refused([&] { state.restore(other, "s", {300}); },
              "s.inverse_scale: expected finite, positive numbers, got " +
                  std::string(bad == 0.0F    ? "0"
                              : bad == -1.0F ? "-1"
                              : bad > 0.0F   ? "inf"
                                             : "-inf"));
    }
  std::vector<NamedTensor> turned = tensors;
  turned[0].tensor.fortran_order = true;
  refused([&] { state.restore(turned, "s", {300}); },
          "s: expected e4m3fn [300], got e4m3fn [300] in Fortran order");
}
