#include "training/optim/adamw.hpp"

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "io/temporary.hpp"
#include "optim/adamw_reference.hpp"
#include "training/optim/presets.hpp"

using namespace fp8lab;

namespace {

constexpr std::size_t kSize = 4096 + 300;  // a second chunk, and a group that is not full

/// Element i has its own magnitude, over `decades`.
std::vector<float> draw(std::string_view stream, std::uint64_t seed, double decades, double size) {
  const RandomStream random(seed, stream);
  std::vector<float> x(kSize);
  for (std::size_t i = 0; i < kSize; ++i) {
    const double magnitude = std::pow(10.0, -decades * static_cast<double>(i % 97) / 97.0);
    x[i] = static_cast<float>(random.normal(i) * size * magnitude);
  }
  return x;
}

AdamW make(AdamWOptions options, const std::vector<float>& start) {
  if (options.threads == 0) options.threads = 1;
  const std::vector<Parameter> parameters{{"w", {static_cast<std::int64_t>(start.size())}, start}};
  return AdamW(options, parameters);
}

void step(AdamW& optimizer, const std::vector<float>& gradient, double lr) {
  const std::vector<std::span<const float>> gradients{gradient};
  optimizer.step(gradients, lr);
}

std::vector<float> weights(const AdamW& o) {
  std::vector<float> x(kSize);
  o.copy_weights(0, x);
  return x;
}
std::vector<float> first_moment(const AdamW& o) {
  std::vector<float> x(kSize);
  o.copy_m(0, x);
  return x;
}
std::vector<float> second_moment(const AdamW& o) {
  std::vector<float> x(kSize);
  o.copy_v(0, x);
  return x;
}

void check_bits(const std::vector<float>& expected, const std::vector<float>& got,
                const std::string& what) {
  REQUIRE(expected.size() == got.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto e = std::bit_cast<std::uint32_t>(expected[i]);
    const auto g = std::bit_cast<std::uint32_t>(got[i]);
    if (e == g) continue;
    INFO(what << "[" << i << "]: expected " << expected[i] << ", got " << got[i]);
    REQUIRE(e == g);
  }
}

/// The largest |a - b| over the largest |a|.
double worst(const std::vector<double>& a, const std::vector<float>& b) {
  double difference = 0.0;
  double size = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, std::abs(a[i] - static_cast<double>(b[i])));
    size = std::max(size, std::abs(a[i]));
  }
  return difference / size;
}

std::vector<AdamWOptions> variants() {
  std::vector<AdamWOptions> all;
  for (const OptimizerPreset& preset : optimizer_presets())
    if (preset.options.m.scaling != StateScaling::group &&
        preset.options.m.scaling != StateScaling::expanded)
      all.push_back(preset.options);
  AdamWOptions l2 = find_optimizer_preset("fp8-lm").options;
  l2.decay = WeightDecay::l2;
  l2.m.format = FormatId::e5m2;
  l2.gradient = {FormatId::bf16};
  all.push_back(l2);
  AdamWOptions uncorrected;
  uncorrected.bias_correction = false;
  uncorrected.decay = WeightDecay::l2;
  uncorrected.beta2 = 0.999F;
  all.push_back(uncorrected);
  // One state alone has a scale that follows its largest magnitude.
  for (StateFormat AdamWOptions::*state :
       {&AdamWOptions::master, &AdamWOptions::gradient, &AdamWOptions::m, &AdamWOptions::v}) {
    AdamWOptions one;
    one.*state = {FormatId::f16, StateScaling::tensor};
    all.push_back(one);
  }
  return all;
}

}  // namespace

TEST_CASE("AdamW gives the bits of the plain implementation in every format", "[optim]") {
  const std::vector<AdamWOptions> all = variants();
  for (std::size_t k = 0; k < all.size(); ++k) {
    INFO("variant " << k << ": master " << describe(all[k].master) << ", m " << describe(all[k].m)
                    << ", v " << describe(all[k].v));
    const std::vector<float> start = draw("start", 1, 3.0, 1.0);
    AdamW optimizer = make(all[k], start);
    ReferenceAdamW<float> reference(all[k], start);
    check_bits(reference.w, weights(optimizer), "start");
    for (std::uint64_t t = 0; t < 12; ++t) {
      const double lr = 1e-3 * static_cast<double>(t + 1);
      const std::vector<float> g = draw("gradient", t, 4.0, 0.1);
      step(optimizer, g, lr);
      reference.step(g, lr);
      INFO("step " << t);
      check_bits(reference.w, weights(optimizer), "w");
      check_bits(reference.m, first_moment(optimizer), "m");
      check_bits(reference.v, second_moment(optimizer), "v");
    }
  }
}

