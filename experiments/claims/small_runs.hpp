#pragma once
// What the claims about training share: a small model, and figures for people.

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <string_view>

#include "claims/claim.hpp"
#include "common/parallel.hpp"
#include "train/study.hpp"

namespace fp8lab::experiments {

/// A transformer of 53 440 parameters, 64 tokens a step, that learns within `steps`.
inline StudySettings small_study(const ClaimContext& context, std::int64_t steps) {
  StudySettings s;
  s.backend = context.backend;
  s.shape = {.vocabulary = 128, .length = 32, .width = 64, .layers = 1, .heads = 2, .hidden = 96};
  s.sequences = 2;
  s.schedule = {.peak = 3e-3, .warmup = steps / 10, .steps = steps};
  return s;
}

/// Calls run(i) for i below `count` on the claim's threads.
template <typename Run>
void run_all(const ClaimContext& context, std::size_t count, Run run) {
  RunContext points;
  points.threads = context.threads;
  parallel_points(points, count, run);
}

/// A gap for people: of a run that broke off there is none.
inline std::string gap_text(double gap) {
  return std::isfinite(gap) ? fmt::format("{:+.3f}", gap) : std::string("broke off");
}

inline void add_gap(Measurement& m, const std::string& name, double gap) {
  if (std::isfinite(gap)) m.values.push_back({name, "nats", gap});
}

}  // namespace fp8lab::experiments
