#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "apps/bench/bench.hpp"
#include "apps/bench/ceilings.hpp"
#include "apps/bench/eigen_gemm.hpp"
#include "fp8lab/core/target.hpp"
#include "training/train/trainer.hpp"

namespace fp8lab::cli {
namespace {

using namespace fp8lab::train;

struct TrainOptions {
  std::vector<std::string> recipes{"bf16", "te-current", "te-delayed", "deepgemm"};
  TransformerShape shape{.vocabulary = 256,
                         .length = 128,
                         .width = 256,
                         .layers = 4,
                         .heads = 4,
                         .hidden = 1024,
                         .norm = NormKind::layer,
                         .activation = ActivationKind::gelu};
  std::int64_t sequences = 8;
  int repetitions = 5;
  std::string clock = "wall";
};

EigenGemm eigen_of_this_machine() {
  if (current_target() == Target::avx512) return eigen_gemm_avx512;
  return current_target() == Target::avx2 ? eigen_gemm_avx2 : eigen_gemm_baseline;
}

/// The operand row by row; in tiles, since one of the strides is long.
const float* dense(Operand<float> x, std::int64_t rows, std::int64_t k, std::vector<float>& copy) {
  constexpr std::int64_t kTile = 32;
  if (x.k_stride == 1 && x.row_stride == k) return x.data;
  copy.resize(static_cast<std::size_t>(rows * k));
  for (std::int64_t r0 = 0; r0 < rows; r0 += kTile)
    for (std::int64_t k0 = 0; k0 < k; k0 += kTile)
      for (std::int64_t r = r0; r < std::min(rows, r0 + kTile); ++r)
        for (std::int64_t i = k0; i < std::min(k, k0 + kTile); ++i)
          copy[static_cast<std::size_t>(r * k + i)] = x.data[r * x.row_stride + i * x.k_stride];
  return copy.data();
}

void eigen_multiply(Operand<float> a, Operand<float> b, Output<float> d, ProductSize size,
                    int threads) {
  static const EigenGemm kGemm = eigen_of_this_machine();
  std::vector<float> a_copy;
  std::vector<float> b_copy;
  kGemm(dense(a, size.m, size.k, a_copy), dense(b, size.n, size.k, b_copy), d.data, size.m, size.n,
        size.k, threads);
}

/// One way to compute the same training step, with its times.
struct Contender {
  std::string name;
  std::unique_ptr<Trainer> trainer;
  std::vector<double> seconds;
  double first_loss = 0.0;
};

Contender contender(std::string name, const LinearRecipe& recipe, const TrainOptions& options,
                    int threads) {
  TrainerOptions run;
  run.model = options.shape;
  run.recipe.blocks = recipe;
  if (recipe.name == "fp32") run.recipe.head = recipe;
  run.sequences = options.sequences;
  run.optimizer.threads = threads;
  run.length = options.shape.length;
  auto data = synthetic_language({.vocabulary = options.shape.vocabulary}, run.seed);
  return {std::move(name), std::make_unique<Trainer>(run, std::move(data)), {}, 0.0};
}

std::vector<Contender> contenders(const TrainOptions& options, int threads) {
  std::vector<Contender> all;
  LinearRecipe eigen = fp32_recipe();
  eigen.float32_multiply = eigen_multiply;
  all.push_back(contender("fp32, Eigen", eigen, options, threads));
  all.push_back(contender("fp32", fp32_recipe(), options, threads));
  for (const std::string& name : options.recipes)
    all.push_back(contender(name, find_linear_recipe(name), options, threads));
  return all;
}

/// The first step of a one-layer model, for any number of threads.
bool threads_agree(const std::string& recipe, int threads) {
  TrainOptions small;
  small.shape.layers = 1;
  small.sequences = 2;
  const LinearRecipe linear = find_linear_recipe(recipe);
  const StepRecord one = contender(recipe, linear, small, 1).trainer->step({});
  const StepRecord many =
      contender(recipe, linear, small, threads).trainer->step({.threads = threads, .on_cast = {}});
  return one.loss == many.loss && one.gradient_norm == many.gradient_norm;
}

/// One step of each in turn: a shared machine changes under all of them alike.
void time_steps(std::vector<Contender>& all, const TrainOptions& options, int threads) {
  const PassContext context{.threads = threads, .on_cast = {}};
  for (Contender& c : all) c.first_loss = c.trainer->step(context).loss;
  for (int i = 0; i < options.repetitions; ++i)
    for (Contender& c : all)
      c.seconds.push_back(bench::seconds_of([&] { (void)c.trainer->step(context); },
                                            clock_named(options.clock), threads));
}

nlohmann::json run(const TrainOptions& options, const BenchOptions& common) {
  std::vector<Contender> all = contenders(options, common.threads);
  bool verified = true;
  for (const std::string& name : options.recipes)
    verified = verified && threads_agree(name, std::max(2, common.threads));
  time_steps(all, options, common.threads);
  verified = verified && std::abs(all[0].first_loss - all[1].first_loss) < 1e-5;
  nlohmann::json rows = nlohmann::json::array();
  const double tokens = static_cast<double>(all[0].trainer->tokens_per_step());
  const auto median = [](const Contender& c) { return bench::summarize(c.seconds).median; };
  const double fp32 = std::min(median(all[0]), median(all[1]));
  for (const Contender& c : all) {
    const bench::Timing timing = bench::summarize(c.seconds);
    rows.push_back({{"products", c.name},
                    {"median_seconds", timing.median},
                    {"spread", timing.spread},
                    {"tokens_per_second", tokens / timing.median},
                    {"ratio_to_eigen", timing.median / median(all[0])},
                    {"ratio_to_fp32", timing.median / fp32}});
  }
  return {{"verified", verified},
          {"clock", options.clock},
          {"parameters", all[0].trainer->parameter_count()},
          {"tokens_per_step", all[0].trainer->tokens_per_step()},
          {"rows", rows}};
}

void print(const nlohmann::json& report) {
  fmt::print("transformer of {} parameters, {} tokens per step; ratios of whole steps\n",
             report["parameters"].get<std::int64_t>(),
             report["tokens_per_step"].get<std::int64_t>());
  fmt::print("{:<16} {:>10} {:>7} {:>10} {:>9} {:>14}\n", "products", "median ms", "spread",
             "tokens/s", "of Eigen", "of faster FP32");
  for (const nlohmann::json& row : report["rows"])
    fmt::print("{:<16} {:>10.1f} {:>6.1f}% {:>10.0f} {:>9.2f} {:>14.2f}\n",
               row["products"].get<std::string>(), row["median_seconds"].get<double>() * 1e3,
               row["spread"].get<double>() * 100, row["tokens_per_second"].get<double>(),
               row["ratio_to_eigen"].get<double>(), row["ratio_to_fp32"].get<double>());
}

}  // namespace

Benchmark train_benchmark() {
  auto options = std::make_shared<TrainOptions>();
  return {"train", "Time training steps with emulated products and with FP32 products",
          [options](Command& command) {
            command.add_option("--recipe", options->recipes, "linear recipes to time")
                ->capture_default_str();
            command.add_option("--width", options->shape.width, "channels")->capture_default_str();
            command.add_option("--hidden", options->shape.hidden, "feed-forward channels")
                ->capture_default_str();
            command.add_option("--layers", options->shape.layers, "transformer blocks")
                ->capture_default_str();
            command.add_option("--length", options->shape.length, "tokens of a sequence")
                ->capture_default_str();
            command.add_option("--sequences", options->sequences, "sequences of a step")
                ->capture_default_str();
            command.add_option("--repetitions", options->repetitions, "timed steps of each")
                ->check(between(1, 1000))
                ->capture_default_str();
            add_clock(command, options->clock);
          },
          [options](const BenchOptions& common) { return run(*options, common); }, print};
}

}  // namespace fp8lab::cli