TEST_CASE("AdamW follows FP64 along random trajectories", "[optim]") {
  for (const WeightDecay decay : {WeightDecay::decoupled, WeightDecay::l2}) {
    const std::uint64_t seed = decay == WeightDecay::l2 ? 5 : 6;
    AdamWOptions options;
    options.decay = decay;
    const std::vector<float> start = draw("start", seed, 1.0, 1.0);
    AdamW optimizer = make(options, start);
    ReferenceAdamW<double> oracle(options, start);
    for (std::uint64_t t = 0; t < 100; ++t) {
      const std::vector<float> g = draw("gradient", seed * 1000 + t, 2.0, 0.1);
      step(optimizer, g, 1e-3);
      oracle.step(g, 1e-3);
    }
    // One rounding of 2^-24 a step in w, and of the factor 1 - lr * weight_decay.
    CHECK(worst(oracle.w, weights(optimizer)) < 100 * 0x1p-24);
    CHECK(worst(oracle.m, first_moment(optimizer)) < 2e-6);
    CHECK(worst(oracle.v, second_moment(optimizer)) < 2e-6);
  }
}

TEST_CASE("low-precision states stay within their format's error of FP64", "[optim]") {
  // Both round to the format: they differ where FP32 and FP64 fall on two sides of a midpoint.
  const AdamWOptions options = find_optimizer_preset("fp8-lm").options;
  const std::vector<float> start = draw("start", 7, 1.0, 1.0);
  AdamW optimizer = make(options, start);
  ReferenceAdamW<double> oracle(options, start);
  for (std::uint64_t t = 0; t < 50; ++t) {
    const std::vector<float> g = draw("gradient", 7000 + t, 1.0, 0.1);
    step(optimizer, g, 1e-3);
    oracle.step(g, 1e-3);
  }
  std::size_t different = 0;
  const std::vector<float> m = first_moment(optimizer);
  for (std::size_t i = 0; i < m.size(); ++i)
    different += static_cast<double>(m[i]) != oracle.m[i] ? 1 : 0;
  CHECK(different < kSize / 20);
  CHECK(worst(oracle.w, weights(optimizer)) < 2e-3);
  CHECK(worst(oracle.v, second_moment(optimizer)) < 2e-3);
}

TEST_CASE("AdamW does not depend on threads", "[optim]") {
  for (const char* name : {"fp8-lm", "coat", "coat-unexpanded", "fp32"}) {
    INFO(name);
    std::vector<std::vector<float>> results;
    for (const int threads : {1, 3}) {
      AdamWOptions options = find_optimizer_preset(name).options;
      options.threads = threads;
      AdamW optimizer = make(options, draw("start", 2, 2.0, 1.0));
      for (std::uint64_t t = 0; t < 5; ++t) step(optimizer, draw("gradient", t, 3.0, 1.0), 1e-2);
      results.push_back(weights(optimizer));
    }
    check_bits(results[0], results[1], "w");
  }
}

TEST_CASE("AdamW gives an element the same bits in a tensor of any size", "[optim]") {
  // Work is cut into parts of 4096: one more, one less, and a last part of one.
  const std::vector<std::size_t> sizes{1, 2, 127, 129, 4095, 4096, 4097, 8191, 8192, 8193};
  const RandomStream random(5, "sizes");
  std::vector<float> start(3 * 4096);
  std::vector<float> gradient(start.size());
  for (std::size_t i = 0; i < start.size(); ++i) {
    start[i] = static_cast<float>(random.normal(2 * i));
    gradient[i] = static_cast<float>(random.normal(2 * i + 1));
  }
  const std::span<const float> all_starts(start);
  const std::span<const float> all_gradients(gradient);
  std::vector<Parameter> parameters;
  std::vector<std::span<const float>> gradients;
  for (std::size_t size : sizes) {
    parameters.push_back(
        {std::to_string(size), {static_cast<std::int64_t>(size)}, all_starts.first(size)});
    gradients.push_back(all_gradients.first(size));
  }
  for (const FormatId stored : {FormatId::f32, FormatId::bf16}) {
    AdamWOptions options{.threads = 2};
    options.gradient = {stored};
    AdamW every(options, parameters);
    every.step(gradients, 1e-3);
    every.step(gradients, 1e-3);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      ReferenceAdamW<float> plain(
          options, {start.begin(), start.begin() + static_cast<std::ptrdiff_t>(sizes[i])});
      const std::vector<float> own(gradients[i].begin(), gradients[i].end());
      plain.step(own, 1e-3);
      plain.step(own, 1e-3);
      std::vector<float> got(sizes[i]);
      every.copy_weights(i, got);
      check_bits(plain.w, got, "w");
      every.copy_m(i, got);
      check_bits(plain.m, got, "m");
      every.copy_v(i, got);
      check_bits(plain.v, got, "v");
    }
  }
}

