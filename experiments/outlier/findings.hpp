#pragma once
// What the outlier experiment's figures say, as sentences.

#include <string>
#include <vector>

#include "outlier/points.hpp"

namespace fp8lab::experiments::outlier_sweep {

std::vector<std::string> findings(const Setup& setup, const std::vector<Point>& sweep,
                                  const std::vector<Point>& containment,
                                  const std::vector<Point>& published);

/// One outlier against one scale, and what the smallest tile leaves of the damage; none where
/// there is no tile.
std::optional<Headline> headline(const Setup& setup, const std::vector<Point>& sweep);

}  // namespace fp8lab::experiments::outlier_sweep
