#include "training/optim/adamw.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <set>

#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/threads.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t kChunk = 32 * kStateGroup;
constexpr const char* kStepsName = "optimizer.steps";

void check_fraction(std::string_view name, float value) {
  require(value >= 0.0F && value < 1.0F, name, "0 to below 1", fmt::format("{}", value));
}

void check_options(const AdamWOptions& o) {
  check_fraction("beta1", o.beta1);
  check_fraction("beta2", o.beta2);
  require(std::isfinite(o.eps) && o.eps >= 0.0F, "eps", "finite, at least 0",
          fmt::format("{}", o.eps));
  require(std::isfinite(o.weight_decay) && o.weight_decay >= 0.0, "weight_decay",
          "finite, at least 0", fmt::format("{}", o.weight_decay));
  require(o.threads >= 0, "threads", "0 (all) or more", fmt::format("{}", o.threads));
}

/// All elements of a row-major tensor, as many as its shape says.
std::size_t checked_size(const Parameter& parameter) {
  const auto expected =
      static_cast<std::size_t>(element_count(parameter.shape, "shape of " + parameter.name));
  require(parameter.values.size() == expected, parameter.name,
          fmt::format("{} = {} values", shape_text(parameter.shape), expected),
          fmt::format("{}", parameter.values.size()));
  return expected;
}

}  // namespace

/// What one step multiplies and adds with.
struct AdamW::Constants {
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float eps;
  float step_size;
  float root;
  float keep;  ///< for parameters that decay
  float l2;    ///< for parameters that decay
};

struct AdamW::Buffers {
  std::array<float, kChunk> w, g, m, v;
};

double OptimizerMemory::bytes_per_parameter() const {
  const FloatEnvironment environment;
  return parameters == 0 ? 0.0 : static_cast<double>(total()) / static_cast<double>(parameters);
}

AdamW::AdamW(const AdamWOptions& options, std::span<const Parameter> parameters)
    : options_(options) {
  check_options(options);
  std::set<std::string> names;
  for (const Parameter& parameter : parameters) {
    require(!parameter.name.empty() && names.insert(parameter.name).second, "parameter name",
            "a unique name that is not empty", "'" + parameter.name + "'");
    const std::size_t size = checked_size(parameter);
    State state{parameter.name,
                parameter.shape,
                parameter.decays,
                StateTensor(options.master, size),
                StateTensor(options.gradient, stores_gradients() ? size : 0),
                StateTensor(options.m, size),
                StateTensor(options.v, size)};
    state.master.assign(parameter.values, options.threads);
    for (std::size_t begin = 0; begin < size; begin += kChunk)
      chunks_.push_back({states_.size(), begin, std::min(kChunk, size - begin)});
    states_.push_back(std::move(state));
  }
}

bool AdamW::stores_gradients() const { return options_.gradient.format != FormatId::f32; }

int AdamW::threads() const {
  return static_cast<int>(std::clamp<std::size_t>(
      chunks_.size(), 1, static_cast<std::size_t>(team_size(options_.threads))));
}

void AdamW::check(std::span<const std::span<const float>> gradients, double lr) const {
  require(std::isfinite(lr), "lr", "a finite number", fmt::format("{}", lr));
  require(gradients.size() == states_.size(), "gradients",
          fmt::format("one a parameter = {}", states_.size()), fmt::format("{}", gradients.size()));
  for (std::size_t i = 0; i < states_.size(); ++i)
    require(gradients[i].size() == states_[i].m.size(), "gradient of " + states_[i].name,
            counted(states_[i].m.size(), "element"), fmt::format("{}", gradients[i].size()));
}

void AdamW::advance() {
  ++steps_;
  power1_ *= static_cast<double>(options_.beta1);
  power2_ *= static_cast<double>(options_.beta2);
}

AdamW::Constants AdamW::constants(double lr) const {
  const bool corrects = options_.bias_correction;
  const double correction1 = corrects ? 1.0 - power1_ : 1.0;
  const double correction2 = corrects ? 1.0 - power2_ : 1.0;
  const bool decoupled = options_.decay == WeightDecay::decoupled;
  return {.beta1 = options_.beta1,
          .one_minus_beta1 = 1.0F - options_.beta1,
          .beta2 = options_.beta2,
          .one_minus_beta2 = 1.0F - options_.beta2,
          .eps = options_.eps,
          .step_size = static_cast<float>(lr / correction1),
          .root = static_cast<float>(std::sqrt(correction2)),
          .keep = decoupled ? static_cast<float>(1.0 - lr * options_.weight_decay) : 1.0F,
          .l2 = decoupled ? 0.0F : static_cast<float>(options_.weight_decay)};
}

/// The new w, m and v of a chunk, from what is stored now.
void AdamW::compute(const Chunk& chunk, const Constants& c, std::span<const float> gradient,
                    Buffers& b) const {
  const State& state = states_[chunk.parameter];
  const std::size_t n = chunk.count;
  state.master.load(chunk.begin, std::span(b.w).first(n));
  state.m.load(chunk.begin, std::span(b.m).first(n));
  state.v.load(chunk.begin, std::span(b.v).first(n));
  if (stores_gradients())
    state.gradient.load(chunk.begin, std::span(b.g).first(n));
  else
    std::copy_n(gradient.begin() + static_cast<std::ptrdiff_t>(chunk.begin), n, b.g.begin());
  if (state.decays && c.l2 != 0.0F)
    for (std::size_t i = 0; i < n; ++i) b.g[i] = b.g[i] + c.l2 * b.w[i];
  const float keep = state.decays ? c.keep : 1.0F;
  for (std::size_t i = 0; i < n; ++i) {
    const float g = b.g[i];
    b.m[i] = c.beta1 * b.m[i] + c.one_minus_beta1 * g;
    b.v[i] = c.beta2 * b.v[i] + c.one_minus_beta2 * (g * g);
    b.w[i] = b.w[i] * keep - c.step_size * (b.m[i] / (std::sqrt(b.v[i]) / c.root + c.eps));
  }
}

