#pragma once
// The sweeps behind the outlier experiment: what is measured, and where.

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "lab/experiment/experiment.hpp"
#include "outlier/outlier.hpp"

namespace fp8lab::experiments::outlier_sweep {

struct Setup {
  const Format* format = nullptr;
  std::vector<const CastProfile*> policies;
  std::shared_ptr<const TensorSource> bulk;  ///< null: normal; `tensor` points to it
  OutlierTensor tensor;
  std::size_t repeats = 0;
  std::vector<double> outliers;
  std::vector<std::size_t> tiles;  ///< 0, the whole tensor, comes first
  std::vector<std::size_t> containment_elements;
  double containment_outlier = 0.0;
  std::size_t published_repeats = 0;
  std::vector<std::size_t> product_k;  ///< lengths of dot products, rising; may be empty
  std::size_t product_outputs = 0;
};

/// Throws `Error` that names the parameter.
Setup read_setup(const Parameters& parameters);

/// "per tensor" for 0, else "per tile of 128".
std::string sharing(std::size_t tile);
/// "N(0, 0.4^2)", or the name of another bulk; `square` is how a square is written.
std::string distribution_name(const Setup& setup, const char* square = "^2");
/// "16384 x N(0, 0.4^2)".
std::string bulk_name(const Setup& setup);

/// One cell of a sweep: a tensor, a tile, a policy, and what came of it.
struct Point {
  std::string setup;  ///< for the published examples
  OutlierTensor tensor;
  std::size_t repeats = 0;
  std::size_t tile = 0;
  const CastProfile* policy = nullptr;
  OutlierSpread spread;
};

/// Every outlier under every tile and policy.
std::vector<Point> magnitude_points(const Setup& setup);
/// One outlier in tensors of several sizes.
std::vector<Point> containment_points(const Setup& setup);
/// Two published examples: per tensor, then per tile.
std::vector<Point> published_points(const Setup& setup);

/// Fills in `spread`; `from` and `to` are what it takes of the run's progress.
void measure(const RunContext& context, const Format& f, std::vector<Point>& points, double from,
             double to);

}  // namespace fp8lab::experiments::outlier_sweep
