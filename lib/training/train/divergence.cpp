#include "training/train/divergence.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "fp8lab/core/error.hpp"

namespace fp8lab::train {

DivergenceWatch::DivergenceWatch(const DivergenceOptions& options)
    : options_(options), lowest_(options.uniform_loss) {
  require(options.window >= 1, "window", "at least 1", fmt::format("{}", options.window));
  require(options.rise > 0.0, "rise", "a number above 0", fmt::format("{:g}", options.rise));
  require(!std::isnan(options.uniform_loss), "uniform_loss", "a number",
          fmt::format("{:g}", options.uniform_loss));
}

void DivergenceWatch::observe(double loss) {
  if (!std::isfinite(loss)) {
    rise_ = std::numeric_limits<double>::infinity();
    return;
  }
  const auto window = static_cast<std::size_t>(options_.window);
  last_.push_back(loss);
  if (last_.size() > window) last_.pop_front();
  const double mean =
      std::accumulate(last_.begin(), last_.end(), 0.0) / static_cast<double>(last_.size());
  if (last_.size() == window) lowest_ = std::min(lowest_, mean);
  rise_ = mean - lowest_;
}

}  // namespace fp8lab::train
