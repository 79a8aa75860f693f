#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/metrics/comparison.hpp"
#include "fp8lab/scaling/quantize.hpp"
#include "pictures/json.hpp"
#include "pictures/pictures.hpp"
#include "pictures/running_sum.hpp"

namespace fp8lab::explorer {
namespace {

constexpr std::int64_t kRows = 4;
constexpr int kRecords = 256;  // of the running sum, at most
constexpr double kCorrelation = 0.5;

double element(const AccumulationQuestion& q, const RandomStream& own, const RandomStream& shared,
               std::uint64_t index) {
  if (q.distribution == "uniform") return own.uniform(index);
  if (q.distribution == "normal") return own.normal(index);
  if (q.distribution == "ones") return 1.0;
  require(q.distribution == "correlated", "distribution", "uniform, normal, correlated or ones",
          fmt::format("'{}'", q.distribution));
  const auto k = static_cast<std::uint64_t>(q.k);
  return std::sqrt(kCorrelation) * shared.normal(index % k) +
         std::sqrt(1.0 - kCorrelation) * own.normal(index);
}

/// A [4, k] matrix in `id` with one scale, taken apart.
struct Operand {
  std::vector<Unpacked> values;
  double inverse_scale = 1.0;
  std::int64_t k = 0;

  Operand(const AccumulationQuestion& q, std::string_view name, FormatId id) : k(q.k) {
    const RandomStream own(q.seed, fmt::format("explorer/accumulation/{}", name));
    const RandomStream shared(q.seed, "explorer/accumulation/shared");
    std::vector<float> x(static_cast<std::size_t>(kRows * k));
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(element(q, own, shared, i));
    const QuantizedTensor tensor =
        quantize({.format = id, .rule = q.scaled ? ScaleRule::te : ScaleRule::unit}, {x, kRows, k},
                 false, 1);
    inverse_scale = static_cast<double>(tensor.inverse_scales[0]);
    const std::span<const Unpacked> table = unpack_table(id);
    std::transform(tensor.codes.begin(), tensor.codes.end(), std::back_inserter(values),
                   [&](std::uint8_t code) { return table[code]; });
  }
  [[nodiscard]] std::span<const Unpacked> part(std::int64_t row, std::int64_t begin,
                                               std::int64_t count) const {
    return std::span(values).subspan(static_cast<std::size_t>(row * k + begin),
                                     static_cast<std::size_t>(count));
  }
};

/// The values of many dot products after one number of terms.
struct Snapshot {
  std::int64_t k = 0;
  std::vector<double> exact{};
  std::vector<float> plain{};
  std::vector<float> promoted{};
};

std::vector<Snapshot> snapshots(std::int64_t k) {
  std::vector<Snapshot> result;
  for (std::int64_t at = 32; at < k; at *= 2) result.push_back({.k = at});
  result.push_back({.k = k});
  return result;
}

/// The running sum of one dot product.
struct Record {
  std::vector<double> k, exact, plain, promoted;
};

void validate(const AccumulationQuestion& q, const AccumulatorModel& model) {
  require(q.k >= 32 && q.k <= 65536 && q.k % model.terms == 0, "k",
          fmt::format("32 .. 65536, a multiple of the model's {} terms", model.terms),
          fmt::format("{}", q.k));
  require(q.promotion_interval >= 0 && q.promotion_interval % model.terms == 0,
          "promotion_interval", fmt::format("0 or a multiple of the model's {} terms", model.terms),
          fmt::format("{}", q.promotion_interval));
  require(!traits_of(model).keeps_all, "model", "one that rounds on the way", "exact");
}

/// One dot product from term to term; notes it in `shots`, and in `record` unless that is null.
void run(const AccumulationQuestion& q, const AccumulatorModel& model, std::span<const Unpacked> a,
         std::span<const Unpacked> b, double unit, std::vector<Snapshot>& shots, Record* record) {
  // Snapshots are at multiples of 32, which the terms of every model divide.
  const std::size_t chunk = static_cast<std::size_t>(model.terms);
  const std::size_t every = std::max<std::size_t>(32, a.size() / kRecords / chunk * chunk);
  RunningSum plain(model, 0);
  RunningSum promoted(model, q.promotion_interval);
  ExactSum exact;
  std::size_t shot = 0;
  for (std::size_t at = 0; at < a.size();) {
    plain.add(a.subspan(at, chunk), b.subspan(at, chunk));
    promoted.add(a.subspan(at, chunk), b.subspan(at, chunk));
    exact.add(a.subspan(at, chunk), b.subspan(at, chunk));
    at += chunk;
    if (static_cast<std::size_t>(shots[shot].k) == at) {
      shots[shot].exact.push_back(exact.value());
      shots[shot].plain.push_back(plain.value());
      shots[shot].promoted.push_back(promoted.value());
      ++shot;
    }
    if (record != nullptr && (at % every == 0 || at == a.size())) {
      record->k.push_back(static_cast<double>(at));
      record->exact.push_back(unit * exact.value());
      record->plain.push_back(unit * static_cast<double>(plain.value()));
      record->promoted.push_back(unit * static_cast<double>(promoted.value()));
    }
  }
}

/// After how many terms `values` are not finite any more; 0: they are to the end.
double first_not_finite(const Record& record) {
  const auto found = std::find_if(record.plain.begin(), record.plain.end(),
                                  [](double x) { return !std::isfinite(x); });
  return found == record.plain.end()
             ? 0.0
             : record.k[static_cast<std::size_t>(found - record.plain.begin())];
}

/// After how many terms the sum has its last value for good.
double last_change(const Record& record) {
  std::size_t i = record.plain.size() - 1;
  while (i > 0 && record.plain[i - 1] == record.plain.back()) --i;
  return record.k[i];
}

std::string describe_error(const Snapshot& s) {
  const std::span<const double> exact(s.exact);
  const Comparison plain = compare(exact, std::span<const float>(s.plain));
  const Comparison promoted = compare(exact, std::span<const float>(s.promoted));
  return JsonObject()
      .number("k", static_cast<double>(s.k))
      .number("plain", plain.relative_l2)
      .number("promoted", promoted.relative_l2)
      .number("plain_bias", plain.mean_signed_relative)
      .number("promoted_bias", promoted.mean_signed_relative)
      .str();
}

}  // namespace

std::string accumulation(const AccumulationQuestion& q) {
  const InstructionModel& model = find_instruction_model(q.model);
  validate(q, model.accumulator);
  const Operand a(q, "a", model.a_format);
  const Operand b(q, "b", model.b_format);
  const double unit = a.inverse_scale * b.inverse_scale;
  std::vector<Snapshot> shots = snapshots(q.k);
  Record record;
  for (std::int64_t i = 0; i < kRows; ++i)
    for (std::int64_t j = 0; j < kRows; ++j)
      run(q, model.accumulator, a.part(i, 0, q.k), b.part(j, 0, q.k), unit, shots,
          i == 0 && j == 0 ? &record : nullptr);
  return JsonObject()
      .text("model", model.name)
      .text("standing", to_string(model.standing))
      .number("dot_products", static_cast<double>(kRows * kRows))
      .number("scale_a", 1.0 / a.inverse_scale)
      .number("scale_b", 1.0 / b.inverse_scale)
      .number("not_finite_from", first_not_finite(record))
      .number("last_change", last_change(record))
      .raw("k", json(record.k))
      .raw("exact", json(record.exact))
      .raw("plain", json(record.plain))
      .raw("promoted", json(record.promoted))
      .raw("errors", json_array(shots, describe_error))
      .str();
}

}  // namespace fp8lab::explorer
