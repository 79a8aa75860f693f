#pragma once
// Decides from the losses of a run whether it has diverged.

#include <cstdint>
#include <deque>

namespace fp8lab::train {

struct DivergenceOptions {
  std::int64_t window = 10;     ///< steps of a mean
  double rise = 1.0;            ///< limit in nats above the lowest mean or the uniform loss
  double uniform_loss = 1e300;  ///< ln(vocabulary): the loss of a uniform guess
};

/// Takes the losses of a run one by one. It compares the mean of the last `window` losses
/// (of all losses, if there are fewer) with the smaller of the uniform loss and the
/// lowest mean of a full window so far.
class DivergenceWatch {
 public:
  /// Throws `Error` for a window below 1, a rise that is not above 0, or a uniform loss of NaN.
  explicit DivergenceWatch(const DivergenceOptions& options);

  void observe(double loss);

  /// The mean minus that reference, in nats; at most 0 if the run is at its best. Inf after a loss
  /// that is not finite.
  [[nodiscard]] double rise() const { return rise_; }
  /// Whether `rise` exceeds the limit now. A run that has recovered has not diverged.
  [[nodiscard]] bool diverged() const { return rise_ > options_.rise; }

 private:
  DivergenceOptions options_;
  std::deque<double> last_;
  double lowest_;
  double rise_ = 0.0;
};

}  // namespace fp8lab::train
