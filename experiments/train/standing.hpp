#pragma once
// Whether runs of several seeds leave a reference: a criterion that knows its noise.

#include <span>
#include <string>
#include <string_view>

namespace fp8lab::experiments {

enum class Standing {
  follows,      ///< the gap is within the noise
  leaves,       ///< it is beyond it
  cannot_tell,  ///< these seeds and this size do not say
};
std::string_view to_string(Standing standing);

/// Paired gaps of seeds against the noise of a change that does not matter: the gaps of a control,
/// on the same weights and batches. The references' own spread over seeds is no measure of it: each
/// seed has a language of its own.
struct Judgement {
  double mean = 0.0;        ///< of the gaps; NaN where a run broke off
  double half_width = 0.0;  ///< of the interval that holds their true mean with 99 % (Student's t)
  double band = 0.0;        ///< three standard deviations of the control's gaps over seeds
  Standing standing = Standing::cannot_tell;
};

/// leaves: the whole interval lies above the band, or a run broke off. follows: the whole
/// interval lies below it. All three: tail losses, seed by seed; at least two (fewer:
/// cannot_tell).
Judgement judge_seeds(std::span<const double> tails, std::span<const double> references,
                      std::span<const double> controls);

/// `+0.312 ± 0.051 nats (leaves; band 0.06)`.
std::string text_of(const Judgement& judgement);

}  // namespace fp8lab::experiments
