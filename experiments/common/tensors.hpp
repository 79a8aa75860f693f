#pragma once
// Seeded tensors that look like the ones FP8 training meets. Element i of a
// tensor is a function of the stream and i alone, never of order or threads.

#include <cstddef>
#include <vector>

#include "fp8lab/core/random.hpp"

namespace fp8lab::experiments {

/// Uniform on [low, high).
std::vector<float> uniform(const RandomStream& random, std::size_t count, double low, double high);

/// N(0, sigma^2).
std::vector<float> normal(const RandomStream& random, std::size_t count, double sigma);

/// sigma times Student's t with `degrees_of_freedom` (heavy tails; variance
/// sigma^2 nu / (nu - 2) for nu > 2).
std::vector<float> student_t(const RandomStream& random, std::size_t count, int degrees_of_freedom,
                             double sigma);

/// Random signs, magnitudes uniform in log10 on (10^-decades, 1]: exactly as
/// many elements in one decade as in any other.
std::vector<float> log_uniform(const RandomStream& random, std::size_t count, double decades);

/// Random signs, log10 of the magnitudes N(0, (decades / 6)^2): `decades` are
/// spanned by the middle 99.73 % (+-3 sigma), more by the whole tensor.
std::vector<float> log_normal(const RandomStream& random, std::size_t count, double decades);

/// A log-normal [rows, columns] tensor of `decades` in which `row_share` (0 to
/// 1) of the variance of log10 is common to a row: tokens whose gradients are
/// large or small as a whole. 0 gives independent elements, 1 rows of equal magnitude.
std::vector<float> log_normal_rows(const RandomStream& random, std::size_t rows,
                                   std::size_t columns, double decades, double row_share);

/// Hidden states with outlier features as LLM.int8() (Dettmers et al. 2022,
/// arXiv 2208.07339) describes them: few channels, the same in every row,
/// one-sided, present in most rows.
struct OutlierChannels {
  std::size_t rows = 0;
  std::size_t channels = 0;
  double sigma = 1.0;                ///< standard deviation of the ordinary elements
  std::size_t outlier_channels = 6;  ///< how many channels, at evenly spread random places
  double magnitude = 60.0;           ///< mean magnitude in such a channel
  double spread = 0.2;               ///< standard deviation there, relative to the magnitude
  double presence = 0.75;            ///< probability that a row has its outlier in a channel
};

/// Row-major [rows, channels]. Throws `Error` for more outlier channels than channels.
std::vector<float> outlier_channels(const RandomStream& random, const OutlierChannels& shape);

/// Multiplies so that the largest magnitude is exactly 1 (in FP64, one rounding
/// an element); a tensor of zeros stays as it is.
void normalize_amax(std::vector<float>& x);

/// A row-major [rows, columns] tensor as [columns, rows].
std::vector<float> transposed(const std::vector<float>& x, std::size_t rows, std::size_t columns);

}  // namespace fp8lab::experiments
