#pragma once
// Whether runs of several seeds leave a reference: a criterion that knows its noise.

#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fp8lab::experiments {

enum class Standing {
  follows,      ///< every seed's gap is within the noise, above and below
  leaves,       ///< every seed's gap is beyond it, or it diverged
  cannot_tell,  ///< seeds disagree, or there is only one
  lower,        ///< every seed's gap is beyond it, below: another run than the reference, not worse
};
std::string_view to_string(Standing standing);

/// What a column of standings may hold.
inline constexpr const char* kStandings = "follows, leaves, ends lower, or cannot tell";
/// What a band is, for findings and columns.
inline constexpr std::string_view kBandMeaning =
    "band: the interval that holds 99 % of the gaps of FP32 products, which are noise (Student's "
    "t); at least three standard deviations and at least follow_nats. leaves, follows or ends "
    "lower: every seed above it, within, or below";

/// Paired gaps of seeds against the noise of a change that does not matter: the gaps of a control,
/// on the same weights and batches. The references' own spread over seeds is no measure of it: each
/// seed has a language of its own.
struct Judgement {
  std::size_t seeds = 0;
  std::size_t diverged = 0;  ///< seeds that did, or broke off: no figure below includes their gaps
  double mean = 0.0;         ///< of the gaps; NaN where every seed diverged, as are the next two
  double min = 0.0;
  double max = 0.0;
  /// Of the interval that holds 99 % of the gaps of single seeds; NaN for fewer than two.
  double half_width = std::numeric_limits<double>::quiet_NaN();
  double band = 0.0;  ///< a gap above this is more than noise, and than `least`
  Standing standing = Standing::cannot_tell;
};

/// `tails`, `references`, `controls`: tail losses, seed by seed, of as many seeds. Of one
/// seed nothing can be told. `least`, nats: a gap up to this is none. `diverged`, of as many seeds
/// or of none: runs that diverged, which are beyond the band as a run is that broke off (NaN). A
/// reference or control that broke off gives a band of NaN, and cannot_tell.
Judgement judge_seeds(std::span<const double> tails, std::span<const double> references,
                      std::span<const double> controls, double least,
                      const std::vector<bool>& diverged = {});

/// `+0.312 ± 0.15 nats (leaves; band 0.02)`, of the seeds that did not diverge, after the count of
/// those that did: `diverged in 1 of 5 seeds, the others ...`.
std::string text_of(const Judgement& judgement);

}  // namespace fp8lab::experiments