TEST_CASE("AdamW continues from a file, bit for bit", "[optim]") {
  const TemporaryFolder folder("adamw");
  for (const OptimizerPreset& preset : optimizer_presets()) {
    INFO(preset.name);
    const std::vector<float> start = draw("start", 3, 2.0, 1.0);
    AdamW one = make(preset.options, start);
    for (std::uint64_t t = 0; t < 3; ++t) step(one, draw("gradient", t, 2.0, 1.0), 1e-2);
    write_safetensors(folder / "state.safetensors", one.state());
    step(one, draw("gradient", 9, 2.0, 1.0), 1e-2);
    const SafetensorsFile file(folder / "state.safetensors");
    for (const std::uint64_t steps_before : {std::uint64_t{0}, std::uint64_t{5}}) {
      INFO("into an optimizer after " << steps_before << " steps");
      AdamW two = make(preset.options, std::vector<float>(kSize, 0.5F));
      for (std::uint64_t t = 0; t < steps_before; ++t)
        step(two, draw("gradient", 20 + t, 2.0, 1.0), 1e-2);
      two.restore(file.tensors());
      CHECK(two.steps() == 3);
      step(two, draw("gradient", 9, 2.0, 1.0), 1e-2);
      check_bits(weights(one), weights(two), "w");
      check_bits(first_moment(one), first_moment(two), "m");
      check_bits(second_moment(one), second_moment(two), "v");
    }
  }
}

TEST_CASE("AdamW refuses a negative number of threads", "[optim]") {
  AdamWOptions options;
  options.threads = -1;
  CHECK_THROWS_WITH(make(options, draw("start", 3, 2.0, 1.0)), contains("threads: expected 0"));
}

TEST_CASE("AdamW says what a state lacks", "[optim]") {
  AdamW source = make(find_optimizer_preset("fp8-lm").options, draw("start", 3, 2.0, 1.0));
  AdamW other = make({}, draw("start", 3, 2.0, 1.0));
  CHECK_THROWS_WITH(other.restore(source.state()),
                    contains("w.master") && contains("f32 [4396]") && contains("f16 [4396]"));
  std::vector<NamedTensor> state = source.state();
  state.pop_back();
  CHECK_THROWS_WITH(source.restore(state), contains("w.v.inverse_scale"));
  CHECK_THROWS_WITH(source.restore({}), contains("optimizer.steps"));
  state = source.state();
  const float zero = 0.0F;
  state.back().tensor.bytes = std::as_bytes(std::span(&zero, 1));
  CHECK_THROWS_WITH(source.restore(state),
                    contains("w.v.inverse_scale: expected finite, positive"));
}

TEST_CASE("AdamW finds its own count of steps among other tensors", "[optim]") {
  AdamW source = make({}, draw("start", 3, 2.0, 1.0));
  for (int i = 0; i < 3; ++i) step(source, draw("gradient", 9, 2.0, 1.0), 1e-2);
  const std::vector<NamedTensor> own = source.state();
  const std::int64_t seven = 7;
  const TensorView other = view_of(ElementType::i64, {1}, std::span<const std::int64_t>(&seven, 1));
  for (const char* name :
       {"ema.optimizer.steps", "optimizer.steps.ema", "optimizer.step", "steps"}) {
    std::vector<NamedTensor> file{{name, other}};
    file.insert(file.end(), own.begin(), own.end());
    AdamW copy = make({}, draw("start", 3, 2.0, 1.0));
    copy.restore(file);
    INFO(name);
    CHECK(copy.steps() == 3);
    file.erase(file.begin() + 1);  // a file without the count
    CHECK_THROWS_WITH(copy.restore(file), contains("optimizer.steps: expected"));
  }
}

