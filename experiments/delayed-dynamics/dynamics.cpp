#include "delayed-dynamics/dynamics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/scaling/scale_rule.hpp"

namespace fp8lab::experiments {
namespace {

/// log2 of the trace without its noise.
double trend(const std::string& name, const TraceShape& shape, std::int64_t step) {
  const double jump = std::log2(shape.jump);
  const std::int64_t half = shape.steps / 2;
  if (name == "steady") return 0.0;
  if (name == "drift")
    return shape.drift_octaves * static_cast<double>(step) / static_cast<double>(shape.steps);
  if (name == "step") return step >= half ? jump : 0.0;
  if (name == "drop") return step >= half ? -jump : 0.0;
  if (name == "spike") return step == half ? jump : 0.0;
  if (name == "sawtooth")
    return jump * static_cast<double>(step % shape.period) / static_cast<double>(shape.period);
  throw Error("traces", "steady, drift, step, drop, spike or sawtooth", "'" + name + "'");
}

}  // namespace

std::vector<float> make_trace(const RandomStream& random, const std::string& name,
                              const TraceShape& shape) {
  require(shape.steps >= 2, "steps", "at least 2", fmt::format("{}", shape.steps));
  require(shape.period >= 1, "period", "at least 1", fmt::format("{}", shape.period));
  require(shape.jump > 0.0, "jump", "a positive number", fmt::format("{}", shape.jump));
  std::vector<float> trace;
  for (std::int64_t step = 0; step < shape.steps; ++step) {
    const double noise = shape.noise_octaves * random.normal(static_cast<std::uint64_t>(step));
    trace.push_back(static_cast<float>(std::exp2(trend(name, shape, step) + noise)));
  }
  return trace;
}

std::string Contender::name() const {
  if (current) return "current";
  std::string text = delayed.algorithm == AmaxAlgorithm::max
                         ? fmt::format("max of {}", delayed.history)
                         : "most recent";
  return delayed.margin == 0.0 ? text : text + fmt::format(", margin {:g}", delayed.margin);
}

std::vector<StepLoss> run_trace(const Contender& contender, const Format& f,
                                const std::vector<float>& trace, const std::vector<float>& shape,
                                const Backend& backend) {
  DelayedScaling delayed(f.id, contender.delayed);
  std::vector<StepLoss> losses;
  std::vector<float> scaled(shape.size());
  const double percent = 100.0 / static_cast<double>(shape.size());
  for (const float amax : trace) {
    const float scale =
        contender.current ? tile_scale({.format = f.id}, amax).scale : delayed.scale();
    StepLoss loss{.scale = static_cast<double>(scale)};
    std::transform(shape.begin(), shape.end(), scaled.begin(),
                   [&](float value) { return value * amax * scale; });
    const std::vector<CastResult> results = cast_all(backend, f, kNvidiaSatfinite, scaled);
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (results[i].overflowed) loss.overflow_percent += percent;
      if (shape[i] != 0.0F && amax != 0.0F && (results[i].code & f.magnitude_mask()) == 0)
        loss.underflow_percent += percent;
    }
    loss.wasted_octaves = std::log2(f.max_finite() / (static_cast<double>(amax) * loss.scale));
    // The scale is a binary32 number: room within its rounding is none.
    if (std::abs(loss.wasted_octaves) < 0x1p-21) loss.wasted_octaves = 0.0;
    losses.push_back(loss);
    delayed.record(amax);
    delayed.update();
  }
  return losses;
}

}  // namespace fp8lab::experiments