/// The largest magnitudes of the new values, where a state has one scale.
void AdamW::find_scales(std::span<const std::span<const float>> gradients, const Constants& c) {
  std::vector<std::array<float, 3>> largest(chunks_.size());
  const auto count = static_cast<std::int64_t>(chunks_.size());
#pragma omp parallel num_threads(threads())
  {
    const FloatEnvironment of_thread;
    Buffers b;
#pragma omp for schedule(static)
    for (std::int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const Chunk& chunk = chunks_[at];
      compute(chunk, c, gradients[chunk.parameter], b);
      largest[at] = {amax(std::span(b.w).first(chunk.count), true),
                     amax(std::span(b.m).first(chunk.count), true),
                     amax(std::span(b.v).first(chunk.count), true)};
    }
  }
  std::vector<std::array<float, 3>> of_parameter(states_.size());
  for (std::size_t i = 0; i < chunks_.size(); ++i)
    for (std::size_t k = 0; k < 3; ++k) {
      float& value = of_parameter[chunks_[i].parameter][k];
      value = std::max(value, largest[i][k]);
    }
  for (std::size_t i = 0; i < states_.size(); ++i) {
    states_[i].master.begin_store(of_parameter[i][0]);
    states_[i].m.begin_store(of_parameter[i][1]);
    states_[i].v.begin_store(of_parameter[i][2]);
  }
}

void AdamW::step(std::span<const std::span<const float>> gradients, double lr) {
  const FloatEnvironment environment;
  check(gradients, lr);
  given_gradient_bytes_ = 0;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    given_gradient_bytes_ += gradients[i].size_bytes();
    if (stores_gradients()) states_[i].gradient.assign(gradients[i], options_.threads);
  }
  advance();
  const Constants c = constants(lr);
  const auto scaled = [](const StateFormat& f) { return f.scaling == StateScaling::tensor; };
  if (scaled(options_.master) || scaled(options_.m) || scaled(options_.v))
    find_scales(gradients, c);
  const auto count = static_cast<std::int64_t>(chunks_.size());
#pragma omp parallel num_threads(threads())
  {
    const FloatEnvironment of_thread;
    Buffers b;
#pragma omp for schedule(static)
    for (std::int64_t i = 0; i < count; ++i) {
      const Chunk& chunk = chunks_[static_cast<std::size_t>(i)];
      State& state = states_[chunk.parameter];
      compute(chunk, c, gradients[chunk.parameter], b);
      state.master.store(chunk.begin, std::span(b.w).first(chunk.count));
      state.m.store(chunk.begin, std::span(b.m).first(chunk.count));
      state.v.store(chunk.begin, std::span(b.v).first(chunk.count));
    }
  }
  for (State& state : states_) {
    state.master.end_store();
    state.m.end_store();
    state.v.end_store();
  }
}

OptimizerMemory AdamW::memory() const {
  OptimizerMemory memory;
  for (const State& state : states_) {
    memory.parameters += state.m.size();
    memory.master += state.master.code_bytes();
    memory.gradient += state.gradient.code_bytes();
    memory.m += state.m.code_bytes();
    memory.v += state.v.code_bytes();
    for (const StateTensor* tensor : {&state.master, &state.gradient, &state.m, &state.v})
      memory.scales += tensor->scale_bytes();
  }
  if (!stores_gradients()) memory.gradient = given_gradient_bytes_;
  return memory;
}

std::vector<NamedTensor> AdamW::state() const {
  std::vector<NamedTensor> tensors;
  tensors.push_back(
      {kStepsName, view_of(ElementType::i64, {1}, std::span<const std::int64_t>(&steps_, 1))});
  for (const State& state : states_) {
    state.master.append_to(tensors, state.name + ".master", state.shape);
    state.m.append_to(tensors, state.name + ".m", state.shape);
    state.v.append_to(tensors, state.name + ".v", state.shape);
  }
  return tensors;
}

void AdamW::restore(std::span<const NamedTensor> tensors) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [](const NamedTensor& t) { return t.name == kStepsName; });
  require(found != tensors.end() && found->tensor.type == ElementType::i64 &&
              found->tensor.bytes.size() == sizeof steps_,
          kStepsName, "an i64 tensor of one element",
          found == tensors.end() ? "none" : std::string(to_string(found->tensor.type)));
  std::int64_t steps = 0;
  std::memcpy(&steps, found->tensor.bytes.data(), sizeof steps);
  constexpr std::int64_t kMostSteps = 1'000'000'000;  // each is taken again below
  require(steps >= 0 && steps <= kMostSteps, kStepsName, fmt::format("0 to {}", kMostSteps),
          fmt::format("{}", steps));
  for (State& state : states_) {
    state.master.restore(tensors, state.name + ".master", state.shape);
    state.m.restore(tensors, state.name + ".m", state.shape);
    state.v.restore(tensors, state.name + ".v", state.shape);
  }
  steps_ = 0;
  power1_ = 1.0;
  power2_ = 1.0;
  while (steps_ < steps) advance();
}

}  // namespace fp8lab
