#include "fp8lab/train/trainer.hpp"

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
  const TemporaryFolder folder("checkpoint");
  Trainer whole(small_options(recipe), language());
  Trainer first(small_options(recipe), language());
  for (int i = 0; i < 12; ++i) (void)whole.step({});
  for (int i = 0; i < 7; ++i) (void)first.step({});
  first.save(folder / "run.safetensors");
  Trainer second(small_options(recipe), language());
  second.resume(folder / "run.safetensors");
  CHECK(second.steps_done() == 7);
  while (second.steps_done() < 12) (void)second.step({});
  INFO(recipe);
  CHECK(same_bits(weights_of(second), weights_of(whole)));
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
  for (const std::int64_t step : {INT64_MIN, std::int64_t{-1}, INT64_MAX}) {
    std::vector<NamedTensor> tensors = file.tensors();
    for (NamedTensor& item : tensors)
      if (item.name == "trainer.step")
        item.tensor = view_of<std::int64_t>(ElementType::i64, {}, {&step, 1});
    write_safetensors(folder / "bad.safetensors", tensors, checkpoint_metadata(tensors, metadata));
    Trainer reader(small_options(), language());
    CHECK_THROWS_WITH(reader.resume(folder / "bad.safetensors"),
                      contains("trainer.step") && contains(std::to_string(step)));
  }
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
