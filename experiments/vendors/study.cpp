#include "vendors/study.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "common/parallel.hpp"
#include "common/tensors.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/names.hpp"
#include "lab/experiment/parameter_struct.hpp"

namespace fp8lab::experiments {
namespace {

struct Settings {
  std::vector<std::string> chips;
  std::vector<std::string> promoted_chips;
  std::int64_t promotion_interval = 0;
  bool align_fnuz = false;
  std::vector<std::string> distributions;
  double decades = 0.0;
  std::int64_t outlier_channels = 0;
  double outlier_magnitude = 0.0;
  std::string operands;
  std::string scaling;
  std::vector<std::int64_t> k;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t repeats = 0;

  static constexpr auto fields() {
    return std::tuple{field("chips", &Settings::chips),
                      field("promoted_chips", &Settings::promoted_chips),
                      field("promotion_interval", &Settings::promotion_interval),
                      field("align_fnuz", &Settings::align_fnuz),
                      field("distributions", &Settings::distributions),
                      field("decades", &Settings::decades),
                      field("outlier_channels", &Settings::outlier_channels),
                      field("outlier_magnitude", &Settings::outlier_magnitude),
                      field("operands", &Settings::operands),
                      field("scaling", &Settings::scaling),
                      field("k", &Settings::k),
                      field("rows", &Settings::rows),
                      field("columns", &Settings::columns),
                      field("repeats", &Settings::repeats)};
  }
};

constexpr std::array<std::string_view, 4> kDistributions{"uniform", "normal", "log_normal",
                                                         "outliers"};
constexpr std::array<std::string_view, 2> kOperands{"bf16", "f32"};
constexpr std::array<std::string_view, 2> kScalings{"tensor", "row"};

std::vector<Chip> chips_of(const Settings& s) {
  std::vector<Chip> chips;
  for (const std::string& name : s.chips) {
    chips.push_back(make_chip(name, 0));
    if (s.align_fnuz && reads_fnuz(chips.back())) chips.push_back(aligned_with_ocp(chips.back()));
  }
  for (const std::string& name : s.promoted_chips)
    chips.push_back(make_chip(name, s.promotion_interval));
  return chips;
}

std::vector<float> draw(const Settings& s, std::string_view distribution,
                        const RandomStream& random, std::size_t rows, std::size_t k, bool is_a) {
  if (distribution == "uniform") return uniform(random, rows * k, 0.0, 1.0);
  if (distribution == "log_normal") return log_normal(random, rows * k, s.decades);
  if (distribution == "outliers" && is_a)
    return outlier_channels(random,
                            {.rows = rows,
                             .channels = k,
                             .outlier_channels = static_cast<std::size_t>(s.outlier_channels),
                             .magnitude = s.outlier_magnitude});
  return normal(random, rows * k, 1.0);
}

void round_to_bf16(std::vector<float>& x) {
  for (float& value : x)
    value = static_cast<float>(round_trip(format(FormatId::bf16), kNvidiaNosat, value));
}

/// A draw of its own for every distribution, K and repeat.
Tensors make_tensors(const Settings& s, const VendorsPoint& point, std::uint64_t seed) {
  Tensors t{static_cast<std::size_t>(s.rows), static_cast<std::size_t>(s.columns), point.k, {}, {}};
  const std::string stream = fmt::format("vendors/{}/{}/", point.distribution, point.k);
  t.a = draw(s, point.distribution, {seed, stream + "a"}, t.m, t.k, true);
  t.b = draw(s, point.distribution, {seed, stream + "b"}, t.n, t.k, false);
  if (s.operands != "bf16") return t;
  round_to_bf16(t.a);
  round_to_bf16(t.b);
  return t;
}

}  // namespace

std::size_t VendorsStudy::pair_index(std::size_t first, std::size_t second) const {
  return first * (2 * chips.size() - first - 1) / 2 + (second - first - 1);
}

std::vector<double> VendorsStudy::of_pair(const VendorsPoint& point, std::size_t first,
                                          std::size_t second,
                                          double ChipDifference::*figure) const {
  const std::size_t pair = pair_index(std::min(first, second), std::max(first, second));
  std::vector<double> values;
  for (const Measured& repeat : point.repeats) values.push_back(repeat.differences[pair].*figure);
  return values;
}

const VendorsPoint& VendorsStudy::longest(std::string_view distribution) const {
  const VendorsPoint* best = nullptr;
  for (const VendorsPoint& point : points)
    if (point.distribution == distribution && (best == nullptr || point.k > best->k)) best = &point;
  return *best;
}

VendorsStudy run_vendors_study(const RunContext& context) {
  const auto s = read_parameters<Settings>(context.parameters);
  find_name(kOperands, "operands", s.operands);
  VendorsStudy study{.chips = chips_of(s),
                     .distributions = s.distributions,
                     .rows = static_cast<std::size_t>(s.rows),
                     .columns = static_cast<std::size_t>(s.columns),
                     .repeats = static_cast<std::size_t>(s.repeats),
                     .scaling = s.scaling,
                     .points = {}};
  const ScaleBlock block = kScalings[find_name(kScalings, "scaling", s.scaling)] == "row"
                               ? ScaleBlock{1, 0}
                               : kPerTensor;
  for (const std::string& name : s.distributions) {
    find_name(kDistributions, "distributions", name);
    for (const std::int64_t k : s.k)
      study.points.push_back(
          {name, static_cast<std::size_t>(k), std::vector<Measured>(study.repeats)});
  }
  const RandomStream seeds = context.random("vendors/repeats");
  parallel_points(context, study.points.size() * study.repeats, [&](std::size_t i) {
    VendorsPoint& point = study.points[i / study.repeats];
    const std::size_t repeat = i % study.repeats;
    const Tensors tensors = make_tensors(s, point, seeds.bits64(repeat));
    point.repeats[repeat] = measure_chips(tensors, study.chips, block, context.backend);
  });
  return study;
}

}  // namespace fp8lab::experiments
