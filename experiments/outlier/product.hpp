#pragma once
// What one outlier in a row of A does to an output of a product: to the part of it that all other
// elements contribute, on a unit that keeps few bits of its sum.

#include <cstddef>
#include <string>
#include <vector>

#include "common/spread.hpp"
#include "outlier/points.hpp"

namespace fp8lab::experiments::outlier_sweep {

/// A way to compute the product in E4M3 on Hopper's unit.
struct ProductScheme {
  std::string name;
  std::size_t tile = 0;                 ///< elements of A that share a scale; 0: the whole row
  std::int64_t promotion_interval = 0;  ///< terms; 0: one accumulator for all of K
};

/// One scale per tensor without promotion, and one per tile of 128 with promotion every 128.
const std::vector<ProductScheme>& product_schemes();

struct ProductPoint {
  std::size_t k = 0;
  double outlier = 0.0;
  const ProductScheme* scheme = nullptr;
  Spread error;
  std::vector<double> draws;
};

/// The relative L2 error of what all elements but the outlier contribute to `outputs` outputs:
/// a [1, k] of N(0, sigma^2) with the outlier in the middle, b [outputs, k] of N(0, 1), both cast
/// to E4M3 (b with one scale per tensor). From each output the exact product of the outlier's codes
/// is taken away; what is left is compared with the exact sum of the other elements before the
/// casts.
double product_error(const RandomStream& random, double sigma, double outlier, std::size_t k,
                     std::size_t outputs, const ProductScheme& scheme, const Backend& backend = {});

/// The whole decades of the sweep's outliers, at each K, under each scheme, over all repeats. None
/// if `product_k` is empty.
std::vector<ProductPoint> product_points(const RunContext& context, const Setup& setup);

Table product_table(const Setup& setup, const std::vector<ProductPoint>& points);
/// Every draw.
Table product_draws(const std::vector<ProductPoint>& points);
Plot product_plot(const Setup& setup, const std::vector<ProductPoint>& points);
/// What the unit adds to the damage, at the longest K.
std::string product_finding(const Setup& setup, const std::vector<ProductPoint>& points);

}  // namespace fp8lab::experiments::outlier_sweep
