#include "accumulator-drift/sweep.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fp8lab/core/error.hpp"

namespace fp8lab::experiments {
namespace {

bool holds(const std::vector<std::int64_t>& values, std::int64_t value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

const AccumulatorModel& model_of(const Curve& curve) {
  return find_instruction_model(curve.accumulator).accumulator;
}

}  // namespace

std::string_view to_string(OperandFormat format) {
  return format == OperandFormat::e4m3 ? "e4m3" : "bf16";
}

Sweep::Sweep(const RunContext& context)
    : context_(&context), settings_(read_parameters<DriftSettings>(context.parameters)) {
  own_a_ = find_source("own_a", settings_.own_a);
  own_b_ = find_source("own_b", settings_.own_b);
  const bool own = std::ranges::find(distributions(), Distribution::own) != distributions().end();
  require(
      own == own_a_.has_value(), "own_a",
      own ? "a source, since distributions contains own" : "none unless distributions contains own",
      "'" + settings_.own_a + "'");
  require(own || !own_b_, "own_b", "none unless distributions contains own",
          "'" + settings_.own_b + "'");
  if (!own_b_) own_b_ = own_a_;
}

OperandSpec Sweep::spec(Distribution distribution, std::int64_t k) const {
  return {distribution,
          settings_.rows,
          settings_.columns,
          k,
          settings_.correlation,
          own_a_ ? &*own_a_ : nullptr,
          own_b_ ? &*own_b_ : nullptr};
}

void Sweep::run() {
  std::vector<std::int64_t> lengths = settings_.k;
  lengths.insert(lengths.end(), settings_.promotion_k.begin(), settings_.promotion_k.end());
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  double total = 0.0;
  for (const std::int64_t k : lengths) total += static_cast<double>(k);
  for (const std::int64_t k : settings_.bf16_k)
    for (const Distribution d : distributions()) measure_bf16(d, k, context_->seed, points_);
  double done = 0.0;
  for (const std::int64_t k : lengths) {
    for (const Distribution d : distributions()) measure_e4m3(d, k);
    done += static_cast<double>(k);
    context_->progress(0.6 * done / total);
  }
  const std::int64_t repeats = settings_.fit_repeats;
  for (std::int64_t repeat = 1; repeat < repeats; ++repeat) {
    measure_repeat(seed_of(repeat), repeats_.emplace_back());
    context_->progress(0.6 + 0.2 * static_cast<double>(repeat) / static_cast<double>(repeats));
  }
}

std::int64_t Sweep::longest() const {
  return settings_.k.empty() ? 0 : *std::ranges::max_element(settings_.k);
}

std::uint64_t Sweep::seed_of(std::int64_t set) const {
  return set == 0 ? context_->seed
                  : context_->random("accumulator-drift/repeats")
                        .bits64(static_cast<std::uint64_t>(set));
}

bool Sweep::quoted(const Curve& curve, std::int64_t k) const {
  if (curve.operands != OperandFormat::e4m3) return false;
  if (curve.accumulator == kHopper) return k == longest();
  return curve.distribution == Distribution::uniform && curve.interval == 0 &&
         (curve.accumulator == kNearest || curve.accumulator == kTruncated) &&
         (k == 1024 || k == 16384);
}

std::vector<double> Sweep::each_set(const Curve& curve, std::int64_t k,
                                    double Comparison::*figure) const {
  std::vector<double> values;
  const auto add = [&](const std::vector<Point>& points) {
    const auto point =
        std::ranges::find_if(points, [&](const Point& p) { return p.k == k && p.curve == curve; });
    if (point != points.end()) values.push_back(point->error.*figure);
  };
  add(points_);
  for (const std::vector<Point>& points : repeats_) add(points);
  return values;
}

bool Sweep::fitted(OperandFormat operands, std::int64_t k) const {
  if (operands == OperandFormat::bf16) return k >= settings_.bf16_fit_k_min;
  return k >= settings_.fit_k_min && k <= settings_.fit_k_max;
}

void Sweep::measure_repeat(std::uint64_t seed, std::vector<Point>& points) const {
  for (const Distribution d : distributions()) {
    for (const std::int64_t k : settings_.bf16_k)
      if (fitted(OperandFormat::bf16, k)) measure_bf16(d, k, seed, points);
    for (const std::int64_t k : settings_.k) {
      std::vector<Curve> wanted = curves(d);
      std::erase_if(wanted, [&](const Curve& curve) {
        return curve.operands != OperandFormat::e4m3 ||
               !(fitted(OperandFormat::e4m3, k) || quoted(curve, k));
      });
      if (wanted.empty()) continue;
      const QuantizedOperands operands =
          quantize(make_operands(spec(d, k), seed), context_->backend);
      for (const Curve& curve : wanted)
        points.push_back({curve, k,
                          accumulation_error(operands, model_of(curve), curve.interval,
                                             context_->threads, context_->backend)});
    }
  }
}

void Sweep::measure_e4m3(Distribution d, std::int64_t k) {
  const QuantizedOperands operands =
      quantize(make_operands(spec(d, k), context_->seed), context_->backend);
  const auto measure = [&](const std::string& name, std::int64_t interval) {
    const Curve curve{OperandFormat::e4m3, d, name, interval};
    if (find(curve, k) != nullptr) return;
    points_.push_back({curve, k,
                       accumulation_error(operands, model_of(curve), interval, context_->threads,
                                          context_->backend)});
  };
  if (holds(settings_.k, k))
    for (const std::string& name : settings_.accumulators) measure(name, 0);
  for (const std::string& name : settings_.promoted) {
    measure(name, 0);
    if (holds(settings_.k, k)) measure(name, kDeepSeekInterval);
    if (!holds(settings_.promotion_k, k)) continue;
    for (const std::int64_t interval : settings_.promotion_intervals) measure(name, interval);
  }
}

void Sweep::measure_bf16(Distribution d, std::int64_t k, std::uint64_t seed,
                         std::vector<Point>& points) const {
  const Bf16Operands operands = make_operands(spec(d, k), seed);
  for (const std::string& name : settings_.bf16_accumulators) {
    const Curve curve{OperandFormat::bf16, d, name, 0};
    points.push_back(
        {curve, k,
         accumulation_error(operands, model_of(curve), 0, context_->threads, context_->backend)});
  }
}

std::vector<Curve> Sweep::curves(Distribution d) const {
  std::vector<Curve> curves;
  for (const std::string& name : settings_.accumulators)
    curves.push_back({OperandFormat::e4m3, d, name, 0});
  for (const std::string& name : settings_.promoted)
    curves.push_back({OperandFormat::e4m3, d, name, kDeepSeekInterval});
  for (const std::string& name : settings_.bf16_accumulators)
    curves.push_back({OperandFormat::bf16, d, name, 0});
  return curves;
}

Series Sweep::series(const Curve& curve) const {
  Series series;
  for (const Point& point : points_) {
    if (!(point.curve == curve)) continue;
    series.x.push_back(static_cast<double>(point.k));
    series.y.push_back(point.error.relative_l2);
  }
  return series;
}

LineFit Sweep::slope(const Curve& curve, std::size_t repeat) const {
  std::vector<double> x;
  std::vector<double> y;
  for (const Point& point : repeat == 0 ? points_ : repeats_[repeat - 1]) {
    if (!(point.curve == curve) || !(point.error.relative_l2 > 0.0)) continue;
    if (!fitted(curve.operands, point.k)) continue;
    x.push_back(static_cast<double>(point.k));
    y.push_back(point.error.relative_l2);
  }
  const double none = std::numeric_limits<double>::quiet_NaN();
  if (x.size() < 2) return {none, none, none, static_cast<int>(x.size())};
  return fit_power_law(x, y);
}

std::vector<double> Sweep::slopes(const Curve& curve) const {
  std::vector<double> slopes;
  for (std::size_t repeat = 0; repeat <= repeats_.size(); ++repeat) {
    const double slope = this->slope(curve, repeat).slope;
    if (!std::isnan(slope)) slopes.push_back(slope);
  }
  return slopes;
}

const Comparison* Sweep::find(const Curve& curve, std::int64_t k) const {
  for (const Point& point : points_)
    if (point.k == k && point.curve == curve) return &point.error;
  return nullptr;
}

}  // namespace fp8lab::experiments
