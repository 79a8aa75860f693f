#include "outlier/findings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "common/names.hpp"

namespace fp8lab::experiments::outlier_sweep {
namespace {

/// Of an error, which may be above 100 %.
std::string percent(const Spread& s) { return interval_text(s.interval(), 100.0) + " %"; }

/// Of a share of the other elements.
std::string share(const Setup& s, const Spread& spread) {
  return share_text(spread.interval(), 100.0, share_resolution(s.tensor.elements));
}

std::string setup_of(const Setup& s) {
  return fmt::format("({}, {}; {}; draws: {})", short_name(*s.format), bulk_name(s),
                     kIntervalMeaning, s.repeats);
}

const OutlierSpread& spread_at(const std::vector<Point>& sweep, double outlier, std::size_t tile,
                               const CastProfile* policy) {
  return std::find_if(sweep.begin(), sweep.end(),
                      [&](const Point& p) {
                        return p.tensor.outlier == outlier && p.tile == tile && p.policy == policy;
                      })
      ->spread;
}

/// Of the sweep's outliers the one nearest to `containment_outlier`.
double nearest_outlier(const Setup& s) {
  const auto distance = [&](double outlier) {
    return std::abs(std::log(outlier / s.containment_outlier));
  };
  return *std::min_element(s.outliers.begin(), s.outliers.end(),
                           [&](double a, double b) { return distance(a) < distance(b); });
}

/// What fails, by how much, and what the smallest tile leaves of it; and what hides it.
std::string damage_finding(const Setup& s, const std::vector<Point>& sweep) {
  const double outlier = nearest_outlier(s);
  const CastProfile* policy = s.policies.front();
  const OutlierSpread& whole = spread_at(sweep, outlier, 0, policy);
  std::string text = fmt::format(
      "One outlier of {:g} with one scale per tensor: the other elements have {} relative L2 "
      "error, "
      "and {} of them become zero. The error of the whole tensor is {}",
      outlier, percent(whole.bulk_relative_l2), share(s, whole.crushed_share),
      percent(whole.whole_relative_l2));
  if (s.tiles.size() > 1) {
    const std::size_t tile = *std::min_element(s.tiles.begin() + 1, s.tiles.end());
    const OutlierSpread& tiled = spread_at(sweep, outlier, tile, policy);
    text += fmt::format(". One scale {} leaves {} and {}", sharing(tile),
                        percent(tiled.bulk_relative_l2), share(s, tiled.crushed_share));
  }
  return text + " " + setup_of(s) + ".";
}

/// The sweep's means at the first, the middle and the last whole decade from 100 up.
std::string sweep_finding(const Setup& s, const std::vector<Point>& sweep, std::size_t tile,
                          const CastProfile* policy) {
  std::vector<const Point*> decades;
  for (const Point& p : sweep) {
    const double decade = std::log10(p.tensor.outlier);
    const bool whole = std::abs(decade - std::round(decade)) < 1e-9;
    if (p.tile == tile && p.policy == policy && whole && decade >= 2.0) decades.push_back(&p);
  }
  std::set<std::size_t> shown;
  if (!decades.empty()) shown = {0, decades.size() / 2, decades.size() - 1};
  std::string figures;
  for (const std::size_t i : shown)
    figures += fmt::format("{} {} at {:g} ({} zero)", figures.empty() ? "" : ",",
                           percent(decades[i]->spread.bulk_relative_l2), decades[i]->tensor.outlier,
                           share(s, decades[i]->spread.crushed_share));
  return fmt::format("Relative L2 error of all elements but the outlier {}, subnormals {}:{} {}.",
                     sharing(tile), subnormal_name(policy->policy), figures, setup_of(s));
}

std::string containment_finding(const Setup& s, const std::vector<Point>& points) {
  std::string figures;
  for (const std::size_t tile : s.tiles) {
    std::string damaged;
    for (const Point& p : points)
      if (p.policy == s.policies.front() && p.tile == tile)
        damaged += fmt::format("{}{}", damaged.empty() ? "" : ", ",
                               interval_text(p.spread.damaged.interval()));
    if (damaged.empty()) continue;  // the tile is larger than every tensor
    figures += fmt::format("{} {} {}", figures.empty() ? "" : ";", damaged, sharing(tile));
  }
  return fmt::format(
      "Elements whose error one outlier of {:g} raises above {}'s bound, in tensors of {}:{} "
      "({}; {}; draws: {}).",
      s.containment_outlier, short_name(*s.format), fmt::join(s.containment_elements, ", "),
      figures, distribution_name(s), kIntervalMeaning, s.repeats);
}

/// Per tensor against per tile for one published example and policy.
std::string published_finding(const Setup& s, const Point& tensor, const Point& tiled) {
  return fmt::format(
      "{}, subnormals {}: whole-tensor error {} per tensor, {} {} (ratio {:.3g}); of the others "
      "{} and {} ({}; {}; draws: {}).",
      tensor.setup, subnormal_name(tensor.policy->policy), percent(tensor.spread.whole_relative_l2),
      percent(tiled.spread.whole_relative_l2), sharing(tiled.tile),
      tensor.spread.whole_relative_l2.mean / tiled.spread.whole_relative_l2.mean,
      percent(tensor.spread.bulk_relative_l2), percent(tiled.spread.bulk_relative_l2),
      short_name(*s.format), kIntervalMeaning, tensor.repeats);
}

}  // namespace

std::vector<std::string> findings(const Setup& s, const std::vector<Point>& sweep,
                                  const std::vector<Point>& containment,
                                  const std::vector<Point>& published) {
  std::vector<std::string> findings{damage_finding(s, sweep)};
  for (const CastProfile* policy : s.policies)
    findings.push_back(sweep_finding(s, sweep, 0, policy));
  if (s.tiles.size() > 1)
    findings.push_back(sweep_finding(s, sweep, s.tiles.back(), s.policies.front()));
  findings.push_back(containment_finding(s, containment));
  // Published points come in pairs, per tensor before per tile.
  for (std::size_t i = 0; i + 1 < published.size(); i += 2)
    findings.push_back(published_finding(s, published[i], published[i + 1]));
  return findings;
}

std::optional<Headline> headline(const Setup& s, const std::vector<Point>& sweep) {
  if (s.tiles.size() < 2) return std::nullopt;
  constexpr std::size_t kUsualTile = 128;  // DeepSeek-V3's
  const bool usual = std::ranges::find(s.tiles, kUsualTile) != s.tiles.end();
  const std::size_t tile = usual ? kUsualTile : s.tiles[1];
  const double outlier = nearest_outlier(s);
  const CastProfile* policy = s.policies.front();
  const std::string whole = range_text(spread_at(sweep, outlier, 0, policy).crushed_share);
  const std::string tiled = range_text(spread_at(sweep, outlier, tile, policy).crushed_share);
  return Headline{.title = "One outlier takes the range of all others",
                  .sentence = fmt::format(
                      "One element of {:g} among {} of {} turns {} of the others into "
                      "zero if the {} tensor has one scale, and {} if there is one scale {}.",
                      outlier, s.tensor.elements, distribution_name(s, "²"), whole,
                      short_name(*s.format), tiled, sharing(tile)),
                  .plot = "crushed_share_against_outlier",
                  .advice =
                      "Give every tile of a row its own scale, and monitor the error of the small "
                      "elements: the error of the whole tensor hides the damage.",
                  .measure = "elements that become zero",
                  .failing = whole,
                  .mitigation = fmt::format("one scale {}", sharing(tile)),
                  .mitigated = tiled,
                  .curves = {{sharing(0), fmt::format("one scale {}", sharing(0))},
                             {sharing(tile), fmt::format("one scale {}", sharing(tile))}}};
}

}  // namespace fp8lab::experiments::outlier_sweep
