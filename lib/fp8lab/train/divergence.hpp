#pragma once
// When a run counts as diverged, by its losses alone.

#include <cstdint>
#include <deque>

namespace fp8lab::train {

struct DivergenceOptions {
  std::int64_t window = 10;  ///< steps of a mean
  double rise = 1.0;         ///< nats above the lowest mean, or a uniform guess, that are too many
  double uniform_loss = 1e300;  ///< ln(vocabulary): what a model that knows nothing has
};

/// Takes the losses of a run one by one. The mean of the last `window` losses, or of all while
/// there are fewer, is compared with the smaller of the uniform guess and the lowest
/// mean of a full window so far.
class DivergenceWatch {
 public:
  /// Throws `Error` for a window below 1, a rise that is not above 0, or a uniform loss of NaN.
  explicit DivergenceWatch(const DivergenceOptions& options);

  void observe(double loss);

  /// How far the mean stands above that; at most 0 for a run that is at its best. Inf after a loss
  /// that is not finite.
  [[nodiscard]] double rise() const { return rise_; }
  /// Whether it is above the limit now. A run that came back has not diverged.
  [[nodiscard]] bool diverged() const { return rise_ > options_.rise; }

 private:
  DivergenceOptions options_;
  std::deque<double> last_;
  double lowest_;
  double rise_ = 0.0;
};

}  // namespace fp8lab::train