TEST_CASE("AdamW takes a count of steps that can be, as one i64", "[optim]") {
  AdamW source = make({}, draw("start", 3, 2.0, 1.0));
  const auto restore = [&](const TensorView& steps) {
    std::vector<NamedTensor> state = source.state();
    REQUIRE(state.front().name == "optimizer.steps");
    state.front().tensor = steps;
    AdamW copy = make({}, draw("start", 3, 2.0, 1.0));
    copy.restore(state);
    return copy.steps();
  };
  const auto count = [](const std::int64_t& steps) {
    return view_of(ElementType::i64, {1}, std::span<const std::int64_t>(&steps, 1));
  };
  for (const std::int64_t steps : {0, 1, 1'000'000}) CHECK(restore(count(steps)) == steps);
  for (const std::int64_t steps :
       {std::int64_t{-1}, std::int64_t{1'000'000'001}, std::numeric_limits<std::int64_t>::max()})
    CHECK_THROWS_WITH(
        restore(count(steps)),
        contains("optimizer.steps: expected 0 to 1000000000, got " + std::to_string(steps)));
  const std::vector<std::int64_t> two(2);
  CHECK_THROWS_WITH(restore(view_of(ElementType::i64, {2}, std::span<const std::int64_t>(two))),
                    contains("optimizer.steps: expected an i64 tensor of one element"));
  CHECK_THROWS_WITH(
      restore(view_of(ElementType::u64, {1}, std::span<const std::int64_t>(two).first(1))),
      contains("optimizer.steps: expected an i64 tensor of one element, got u64"));
}

TEST_CASE("memory is what the buffers hold", "[optim]") {
  const std::vector<float> start = draw("start", 4, 1.0, 1.0);
  const auto measured = [&](const char* name) {
    AdamW optimizer = make(find_optimizer_preset(name).options, start);
    step(optimizer, start, 1e-3);
    return optimizer.memory();
  };
  CHECK(measured("fp32").total() == 16 * kSize);
  const OptimizerMemory fp8 = measured("fp8-lm");
  CHECK(fp8.total() - fp8.scales == 6 * kSize);
  CHECK(fp8.scales == 4 * sizeof(float));
  CHECK(measured("ms-amp-o1").total() - measured("ms-amp-o1").scales == 11 * kSize);
  const OptimizerMemory coat = measured("coat");
  CHECK(coat.m + coat.v == 2 * kSize);
  CHECK(coat.scales == 2 * 3 * sizeof(float) * 35);  // groups of 128
}

TEST_CASE("parameters that do not decay keep their weight", "[optim]") {
  const std::vector<float> ones(130, 1.0F);
  const std::vector<float> zeros(130, 0.0F);
  const std::vector<Parameter> parameters{{"w", {13, 10}, ones}, {"norm", {130}, ones, false}};
  for (const WeightDecay decay : {WeightDecay::decoupled, WeightDecay::l2}) {
    AdamWOptions options;
    options.decay = decay;
    AdamW optimizer(options, parameters);
    const std::vector<std::span<const float>> gradients{zeros, zeros};
    optimizer.step(gradients, 0.5);
    std::vector<float> w(130);
    optimizer.copy_weights(0, w);
    CHECK(w[129] < 1.0F);
    optimizer.copy_weights(1, w);
    CHECK(w[129] == 1.0F);
  }
}

TEST_CASE("optimizer presets store each state as their table says", "[optim]") {
  struct Row {
    std::string_view name;
    std::string_view master, gradient, m, v;
    std::string_view weight;  ///< empty: the master is what GEMMs read
  };
  constexpr std::string_view kFp8 = "e4m3fn x tensor scale";
  constexpr std::string_view kFp16 = "f16 x tensor scale";
  const std::vector<Row> rows{
      {"fp32", "f32", "f32", "f32", "f32", "bf16"},
      {"fp8-lm", kFp16, kFp8, kFp8, kFp16, ""},
      {"fp8-lm-bf16-master", "bf16", kFp8, kFp8, kFp16, ""},
      {"fp8-lm-fp8-master", kFp8, kFp8, kFp8, kFp16, ""},
      {"fp8-lm-fp8-v", kFp16, kFp8, kFp8, kFp8, ""},
      {"fp8-lm-unscaled", "f16", "e4m3fn", "e4m3fn", "f16", ""},
      {"fp8-lm-fp8-v-unscaled", "f16", "e4m3fn", "e4m3fn", "e4m3fn", ""},
      {"ms-amp-o1", kFp16, kFp8, "f32", "f32", ""},
      {"ms-amp-o2", kFp16, kFp8, kFp8, kFp16, ""},
      {"ms-amp-o3", kFp16, kFp8, kFp8, kFp16, kFp8},
      {"coat", "f32", "f32", "e4m3fn x expansions of 128", "e4m3fn x expansions of 128", "bf16"},
      {"coat-unexpanded", "f32", "f32", "e4m3fn x scales of 128", "e4m3fn x scales of 128",
       "bf16"}};
  const auto presets = optimizer_presets();
  REQUIRE(presets.size() == rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const OptimizerPreset& preset = presets[i];
    const Row& row = rows[i];
    INFO(row.name);
    CHECK(preset.name == row.name);
    CHECK(describe(preset.options.master) == row.master);
    CHECK(describe(preset.options.gradient) == row.gradient);
    CHECK(describe(preset.options.m) == row.m);
    CHECK(describe(preset.options.v) == row.v);
    CHECK((preset.weight ? describe(*preset.weight) : "") == row.weight);
    const AdamWOptions& o = preset.options;
    CHECK((o.beta1 == 0.9F && o.beta2 == 0.95F && o.eps == 1e-8F && o.weight_decay == 0.1));
    CHECK((o.decay == WeightDecay::decoupled && o.bias_correction && o.threads == 0));
    for (const StateFormat& state : {o.master, o.gradient, o.m, o.v})
      if (state.scaling == StateScaling::tensor) CHECK(state.rule == ScaleRule::ms_amp);
  }
}

TEST_CASE("AdamW refuses what makes no sense", "[optim]") {
  const std::vector<float> x(4);
  const auto with = [&](auto change) {
    AdamWOptions options;
    change(options);
    make(options, x);
  };
  CHECK_THROWS_WITH(with([](AdamWOptions& o) { o.beta2 = 1.0F; }), contains("beta2"));
  CHECK_THROWS_WITH(with([](AdamWOptions& o) { o.eps = -1.0F; }), contains("eps"));
  for (const float bad : {-1e-9F, 1.0F, 1.5F, std::nanf("")}) {
    INFO(bad);
    CHECK_THROWS_WITH(with([&](AdamWOptions& o) { o.beta1 = bad; }),
                      contains("beta1: expected 0 to below 1"));
    CHECK_THROWS_WITH(with([&](AdamWOptions& o) { o.beta2 = bad; }),
                      contains("beta2: expected 0 to below 1"));
  }
  for (const double bad : {-1e-9, std::nan(""), static_cast<double>(INFINITY)}) {
    INFO(bad);
    CHECK_THROWS_WITH(with([&](AdamWOptions& o) { o.eps = static_cast<float>(bad); }),
                      contains("eps: expected finite, at least 0"));
    CHECK_THROWS_WITH(with([&](AdamWOptions& o) { o.weight_decay = bad; }),
                      contains("weight_decay: expected finite, at least 0"));
  }
  CHECK_NOTHROW(with([](AdamWOptions& o) {
    o.beta1 = o.beta2 = o.eps = 0.0F;
    o.weight_decay = 0.0;
  }));
  CHECK_THROWS_WITH(with([](AdamWOptions& o) { o.m.format = FormatId::e2m1; }), contains("e2m1"));
  CHECK_THROWS_WITH(with([](AdamWOptions& o) { o.m.scaling = StateScaling::tensor; }),
                    contains("state scaling"));
  CHECK_THROWS_WITH(with([](AdamWOptions& o) {
                      o.v = {FormatId::e5m2, StateScaling::tensor, ScaleRule::mx_floor};
                    }),
                    contains("mx_floor"));
  AdamW optimizer = make({}, x);
  CHECK_THROWS_WITH(step(optimizer, std::vector<float>(3), 0.1), contains("gradient of w"));
  CHECK_THROWS_WITH(step(optimizer, x, std::nan("")), contains("lr"));
  const std::vector<Parameter> twice{{"w", {4}, x}, {"w", {4}, x}};
  CHECK_THROWS_WITH(AdamW({}, twice), contains("'w'"));
  const std::vector<Parameter> shape{{"w", {2, 3}, x}};
  CHECK_THROWS_WITH(AdamW({}, shape), contains("[2, 3] = 6"));
  CHECK_THROWS_WITH(find_optimizer_preset("adam"), contains("'adam'") && contains("fp8-lm-fp8-v"));
}
