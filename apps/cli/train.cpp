#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/train/monitor.hpp"
#include "fp8lab/train/trainer.hpp"
#include "json_number.hpp"
#include "models.hpp"

namespace fp8lab::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kMostSteps = 1'000'000'000;

struct Options {
  std::string recipe = "te-current";
  std::string model;
  ModelFiles models;
  std::string text;
  std::string checkpoint;
  std::string log;
  train::TransformerShape shape;
  train::Schedule schedule;
  std::int64_t sequences = 8;
  std::int64_t save_every = 100;
  std::int64_t monitor_every = 10;
  std::int64_t outlier_channels = 0;
  int outlier_log2 = 0;
  double loss_scale = 1.0;
  std::uint64_t seed = 1;
  int threads = 0;  ///< all
  bool json = false;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// One line on a terminal that is drawn over; a line every tenth elsewhere.
class Progress {
 public:
  Progress(std::int64_t first, std::int64_t steps, std::int64_t tokens_per_step)
      : first_(first), steps_(steps), tokens_(tokens_per_step) {}
  ~Progress() {
    if (terminal_) fmt::print(stderr, "\r\033[K");
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(std::int64_t done, double loss) const {
    const double seconds = seconds_since(start_);
    const auto run = static_cast<double>(done - first_);
    if (!terminal_ && done % std::max<std::int64_t>(1, steps_ / 10) != 0) return;
    fmt::print(stderr, "{}step {}/{}  loss {:.4f}  {:.0f} tokens/s  {:.0f} s left{}",
               terminal_ ? "\r\033[K" : "", done, steps_, loss,
               run * static_cast<double>(tokens_) / seconds,
               seconds / run * static_cast<double>(steps_ - done), terminal_ ? "" : "\n");
    std::fflush(stderr);
  }

 private:
  std::int64_t first_;
  std::int64_t steps_;
  std::int64_t tokens_;
  bool terminal_ = isatty(STDERR_FILENO) != 0;
  Clock::time_point start_ = Clock::now();
};

train::TrainerOptions trainer_options(const Options& o) {
  train::TrainerOptions t;
  t.model = o.shape;
  t.recipe.blocks = train::find_linear_recipe(o.recipe);
  if (!o.model.empty()) {
    const bool in_fp8 = t.recipe.blocks.forward.arithmetic == train::Arithmetic::fp8;
    require(in_fp8, "--model", "a recipe with FP8 products", fmt::format("--recipe {}", o.recipe));
    t.recipe.blocks = train::on_hardware(t.recipe.blocks, load_models(o.models).resolve(o.model));
  }
  if (o.recipe == "fp32") t.recipe.head = t.recipe.blocks;
  t.recipe.outliers = {o.outlier_channels, o.outlier_log2};
  t.schedule = o.schedule;
  t.sequences = o.sequences;
  t.optimizer.threads = o.threads;
  t.length = o.shape.length;
  t.loss_scale = o.loss_scale;
  t.seed = o.seed;
  return t;
}

/// Runs until the last step, or to a loss that is not finite.
std::vector<train::StepRecord> run_steps(train::Trainer& trainer, const Options& o,
                                         train::TrainingMonitor& monitor, std::ofstream& log) {
  std::vector<train::StepRecord> records;
  const Progress progress(trainer.steps_done(), o.schedule.steps, trainer.tokens_per_step());
  while (trainer.steps_done() < o.schedule.steps) {
    require(log.good(), "--log", "a file that can be written to the end", "'" + o.log + "'");
    train::PassContext context{.threads = o.threads, .on_cast = {}};
    if (trainer.steps_done() % o.monitor_every == 0)
      context.on_cast = [&](std::string_view name, const FloatMatrix& x, const QuantizedTensor& q) {
        monitor.observe(name, x, q);
      };
    records.push_back(trainer.step(context));
    const train::StepRecord& r = records.back();
    monitor.end_step(
        {{"loss", r.loss}, {"gradient_norm", r.gradient_norm}, {"learning_rate", r.learning_rate}});
    progress.show(trainer.steps_done(), r.loss);
    const bool last = trainer.steps_done() == o.schedule.steps;
    if (!o.checkpoint.empty() && (last || trainer.steps_done() % o.save_every == 0))
      trainer.save(o.checkpoint);
    if (!std::isfinite(r.loss)) break;
  }
  if (log.is_open()) log.close();
  require(log.good(), "--log", "a file that can be written to the end", "'" + o.log + "'");
  return records;
}

void print_for_people(const train::Trainer& trainer, const std::vector<train::StepRecord>& records,
                      const train::TrainingMonitor& monitor) {
  constexpr std::size_t kMostWarnings = 10;
  fmt::print("{} parameters, {} of {} steps done\n", trainer.parameter_count(),
             trainer.steps_done(), trainer.options().schedule.steps);
  if (!records.empty())
    fmt::print("loss {:.4f} at step {}, {:.4f} at step {}\n", records.front().loss,
               records.front().step, records.back().loss, records.back().step);
  fmt::print("{} warnings\n", monitor.warnings().size());
  for (std::size_t i = 0; i < std::min(kMostWarnings, monitor.warnings().size()); ++i) {
    const train::MonitorWarning& w = monitor.warnings()[i];
    fmt::print("  step {}: {}: {} {:.4g} above {:.4g}\n", w.step, w.tensor, to_string(w.kind),
               w.value, w.threshold);
  }
}

int run(Options o) {
  o.threads = team_size(o.threads);
  std::shared_ptr<const train::DataSource> data =
      o.text.empty() ? train::synthetic_language({.vocabulary = o.shape.vocabulary}, o.seed)
                     : train::text_file(o.text, o.seed);
  train::Trainer trainer(trainer_options(o), data);
  if (!o.checkpoint.empty() && std::filesystem::exists(o.checkpoint)) trainer.resume(o.checkpoint);
  train::TrainingMonitor monitor({}, trainer.steps_done());
  std::ofstream log;
  if (!o.log.empty()) {
    log.open(o.log, std::ios::app);
    require(log.good(), "--log", "a file that can be written", "'" + o.log + "'");
    monitor.log_to(&log);
  }
  const std::vector<train::StepRecord> records = run_steps(trainer, o, monitor, log);
  if (!o.json) {
    print_for_people(trainer, records, monitor);
    return kPass;
  }
  nlohmann::json losses = nlohmann::json::array();
  for (const train::StepRecord& r : records) losses.push_back(json_number(r.loss));
  fmt::print("{}\n", nlohmann::json{{"parameters", trainer.parameter_count()},
                                    {"steps_done", trainer.steps_done()},
                                    {"losses", losses},
                                    {"warnings", monitor.warnings().size()}}
                         .dump(2));
  return kPass;
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "train", "Train a small transformer whose matrix products are emulated under a recipe");
  command->add_option("--recipe", o->recipe, "linear recipe: fp32, bf16 or a quantize recipe")
      ->capture_default_str();
  command->add_option("--model", o->model,
                      "accumulator of the FP8 products, an instruction or a definition; default: "
                      "the recipe's");
  add_models_option(*command, o->models);
  command->add_option("--text", o->text,
                      "file whose bytes are the training text; default: a synthetic language");
  command->add_option("--checkpoint", o->checkpoint,
                      "checkpoint file: continued if it exists, updated during the run");
  command->add_option("--save-every", o->save_every, "steps between checkpoints")
      ->check(CLI::Range(std::int64_t{1}, kMostSteps))
      ->capture_default_str();
  command->add_option("--log", o->log, "JSON lines: casts of monitored steps, loss of every step");
  command
      ->add_option("--monitor-every", o->monitor_every, "steps between measurements of the casts")
      ->check(CLI::Range(std::int64_t{1}, kMostSteps))
      ->capture_default_str();
  command->add_option("--steps", o->schedule.steps, "steps of the whole run")
      ->capture_default_str();
  command->add_option("--learning-rate", o->schedule.peak, "peak learning rate")
      ->capture_default_str();
  command->add_option("--width", o->shape.width, "channels")->capture_default_str();
  command->add_option("--layers", o->shape.layers, "transformer blocks")->capture_default_str();
  command->add_option("--heads", o->shape.heads, "attention heads")->capture_default_str();
  command->add_option("--hidden", o->shape.hidden, "feed-forward channels")->capture_default_str();
  command->add_option("--length", o->shape.length, "tokens of a sequence")->capture_default_str();
  command->add_option("--sequences", o->sequences, "sequences of a step")->capture_default_str();
  command
      ->add_option("--outlier-channels", o->outlier_channels,
                   "number of feature channels that are scaled up")
      ->capture_default_str();
  command
      ->add_option("--outlier-log2", o->outlier_log2,
                   "log2 of the factor by which --outlier-channels are scaled")
      ->check(CLI::Range(-60, 60))
      ->capture_default_str();
  command->add_option("--loss-scale", o->loss_scale, "a power of two")->capture_default_str();
  command->add_option("--seed", o->seed, "seed of weights and data")->capture_default_str();
  command->add_option("--threads", o->threads, "threads; results do not depend on them")
      ->check(CLI::Range(1, kMostThreads));
  command->add_flag("--json", o->json, "machine-readable output");
  command->callback([o, &action] { action = [o] { return run(*o); }; });
}

}  // namespace fp8lab::cli
