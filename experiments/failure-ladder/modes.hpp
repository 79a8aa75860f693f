#pragma once
// The four failure modes of naive FP8 training, each alone, and each with its mitigation.

#include <string>
#include <vector>

#include "lab/experiment/parameter_struct.hpp"
#include "train/variants.hpp"

namespace fp8lab::experiments {

/// One rung: a failure at one severity, and the same run with the one thing changed that is to
/// mend it.
struct Rung {
  std::string mode;
  std::string what;        ///< what `value` is
  std::string mitigation;  ///< what is changed
  double value = 0.0;
  Variant failing;
  Variant mended;
  train::OutlierChannels outliers;
};

/// One rung. Throws `Error` for a mode that is none of
///   range        forward per-tensor scales; E5M2 gradients under one constant, without a scale;
///                mended by a current scale of gradients
///   outliers     one current scale a tensor, channels scaled up; mended by tiles of 32 (MXFP8)
///   formats      the same as range but E4M3 gradients; mended by E5M2 under the same constant
///   accumulator  current scales, every sum cut to that many fraction bits, never promoted; mended
///                by promotion every 32 terms
Rung make_rung(const std::string& mode, double value, std::int64_t outlier_channels);

/// Which rungs: the modes, and the values of each.
struct RungSettings {
  std::vector<std::string> modes;
  std::vector<double> range_log2;
  std::vector<double> outliers_log2;
  std::vector<double> formats_log2;
  std::vector<double> accumulator_bits;
  std::int64_t outlier_channels = 0;

  static constexpr auto fields() {
    return std::tuple{field("modes", &RungSettings::modes),
                      field("range_log2", &RungSettings::range_log2),
                      field("outliers_log2", &RungSettings::outliers_log2),
                      field("formats_log2", &RungSettings::formats_log2),
                      field("accumulator_bits", &RungSettings::accumulator_bits),
                      field("outlier_channels", &RungSettings::outlier_channels)};
  }
};

/// The rungs of the modes, in their order. Throws `Error` for a mode that is none.
std::vector<Rung> find_rungs(const RungSettings& settings);

}  // namespace fp8lab::experiments
