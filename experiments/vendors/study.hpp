#pragma once
// The points of the vendors experiment: distributions, lengths and repeats.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lab/experiment/experiment.hpp"
#include "vendors/chips.hpp"

namespace fp8lab::experiments {

/// One distribution and K.
struct VendorsPoint {
  std::string distribution;
  std::size_t k = 0;
  std::vector<Measured> repeats;
};

struct VendorsStudy {
  std::vector<Chip> chips;
  std::vector<std::string> distributions;
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t repeats = 0;
  std::string scaling;
  std::vector<VendorsPoint> points;  ///< by distribution, then by K in the order that was given

  /// `figure` of a chip in all repeats of a point.
  template <typename Figure>
  [[nodiscard]] std::vector<double> of_chip(const VendorsPoint& point, std::size_t chip,
                                            Figure figure) const {
    std::vector<double> values;
    for (const Measured& repeat : point.repeats) values.push_back(figure(repeat.chips[chip]));
    return values;
  }
  /// `figure` of a pair of chips, in any order, in all repeats of a point.
  [[nodiscard]] std::vector<double> of_pair(const VendorsPoint& point, std::size_t first,
                                            std::size_t second,
                                            double ChipDifference::*figure) const;
  /// Where `Measured::differences` has a pair; first < second.
  [[nodiscard]] std::size_t pair_index(std::size_t first, std::size_t second) const;
  /// The point of a distribution with the largest K.
  [[nodiscard]] const VendorsPoint& longest(std::string_view distribution) const;
};

/// Runs every point on the threads of the run. Throws `Error` for a parameter that makes no sense.
VendorsStudy run_vendors_study(const RunContext& context);

}  // namespace fp8lab::experiments
