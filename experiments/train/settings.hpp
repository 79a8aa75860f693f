#pragma once
// What every experiment that trains reads from its parameters.

#include "fp8lab/experiment/parameters.hpp"
#include "fp8lab/plots/plot.hpp"
#include "train/study.hpp"

namespace fp8lab::experiments {

/// vocabulary, length, width, layers, heads, hidden, text, sequences, steps,
/// warmup, learning_rate, tail_share, follow_nats, diverge_nats. Throws `Error`.
StudySettings read_settings(const Parameters& p);

/// `N parameters, T tokens a step, S steps`: for titles.
std::string describe_setup(const StudySettings& settings, std::int64_t parameters);

/// Losses averaged over some 30 stretches, as a line of a plot.
Series loss_curve(const std::string& label, const std::vector<double>& losses);

}  // namespace fp8lab::experiments
