#include "outlier/points.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "common/names.hpp"
#include "common/parallel.hpp"
#include "lab/experiment/parameter_struct.hpp"

namespace fp8lab::experiments::outlier_sweep {
namespace {

struct Settings {
  Setup setup;
  std::string bulk;
  LogAxis outliers;

  static constexpr auto fields() {
    return std::tuple{group(&Settings::setup, field("format", &Setup::format, find_format),
                            field("policies", &Setup::policies, find_cast_profile),
                            group(&Setup::tensor, field("elements", &OutlierTensor::elements),
                                  field("sigma", &OutlierTensor::sigma)),
                            field("repeats", &Setup::repeats), field("tiles", &Setup::tiles),
                            field("containment_elements", &Setup::containment_elements),
                            field("containment_outlier", &Setup::containment_outlier),
                            field("published_repeats", &Setup::published_repeats),
                            field("product_k", &Setup::product_k),
                            field("product_outputs", &Setup::product_outputs)),
                      field("bulk", &Settings::bulk),
                      group(&Settings::outliers, field("outlier_from", &LogAxis::from),
                            field("outlier_to", &LogAxis::to),
                            field("outliers_per_decade", &LogAxis::per_decade))};
  }
};

}  // namespace

Setup read_setup(const Parameters& parameters) {
  const auto p = read_parameters<Settings>(parameters);
  Setup s = p.setup;
  if (auto bulk = find_source("bulk", p.bulk))
    s.bulk = std::make_shared<const TensorSource>(std::move(*bulk));
  s.tensor.bulk = s.bulk.get();
  std::sort(s.product_k.begin(), s.product_k.end());
  s.outliers = log_steps("outlier", p.outliers);
  s.tiles.insert(s.tiles.begin(), 0);
  return s;
}

std::string sharing(std::size_t tile) {
  return tile == 0 ? "per tensor" : fmt::format("per tile of {}", tile);
}

std::string distribution_name(const Setup& s, const char* square) {
  if (s.bulk != nullptr)
    return fmt::format("{}, root mean square {:g}", s.bulk->name(), s.tensor.sigma);
  return fmt::format("N(0, {:g}{})", s.tensor.sigma, square);
}

std::string bulk_name(const Setup& s) {
  return fmt::format("{} {} {}", s.tensor.elements, s.bulk != nullptr ? "of" : "x",
                     distribution_name(s));
}

void measure(const RunContext& context, const Format& f, std::vector<Point>& points, double from,
             double to) {
  parallel_points(
      context, points.size(),
      [&](std::size_t i) {
        Point& p = points[i];
        // One stream for all: every tile, policy and outlier sees the same bulk.
        p.spread = repeat_damage(context.random("bulk"), p.tensor, p.repeats, p.tile, f,
                                 p.policy->policy, context.backend);
      },
      from, to);
}

std::vector<Point> magnitude_points(const Setup& s) {
  std::vector<Point> points;
  for (const std::size_t tile : s.tiles)
    for (const CastProfile* policy : s.policies)
      for (const double outlier : s.outliers) {
        OutlierTensor tensor = s.tensor;
        tensor.outlier = outlier;
        tensor.outlier_index = tensor.elements / 2;
        points.push_back({"", tensor, s.repeats, tile, policy, {}});
      }
  return points;
}

std::vector<Point> containment_points(const Setup& s) {
  std::vector<Point> points;
  for (const std::size_t elements : s.containment_elements)
    for (const CastProfile* policy : s.policies)
      for (const std::size_t tile : s.tiles) {
        if (tile > elements) continue;
        const OutlierTensor tensor{elements,     s.tensor.sigma, s.containment_outlier,
                                   elements / 2, false,          s.bulk.get()};
        points.push_back({"", tensor, s.repeats, tile, policy, {}});
      }
  return points;
}

std::vector<Point> published_points(const Setup& s) {
  const OutlierTensor small{128, 0.5, 250.0, 63, false};
  const OutlierTensor large{64 * 1024, 0.3, 200.0, 511, true};
  std::vector<Point> points;
  for (const CastProfile* policy : s.policies) {
    for (const std::size_t tile : {std::size_t{0}, std::size_t{16}})
      points.push_back(
          {"128 x N(0, 0.5^2), outlier 250", small, s.published_repeats, tile, policy, {}});
    for (const std::size_t tile : {std::size_t{0}, std::size_t{128}})
      points.push_back({"64 x 1024 x N(0, 0.3^2) in BF16, outlier 200",
                        large,
                        s.published_repeats,
                        tile,
                        policy,
                        {}});
  }
  return points;
}

}  // namespace fp8lab::experiments::outlier_sweep
