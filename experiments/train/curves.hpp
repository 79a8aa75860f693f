#pragma once
// Losses of several seeds as curves: means of stretches, and the band that the seeds span.

#include <string>
#include <vector>

#include "lab/plots/plot.hpp"

namespace fp8lab::experiments {

/// `runs`: losses by seed, of equal lengths. y is the mean over seeds of each stretch's mean, the
/// band from the least to the largest seed's; NaN once a run broke off. One seed has no band.
Series loss_band(const std::string& label, const std::vector<std::vector<double>>& runs);

/// The same of each seed's loss above that of its own reference, step by step.
Series gap_band(const std::string& label, const std::vector<std::vector<double>>& runs,
                const std::vector<std::vector<double>>& references);

}  // namespace fp8lab::experiments
