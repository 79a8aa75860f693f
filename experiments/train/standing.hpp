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

/// Paired gaps of seeds against the band of three standard deviations of the reference over its
/// seeds.
struct Judgement {
  double mean = 0.0;        ///< of the gaps; NaN where a run broke off
  double half_width = 0.0;  ///< of the interval that holds their true mean with 99 % (Student's t)
  double band = 0.0;        ///< three standard deviations of the reference's tails over seeds
  Standing standing = Standing::cannot_tell;
};

/// leaves: the whole interval lies above the band, or a run broke off. follows: the whole
/// interval lies below it. `tails` and `references`: tail losses, seed by seed; at least two
/// (fewer: cannot_tell).
Judgement judge_seeds(std::span<const double> tails, std::span<const double> references);

/// `+0.312 ± 0.051 nats (leaves; band 0.06)`.
std::string text_of(const Judgement& judgement);

}  // namespace fp8lab::experiments
