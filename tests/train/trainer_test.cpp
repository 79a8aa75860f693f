#include "training/train/trainer.hpp"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <thread>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/io/checksum.hpp"
#include "fp8lab/io/safetensors.hpp"
#include "io/temporary.hpp"
#include "train/same_bits.hpp"

using namespace fp8lab;
using namespace fp8lab::train;

namespace {

std::shared_ptr<const DataSource> language(std::uint64_t seed = 1) {
  return synthetic_language({.vocabulary = 64}, seed);
}

/// A model of a few thousand parameters under a recipe with a past.
TrainerOptions small_options(std::string_view recipe = "te-delayed") {
  TrainerOptions options;
  options.model = TransformerShape{
      .vocabulary = 64, .length = 16, .width = 32, .layers = 1, .heads = 2, .hidden = 32};
  options.recipe.blocks = find_linear_recipe(recipe);
  options.sequences = 4;
  options.length = 16;
  options.schedule = {.peak = 3e-3, .warmup = 5, .steps = 40};
  return options;
}

std::vector<float> weights_of(Trainer& trainer) {
  std::vector<float> all;
  for (const auto* p : trainer.model().parameters())
    all.insert(all.end(), p->value.begin(), p->value.end());
  return all;
}

/// The metadata of a checkpoint, with the checksum of these tensors: what only a program writes.
std::map<std::string, std::string> checkpoint_metadata(
    std::vector<NamedTensor> tensors, std::map<std::string, std::string> metadata) {
  std::sort(tensors.begin(), tensors.end(),
            [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
  std::string all = metadata["fp8lab.checkpoint"] + "\n" + metadata["fingerprint"] + "\n";
  for (const NamedTensor& item : tensors) {
    all += item.name + " " + std::string(to_string(item.tensor.type)) + " " +
           shape_text(item.tensor.shape) + "\n";
    all.append(reinterpret_cast<const char*>(item.tensor.bytes.data()), item.tensor.bytes.size());
  }
  metadata["crc32"] = crc32_text(all);
  return metadata;
}

constexpr std::int64_t kSteps = 24;
constexpr std::int64_t kSaveEvery = 3;
constexpr const char* kWorkerFolder = "FP8LAB_TRAIN_WORKER";

}  // namespace

TEST_CASE("training learns: FP32 and FP8 runs end far below the first loss", "[train]") {
  for (const char* recipe : {"fp32", "te-current"}) {
    TrainerOptions options = small_options(recipe);
    options.schedule.peak = 1e-2;
    Trainer trainer(options, language());
    const double first = trainer.step({}).loss;
    double last = 0.0;
    for (int i = 1; i < 60; ++i) last = trainer.step({}).loss;
    INFO(recipe << ": " << first << " to " << last);
    CHECK(std::abs(first - std::log(64.0)) < 0.1);
    CHECK(last < first - 0.5);
  }
}

TEST_CASE("matrices of linear layers decay; embeddings and norms do not", "[train]") {
  const auto after = [](double weight_decay) {
    TrainerOptions options = small_options("fp32");
    options.optimizer.weight_decay = weight_decay;
    Trainer trainer(options, language());
    trainer.compute_gradients(0, {});
    // Without gradients all that moves a weight is its decay.
    for (auto* p : trainer.model().parameters())
      std::fill(p->gradient.begin(), p->gradient.end(), 0.0F);
    trainer.apply_gradients(0.0);
    std::map<std::string, std::vector<float>> weights;
    for (const auto* p : trainer.model().parameters()) weights[p->name] = p->value;
    return weights;
  };
  const auto kept = after(0.0);
  const auto decayed = after(0.1);
  int matrices = 0;
  for (const auto& [name, value] : kept) {
    const bool linear =
        name.find("embedding") == std::string::npos && name.find("norm") == std::string::npos;
    INFO(name);
    CHECK((decayed.at(name) != value) == linear);
    matrices += linear ? 1 : 0;
  }
  CHECK(matrices == 5);
}

TEST_CASE("layers that end in the residual stream start smaller by sqrt(2 layers)", "[train]") {
  TrainerOptions options = small_options("fp32");
  std::get<TransformerShape>(options.model) = {
      .vocabulary = 64, .length = 16, .width = 64, .layers = 8, .heads = 2, .hidden = 256};
  Trainer trainer(options, language());
  std::map<std::string, std::pair<double, double>> of;  // sum of squares and count
  for (const auto* p : trainer.model().parameters()) {
    const std::string kind = p->name.substr(p->name.find('.') + 1);
    for (const float x : p->value)
      of[kind].first += static_cast<double>(x) * static_cast<double>(x);
    of[kind].second += static_cast<double>(p->value.size());
  }
  const auto deviation = [&](const std::string& kind) {
    REQUIRE(of.count(kind) == 1);
    return std::sqrt(of[kind].first / of[kind].second);
  };
  // 1 / sqrt(inputs), and a quarter of that after 8 layers of two such layers each.
  CHECK(std::abs(deviation("qkv.weight") * 8.0 - 1.0) < 0.02);
  CHECK(std::abs(deviation("projection.weight") * 8.0 - 0.25) < 0.005);
  CHECK(std::abs(deviation("up.weight") * 8.0 - 1.0) < 0.02);
  CHECK(std::abs(deviation("down.weight") * 16.0 - 0.25) < 0.005);
}

TEST_CASE("a trainer refuses shapes and schedules that make no sense", "[train]") {
  const auto refuse = [](const auto& change, const std::string& message) {
    TrainerOptions options = small_options();
    change(options, std::get<TransformerShape>(options.model));
    CHECK_THROWS_WITH(Trainer(options, language()), contains(message));
  };
  using Options = TrainerOptions;
  using Shape = TransformerShape;
  refuse([](Options&, Shape& s) { s.length = 0; }, "length: expected 1 to");
  refuse([](Options& o, Shape&) { o.length = -1; }, "length: expected 1 to");
  refuse([](Options&, Shape& s) { s.layers = -1; }, "layers: expected 1 to");
  refuse([](Options&, Shape& s) { s.hidden = 0; }, "hidden: expected 1 to");
  refuse([](Options&, Shape& s) { s.width = std::int64_t{1} << 60; }, "width: expected 1 to");
  refuse([](Options& o, Shape&) { o.sequences = 0; }, "sequences: expected 1 to");
  refuse([](Options& o, Shape&) { o.sequences = 1 << 24; }, "sequences * length: expected 1 to");
  refuse([](Options& o, Shape&) { o.schedule.steps = 0; }, "steps: expected 1 to");
  refuse([](Options& o, Shape&) { o.schedule.warmup = -1; }, "warmup: expected 0 to");
  for (const double value : {-1.0, -1e-9, static_cast<double>(INFINITY), std::nan("")}) {
    CAPTURE(value);
    refuse([&](Options& o, Shape&) { o.schedule.peak = value; },
           "learning_rate: expected a finite number >= 0");
    refuse([&](Options& o, Shape&) { o.schedule.final_share = value; },
           "final_share: expected a finite number >= 0");
    refuse([&](Options& o, Shape&) { o.clip_norm = value; },
           "clip_norm: expected a finite number >= 0");
  }
  refuse([](Options& o, Shape&) { o.loss_scale = 0x1p-1000; },
         "loss_scale: expected a power of two");
}

TEST_CASE("training gives the same bits for any thread count", "[train]") {
  Trainer one(small_options(), language());
  Trainer two(small_options(), language());
  for (int i = 0; i < 8; ++i) {
    const StepRecord a = one.step({});
    const StepRecord b = two.step({.threads = 2, .on_cast = {}});
    CHECK(a.loss == b.loss);
    CHECK(a.gradient_norm == b.gradient_norm);
  }
  CHECK(same_bits(weights_of(one), weights_of(two)));
}

TEST_CASE("a loss scale is a power of two and changes nothing that is exact", "[train]") {
  TrainerOptions options = small_options("fp32");
  Trainer plain(options, language());
  options.loss_scale = 1024.0;
  options.recipe.head = fp32_recipe();
  Trainer scaled(options, language());
  options.loss_scale = 1.0;
  Trainer unscaled(options, language());
  for (int i = 0; i < 4; ++i) {
    (void)scaled.step({});
    (void)unscaled.step({});
  }
  CHECK(same_bits(weights_of(scaled), weights_of(unscaled)));
  options.loss_scale = 3.0;
  CHECK_THROWS_WITH(Trainer(options, language()), contains("loss_scale") && contains("3"));
}

TEST_CASE("schedule: warm-up, cosine, floor", "[train]") {
  const Schedule s{.peak = 1.0, .warmup = 4, .steps = 14, .final_share = 0.25};
  CHECK(s.at(0) == 0.25);
  CHECK(s.at(3) == 1.0);
  CHECK(s.at(4) == 1.0);
  CHECK(std::abs(s.at(9) - 0.625) < 1e-12);
  CHECK(s.at(14) == 0.25);
  CHECK(s.at(100) == 0.25);
}

TEST_CASE("a checkpoint resumes to the same bits", "[train]") {
  const std::string recipe = GENERATE("te-delayed", "ms-amp", "torchao-rowwise");
  const bool mlp = GENERATE(false, true);
  INFO(recipe << (mlp ? ", an MLP" : ", a transformer"));
  TrainerOptions options = small_options(recipe);
  if (mlp) options.model = MlpShape{.vocabulary = 64, .hidden = 64};
  const TemporaryFolder folder("checkpoint");
  Trainer whole(options, language());
  Trainer first(options, language());
  for (int i = 0; i < 12; ++i) (void)whole.step({});
  for (int i = 0; i < 7; ++i) (void)first.step({});
  first.save(folder / "run.safetensors");
  const TrainerSnapshot kept = first.snapshot();
  Trainer second(options, language());
  second.resume(folder / "run.safetensors");
  CHECK(second.steps_done() == 7);
  while (second.steps_done() < 12) (void)second.step({});
  CHECK(same_bits(weights_of(second), weights_of(whole)));
  for (int i = 0; i < 9; ++i) (void)first.step({});
  first.restore(kept);
  while (first.steps_done() < 12) (void)first.step({});
  CHECK(same_bits(weights_of(first), weights_of(whole)));
}

TEST_CASE("a checkpoint of another run is refused", "[train]") {
  const TemporaryFolder folder("checkpoint_other");
  const auto path = folder / "run.safetensors";
  Trainer trainer(small_options(), language());
  (void)trainer.step({});
  trainer.save(path);
  Trainer other_recipe(small_options("te-current"), language());
  CHECK_THROWS_WITH(other_recipe.resume(path),
                    contains("run.safetensors") && contains("/options/blocks/activation"));
  Trainer other_data(small_options(), language(2));
  CHECK_THROWS_WITH(other_data.resume(path), contains("/data") && contains("seed 2"));
  Trainer same(small_options(), language());
  CHECK_THROWS_WITH(same.resume(folder / "none.safetensors"), contains("none.safetensors"));
  CHECK(folder.files() == 1);
}

TEST_CASE("a checkpoint with any flipped bit is refused", "[train]") {
  const TemporaryFolder folder("checkpoint_bits");
  const auto path = folder / "run.safetensors";
  Trainer trainer(small_options(), language());
  for (int i = 0; i < 2; ++i) (void)trainer.step({});
  trainer.save(path);
  const std::string good = read_text(path);
  Trainer reader(small_options(), language());
  reader.resume(path);
  const auto refuses = [&](std::size_t byte, int bit) {
    std::string bad = good;
    bad[byte] = static_cast<char>(bad[byte] ^ (1 << bit));
    write_text(path, bad);
    INFO("byte " << byte << " bit " << bit);
    CHECK_THROWS_AS(reader.resume(path), Error);
  };
  const RandomStream random(7, "bits");
  for (std::uint64_t i = 0; i < 80; ++i)
    refuses(random.below(2 * i, good.size()), static_cast<int>(random.below(2 * i + 1, 8)));
  // The checksum's own digits: another case of a letter is another text.
  const std::size_t digits = good.find("crc32\":\"") + 8;
  for (std::size_t i = 0; i < 8; ++i)
    for (int bit = 0; bit < 8; ++bit) refuses(digits + i, bit);
  write_text(path, good);
  CHECK_NOTHROW(reader.resume(path));
}

TEST_CASE("a checkpoint's fields are looked at, and its version", "[train]") {
  const TemporaryFolder folder("checkpoint_fields");
  const auto path = folder / "run.safetensors";
  Trainer trainer(small_options(), language());
  (void)trainer.step({});
  trainer.save(path);
  const SafetensorsFile file(path);
  auto metadata = file.metadata();
  for (const std::int64_t step :
       {INT64_MIN, std::int64_t{-1}, std::int64_t{1'000'000'001}, INT64_MAX}) {
    std::vector<NamedTensor> tensors = file.tensors();
    for (NamedTensor& item : tensors)
      if (item.name == "trainer.step")
        item.tensor = view_of<std::int64_t>(ElementType::i64, {}, {&step, 1});
    write_safetensors(folder / "bad.safetensors", tensors, checkpoint_metadata(tensors, metadata));
    Trainer reader(small_options(), language());
    CHECK_THROWS_WITH(reader.resume(folder / "bad.safetensors"),
                      contains("trainer.step") && contains(std::to_string(step)));
  }
  const auto resume_with = [&](const std::string& ending, const TensorView& tensor) {
    std::vector<NamedTensor> tensors = file.tensors();
    for (NamedTensor& item : tensors)
      if (item.name.ends_with(ending)) item.tensor = tensor;
    write_safetensors(folder / "bad.safetensors", tensors, checkpoint_metadata(tensors, metadata));
    Trainer other(small_options(), language());
    other.resume(folder / "bad.safetensors");
    return other.steps_done();
  };
  for (const std::int64_t step : {std::int64_t{0}, std::int64_t{7}, std::int64_t{1'000'000'000}})
    CHECK(resume_with("trainer.step", view_of<std::int64_t>(ElementType::i64, {}, {&step, 1})) ==
          step);
  const std::vector<std::int32_t> narrow(2);
  const std::vector<std::int64_t> two(2);
  std::vector<float> amaxes(1025);
  amaxes.back() = -1.0F;
  CHECK_THROWS_WITH(resume_with("trainer.step", view_of(ElementType::i32, {2},
                                                        std::span<const std::int32_t>(narrow))),
                    contains("trainer.step: expected one i64, got i32 [2]"));
  CHECK_THROWS_WITH(resume_with("trainer.step",
                                view_of(ElementType::i64, {2}, std::span<const std::int64_t>(two))),
                    contains("trainer.step: expected one i64, got i64 [2]"));
  CHECK_THROWS_WITH(
      resume_with(".amaxes", view_of(ElementType::f32, {1025}, std::span<const float>(amaxes))),
      contains("amaxes: expected numbers that are not negative, got -1"));
  metadata.erase("crc32");
  write_safetensors(folder / "bad.safetensors", file.tensors(), metadata);
  Trainer reader(small_options(), language());
  CHECK_THROWS_WITH(reader.resume(folder / "bad.safetensors"), contains("no crc32"));
  metadata.erase("fp8lab.checkpoint");
  write_safetensors(folder / "bad.safetensors", file.tensors(), metadata);
  CHECK_THROWS_WITH(reader.resume(folder / "bad.safetensors"),
                    contains("format 2") && contains("start again with another file") &&
                        contains("format 1, which has no checksum"));
}

TEST_CASE("runs whose accumulators differ in one field are told apart", "[train]") {
  const TrainerOptions options = small_options("te-current");
  const auto differs = [&](auto change) {
    TrainerOptions other = options;
    change(other.recipe.blocks.forward.accumulator);
    CHECK(describe(other) != describe(options));
  };
  differs([](AccumulatorModel& m) { m.output_format = FormatId::f16; });
  differs([](AccumulatorModel& m) { m.product_exponent = ProductExponent::normalized; });
  differs([](AccumulatorModel& m) { ++m.terms; });
  differs([](AccumulatorModel& m) { ++m.product_fraction_bits; });
}

TEST_CASE("runs that differ in one option are told apart", "[train]") {
  TrainerOptions options = small_options("te-current");
  options.recipe.head = find_linear_recipe("te-current");
  options.recipe.layers["block0.up"] = find_linear_recipe("te-current");
  std::map<std::string, std::string> seen{{describe(options), "nothing"}};
  const auto differs = [&](const std::string& what, auto change) {
    TrainerOptions other = options;
    change(other);
    const auto [at, is_new] = seen.emplace(describe(other), what);
    INFO(what << " and " << at->second);
    CHECK(is_new);
  };
  using Options = TrainerOptions;
  const auto shape = [&](const std::string& what, auto change) {
    differs("shape " + what, [&](Options& o) { change(std::get<TransformerShape>(o.model)); });
  };
  shape("vocabulary", [](TransformerShape& s) { s.vocabulary = 9; });
  shape("length", [](TransformerShape& s) { s.length = 9; });
  shape("width", [](TransformerShape& s) { s.width = 9; });
  shape("layers", [](TransformerShape& s) { s.layers = 9; });
  shape("heads", [](TransformerShape& s) { s.heads = 9; });
  shape("hidden", [](TransformerShape& s) { s.hidden = 9; });
  shape("norm", [](TransformerShape& s) { s.norm = NormKind::layer; });
  shape("activation", [](TransformerShape& s) { s.activation = ActivationKind::gelu; });
  const MlpShape plain;
  for (std::int64_t MlpShape::*size : {&MlpShape::vocabulary, &MlpShape::context,
                                       &MlpShape::embedding, &MlpShape::hidden, &MlpShape::layers})
    differs("a size of an MLP", [&](Options& o) {
      MlpShape other = plain;
      other.*size += 1;
      o.model = other;
    });
  differs("sequences", [](Options& o) { o.sequences = 9; });
  differs("length", [](Options& o) { o.length = 9; });
  differs("peak", [](Options& o) { o.schedule.peak = 0.5; });
  differs("warmup", [](Options& o) { o.schedule.warmup = 9; });
  differs("steps", [](Options& o) { o.schedule.steps = 9; });
  differs("final share", [](Options& o) { o.schedule.final_share = 0.5; });
  differs("clip_norm", [](Options& o) { o.clip_norm = 0.5; });
  differs("loss_scale", [](Options& o) { o.loss_scale = 0.5; });
  differs("seed", [](Options& o) { o.seed = 9; });
  differs("outliers", [](Options& o) { o.recipe.outliers.count = 9; });
  differs("their size", [](Options& o) { o.recipe.outliers.log2_magnitude = 9; });
  for (StateFormat AdamWOptions::*state :
       {&AdamWOptions::master, &AdamWOptions::gradient, &AdamWOptions::m, &AdamWOptions::v})
    differs("a state", [&](Options& o) { (o.optimizer.*state).format = FormatId::bf16; });
  differs("beta1", [](Options& o) { o.optimizer.beta1 = 0.5F; });
  differs("beta2", [](Options& o) { o.optimizer.beta2 = 0.5F; });
  differs("eps", [](Options& o) { o.optimizer.eps = 0.5F; });
  differs("weight_decay", [](Options& o) { o.optimizer.weight_decay = 0.5; });
  differs("decay", [](Options& o) { o.optimizer.decay = WeightDecay::l2; });
  differs("bias_correction", [](Options& o) { o.optimizer.bias_correction = false; });

  using Change = void (*)(Recipe&);
  const std::vector<std::pair<const char*, Change>> casts{
      {"format", [](Recipe& r) { r.format = FormatId::e2m3; }},
      {"rule", [](Recipe& r) { r.rule = ScaleRule::ms_amp; }},
      {"source", [](Recipe& r) { r.source = ScaleSource::calibration; }},
      {"row_block", [](Recipe& r) { r.row_block = 9; }},
      {"k_block", [](Recipe& r) { r.k_block = 9; }},
      {"power_of_two", [](Recipe& r) { r.power_of_two = !r.power_of_two; }},
      {"amax_floor", [](Recipe& r) { r.amax_floor = 0.375F; }},
      {"rounding", [](Recipe& r) { r.policy.rounding = RoundingMode::upward; }},
      {"overflow", [](Recipe& r) { r.policy.overflow = OverflowPolicy::non_saturating; }},
      {"subnormals", [](Recipe& r) { r.policy.subnormals = SubnormalPolicy::raise_to_min_normal; }},
      {"infinity", [](Recipe& r) { r.policy.infinity = InfinityPolicy::non_saturating; }},
      {"NaN", [](Recipe& r) { r.policy.nan = NanPolicy::negative_max; }},
      {"max_magnitude", [](Recipe& r) { r.policy.max_magnitude = 0.375; }},
      {"history", [](Recipe& r) { r.delayed.history = 9; }},
      {"margin", [](Recipe& r) { r.delayed.margin = 0.375; }},
      {"algorithm", [](Recipe& r) { r.delayed.algorithm = AmaxAlgorithm::most_recent; }},
      {"zero_amax", [](Recipe& r) { r.delayed.zero_amax = ZeroAmax::roll; }},
      {"window", [](Recipe& r) { r.window = 9; }}};
  const std::vector<std::pair<const char*, void (*)(GemmSettings&)>> products{
      {"arithmetic", [](GemmSettings& s) { s.arithmetic = Arithmetic::bf16; }},
      {"terms", [](GemmSettings& s) { s.accumulator.terms = 9; }},
      {"zero_sign", [](GemmSettings& s) { s.accumulator.zero_sign = ZeroSign::positive; }},
      {"promotion_interval", [](GemmSettings& s) { s.promotion_interval = 9; }},
      {"scale_order", [](GemmSettings& s) { s.scale_order = ScaleOrder::b_then_fma_a; }}};
  const std::vector<std::pair<std::string, LinearRecipe& (*)(Options&)>> places{
      {"blocks: ", [](Options& o) -> LinearRecipe& { return o.recipe.blocks; }},
      {"head: ", [](Options& o) -> LinearRecipe& { return o.recipe.head; }},
      {"a layer: ", [](Options& o) -> LinearRecipe& {
         return o.recipe.layers.find("block0.up")->second;
       }}};
  for (const auto& [place, recipe] : places) {
    const auto in_recipe = [&, where = place, of = recipe](const std::string& what, auto change) {
      differs(where + what, [&](Options& o) { change(of(o)); });
    };
    for (const auto& [what, change] : casts) {
      for (const auto& [role, member] : {std::pair{"activation ", &LinearRecipe::activation},
                                         {"weight ", &LinearRecipe::weight},
                                         {"gradient ", &LinearRecipe::gradient}})
        in_recipe(role + std::string(what),
                  [&, set = change, of = member](LinearRecipe& r) { set(r.*of); });
      for (const auto& [role, member] :
           {std::pair{"weight for dgrad ", &LinearRecipe::weight_for_dgrad},
            {"activation for wgrad ", &LinearRecipe::activation_for_wgrad},
            {"gradient for wgrad ", &LinearRecipe::gradient_for_wgrad}})
        in_recipe(role + std::string(what),
                  [&, set = change, of = member](LinearRecipe& r) { set((r.*of).emplace()); });
    }
    for (const auto& [what, change] : products)
      for (const auto& [role, member] : {std::pair{"forward ", &LinearRecipe::forward},
                                         {"dgrad ", &LinearRecipe::dgrad},
                                         {"wgrad ", &LinearRecipe::wgrad}})
        in_recipe(role + std::string(what),
                  [&, set = change, of = member](LinearRecipe& r) { set(r.*of); });
    in_recipe("limit", [](LinearRecipe& r) { r.gradient_clip = 0.375; });
    in_recipe("outputs", [](LinearRecipe& r) { r.bf16_outputs = !r.bf16_outputs; });
  }
  differs("one layer fewer", [](Options& o) { o.recipe.layers.clear(); });
}

// Runs in a process of its own, for the test below to kill: hidden from other runs.
TEST_CASE("worker of the kill test", "[.][train-worker]") {
  const char* folder = std::getenv(kWorkerFolder);
  REQUIRE(folder != nullptr);
  Trainer trainer(small_options(), language());
  while (trainer.steps_done() < 100000) {
    (void)trainer.step({});
    if (trainer.steps_done() % kSaveEvery == 0)
      trainer.save(std::filesystem::path(folder) / "run.safetensors");
  }
}

TEST_CASE("kill -9 and resume give the bits of a run that never stopped", "[train]") {
  const TemporaryFolder folder("killed");
  const auto checkpoint = folder / "run.safetensors";
  REQUIRE(::setenv(kWorkerFolder, folder.path().c_str(), 1) == 0);
  std::string program = "/proc/self/exe";
  std::string tag = "[train-worker]";
  char* const arguments[] = {program.data(), tag.data(), nullptr};
  pid_t worker = 0;
  REQUIRE(::posix_spawn(&worker, program.c_str(), nullptr, nullptr, arguments, environ) == 0);
  for (int i = 0; i < 12000 && !std::filesystem::exists(checkpoint); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  REQUIRE(::kill(worker, SIGKILL) == 0);
  int status = 0;
  REQUIRE(::waitpid(worker, &status, 0) == worker);
  CHECK(WIFSIGNALED(status));

  Trainer resumed(small_options(), language());
  resumed.resume(checkpoint);
  CHECK(resumed.steps_done() % kSaveEvery == 0);
  const std::int64_t target = std::max(kSteps, resumed.steps_done() + 5);
  while (resumed.steps_done() < target) (void)resumed.step({});
  Trainer whole(small_options(), language());
  while (whole.steps_done() < target) (void)whole.step({});
  CHECK(same_bits(weights_of(resumed), weights_of(whole)));
}
