#include "training/train/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "fp8lab/metrics/sum.hpp"

namespace fp8lab::train {
namespace {

std::unique_ptr<Model<float>> make_model(const TrainerOptions& options) {
  if (const auto* shape = std::get_if<TransformerShape>(&options.model))
    return std::make_unique<Transformer<float>>(*shape, options.recipe, options.seed);
  return std::make_unique<Mlp<float>>(std::get<MlpShape>(options.model), options.recipe,
                                      options.seed);
}

std::int64_t vocabulary(const TrainerOptions& options) {
  return std::visit([](const auto& shape) { return shape.vocabulary; }, options.model);
}

/// Matrices of linear layers decay; embeddings, gains and biases do not.
bool decays(const Parameter<float>& p) {
  return p.shape.size() == 2 && p.name.find("embedding") == std::string::npos;
}

std::unique_ptr<AdamW> make_optimizer(const TrainerOptions& options,
                                      const std::vector<Parameter<float>*>& parameters) {
  std::vector<fp8lab::Parameter> tensors;
  for (const Parameter<float>* p : parameters)
    tensors.push_back({p->name, p->shape, p->value, decays(*p)});
  return std::make_unique<AdamW>(options.optimizer, tensors);
}

void require_count(std::string_view name, std::int64_t value, std::int64_t least,
                   std::int64_t most) {
  require(value >= least && value <= most, name, fmt::format("{} to {}", least, most),
          fmt::format("{}", value));
}

void check_loss_scale(double scale) {
  // A scale and its inverse are binary32 numbers with room for gradients above and below.
  constexpr int kMostExponent = 120;
  int exponent = 0;
  const bool power = std::frexp(scale, &exponent) == 0.5;
  require(power && std::abs(exponent - 1) <= kMostExponent, "loss_scale",
          fmt::format("a power of two from 2^-{0} to 2^{0}", kMostExponent),
          fmt::format("{:g}", scale));
}

void check(const TrainerOptions& options) {
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;
  constexpr std::int64_t kMostSteps = 1'000'000'000;
  check_loss_scale(options.loss_scale);
  require_count("sequences", options.sequences, 1, kMostTokens);
  require_count("length", options.length, 1, kMostTokens);
  require_count("sequences * length", options.sequences * options.length, 1, kMostTokens);
  require_count("steps", options.schedule.steps, 1, kMostSteps);
  require_count("warmup", options.schedule.warmup, 0, kMostSteps);
  const auto require_positive = [](std::string_view name, double value) {
    require(std::isfinite(value) && value >= 0.0, name, "a finite number >= 0",
            fmt::format("{:g}", value));
  };
  require_positive("learning_rate", options.schedule.peak);
  require_positive("final_share", options.schedule.final_share);
  require_positive("clip_norm", options.clip_norm);
  if (options.recipe.layers.empty()) return;
  const auto layers =
      std::visit([](const auto& shape) { return linear_layers(shape); }, options.model);
  for (const auto& [name, recipe] : options.recipe.layers) {
    const bool known =
        std::any_of(layers.begin(), layers.end(),
                    [&, &wanted = name](const LinearLayer& l) { return l.name == wanted; });
    require(known, "layers", "names of linear layers of the model", "'" + name + "'");
  }
}

}  // namespace

double Schedule::at(std::int64_t step) const {
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  const double span = static_cast<double>(std::max<std::int64_t>(1, steps - warmup));
  const double done = std::min(1.0, static_cast<double>(step - warmup) / span);
  const double cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * done));
  return peak * (final_share + (1.0 - final_share) * cosine);
}

Trainer::Trainer(TrainerOptions options, std::shared_ptr<const DataSource> data)
    : options_(std::move(options)), data_(std::move(data)) {
  require(data_->vocabulary() <= vocabulary(options_), "vocabulary",
          fmt::format("at least the data's {}", data_->vocabulary()),
          fmt::format("{}", vocabulary(options_)));
  check(options_);
  model_ = make_model(options_);
  updated_ = model_->parameters();
  optimizer_ = make_optimizer(options_, updated_);
}

void Trainer::set_loss_scale(double scale) {
  check_loss_scale(scale);
  options_.loss_scale = scale;
}

void Trainer::keep_states(const std::vector<bool>& kept) {
  const std::vector<Parameter<float>*> all = model_->parameters();
  require(kept.size() == all.size(), "kept",
          fmt::format("one of each of {} parameters", all.size()), fmt::format("{}", kept.size()));
  require(steps_ == 0, "kept", "before the first step", fmt::format("after {} steps", steps_));
  updated_.clear();
  for (std::size_t i = 0; i < all.size(); ++i)
    if (kept[i]) updated_.push_back(all[i]);
  optimizer_ = make_optimizer(options_, updated_);
}

std::int64_t Trainer::parameter_count() const {
  std::int64_t count = 0;
  for (const Parameter<float>* p : model_->parameters())
    count += static_cast<std::int64_t>(p->value.size());
  return count;
}

/// Returns the norm before clipping.
double Trainer::clip_gradients() {
  PairwiseSum squares;
  for (const Parameter<float>* p : model_->parameters())
    for (const float g : p->gradient) squares.add(static_cast<double>(g) * static_cast<double>(g));
  const double norm = std::sqrt(squares.total());
  if (options_.clip_norm > 0.0 && norm > options_.clip_norm) {
    const auto factor = static_cast<float>(options_.clip_norm / norm);
    for (Parameter<float>* p : model_->parameters())
      for (float& g : p->gradient) g *= factor;
  }
  return norm;
}

void Trainer::load_weights() {
  std::size_t i = 0;
  for (Parameter<float>* p : updated_) optimizer_->copy_weights(i++, p->value);
}

double Trainer::compute_gradients(std::int64_t batch, const PassContext& context) {
  const double loss =
      model_->loss(data_->batch(batch, options_.sequences, options_.length), context);
  model_->backward(static_cast<float>(options_.loss_scale), context);
  const auto unscale = static_cast<float>(1.0 / options_.loss_scale);
  for (Parameter<float>* p : model_->parameters())
    for (float& g : p->gradient) g *= unscale;
  return loss;
}

StepRecord Trainer::apply_gradients(double loss) {
  StepRecord record{.step = steps_, .loss = loss, .learning_rate = options_.schedule.at(steps_)};
  record.gradient_norm = clip_gradients();
  std::vector<std::span<const float>> gradients;
  for (const Parameter<float>* p : updated_) gradients.emplace_back(p->gradient);
  if (!updated_.empty()) optimizer_->step(gradients, record.learning_rate);
  load_weights();
  ++steps_;
  return record;
}

StepRecord Trainer::step(const PassContext& context) {
  return apply_gradients(compute_gradients(steps_, context));
}

}  // namespace fp8lab::train
