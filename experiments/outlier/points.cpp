#include "outlier/points.hpp"

#include <fmt/format.h>

#include <utility>

#include "common/names.hpp"
#include "common/parallel.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab::experiments::outlier_sweep {
namespace {

std::vector<std::size_t> positive_list(const Parameters& p, std::string_view key) {
  std::vector<std::size_t> list;
  for (const std::int64_t v : p.integers(key)) {
    require(v >= 1, key, "integers >= 1", fmt::format("{}", v));
    list.push_back(static_cast<std::size_t>(v));
  }
  return list;
}

}  // namespace

Setup read_setup(const Parameters& p) {
  Setup s;
  s.format = &find_format(p.text("format"));
  for (const std::string& name : p.texts("policies"))
    s.policies.push_back(&find_cast_profile(name));
  s.tensor.elements = positive(p, "elements");
  s.tensor.sigma = p.real("sigma");
  if (auto bulk = find_source("bulk", p.text("bulk")))
    s.bulk = std::make_shared<const TensorSource>(std::move(*bulk));
  s.tensor.bulk = s.bulk.get();
  s.repeats = positive(p, "repeats");
  require(p.real("outlier_from") <= p.real("outlier_to"), "outlier_to",
          fmt::format("at least outlier_from = {:g}", p.real("outlier_from")),
          fmt::format("{:g}", p.real("outlier_to")));
  s.outliers =
      log_steps(p.real("outlier_from"), p.real("outlier_to"), p.real("outliers_per_decade"));
  s.tiles = positive_list(p, "tiles");
  s.tiles.insert(s.tiles.begin(), 0);
  s.containment_elements = positive_list(p, "containment_elements");
  s.containment_outlier = p.real("containment_outlier");
  s.published_repeats = positive(p, "published_repeats");
  return s;
}

std::string sharing(std::size_t tile) {
  return tile == 0 ? "per tensor" : fmt::format("per tile of {}", tile);
}

std::string bulk_name(const Setup& s) {
  if (s.bulk != nullptr)
    return fmt::format("{} of {}, root mean square {:g}", s.tensor.elements, s.bulk->name(),
                       s.tensor.sigma);
  return fmt::format("{} x N(0, {:g}^2)", s.tensor.elements, s.tensor.sigma);
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
