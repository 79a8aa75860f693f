#include "fp8lab/metrics/code_comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/metrics/sum.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 16;  // elements; fixes the order of the sums
constexpr std::size_t kChunksAtOnce = 64;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// What one chunk, or all chunks so far, add up to.
struct Sums {
  PairwiseSum xx, yy, xy, dd, magnitude, drift, distance;

  void add(const Sums& other) {
    xx.add(other.xx.total());
    yy.add(other.yy.total());
    xy.add(other.xy.total());
    dd.add(other.dd.total());
    magnitude.add(other.magnitude.total());
    drift.add(other.drift.total());
    distance.add(other.distance.total());
  }
};

/// Counts mismatches for a map. Elements of one tile in one row follow each other, so that its
/// place is worked out, and the shared count changed, once for all of them.
class MapCounter {
 public:
  void add(std::int64_t index, MismatchMap& map) {
    if (index < begin_ || index >= end_) {
      flush(map);
      const std::int64_t row = index / map.row_length;
      const std::int64_t column = index % map.row_length;
      const std::int64_t tile = column / map.tile_columns;
      begin_ = row * map.row_length + tile * map.tile_columns;
      end_ = row * map.row_length + std::min((tile + 1) * map.tile_columns, map.row_length);
      at_ = static_cast<std::size_t>(row / map.tile_rows * map.columns + tile);
    }
    ++pending_;
  }
  void flush(MismatchMap& map) {
    if (pending_ == 0) return;
    std::uint64_t& count = map.counts[at_];
#pragma omp atomic
    count += pending_;
    pending_ = 0;
  }

 private:
  std::int64_t begin_ = 0;
  std::int64_t end_ = 0;
  std::size_t at_ = 0;
  std::uint64_t pending_ = 0;
};

struct Partial {
  Sums sums;
  CodeComparison result;
  std::size_t first_non_finite = 0;
  std::size_t measured = 0;  ///< pairs of finite numbers
  MapCounter counter;
};

double ratio(double numerator, double denominator) {
  if (denominator == 0.0) return numerator == 0.0 ? 0.0 : kInfinity;
  return numerator / denominator;
}

void add_pair(UlpHistogram& h, std::uint64_t distance, double x, double y, std::size_t index) {
  if (distance == kNanDistance) {
    ++h.nan_mismatches;
    return;
  }
  ++h.counts[UlpHistogram::bin_of(distance)];
  if (distance > h.max_distance) {
    h.max_distance = distance;
    h.max_index = index;
  }
  if (distance == 0) return;
  h.toward_zero += std::abs(y) < std::abs(x) ? 1 : 0;
  h.away_from_zero += std::abs(y) > std::abs(x) ? 1 : 0;
}

void merge(UlpHistogram& into, const UlpHistogram& h) {
  for (std::size_t i = 0; i < UlpHistogram::kBins; ++i) into.counts[i] += h.counts[i];
  into.total += h.total;
  into.nan_mismatches += h.nan_mismatches;
  into.toward_zero += h.toward_zero;
  into.away_from_zero += h.away_from_zero;
  if (h.max_distance > into.max_distance) {
    into.max_distance = h.max_distance;
    into.max_index = h.max_index;
  }
}

/// The rank of a number among those with E4M3's significand.
std::int64_t coarse_rank(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const auto rounded =
      static_cast<std::int64_t>((magnitude + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20);
  return (bits >> 31) != 0 ? -rounded : rounded;
}

std::uint64_t coarse_distance(float x, float y) {
  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y) ? 0 : kNanDistance;
  const std::int64_t distance = coarse_rank(x) - coarse_rank(y);
  return static_cast<std::uint64_t>(distance < 0 ? -distance : distance);
}

/// Reads codes of one width and turns them into numbers.
class Reader {
 public:
  explicit Reader(const Format& f)
      : width_(static_cast<std::size_t>(f.bytes())),
        table_(f.id == FormatId::f32 ? std::span<const float>() : decode_table(f.id)) {}

  [[nodiscard]] std::size_t width() const { return width_; }
  [[nodiscard]] std::uint32_t code(const std::byte* data, std::size_t index) const {
    std::uint32_t word = 0;
    switch (width_) {
      case 1:
        return static_cast<std::uint32_t>(data[index]);
      case 2: {
        std::uint16_t half = 0;
        std::memcpy(&half, data + 2 * index, 2);
        return half;
      }
      default:
        std::memcpy(&word, data + 4 * index, 4);
        return word;
    }
  }
  [[nodiscard]] float value(std::uint32_t code) const {
    return table_.empty() ? std::bit_cast<float>(code) : table_[code];
  }

 private:
  std::size_t width_;
  std::span<const float> table_;
};

class ChunkComparer {
 public:
  ChunkComparer(const Format& f, const Reader& reader, const CodeComparisonOptions& options)
      : f_(f), reader_(reader), options_(options) {}

  /// Elements [begin, end) of a part whose first element is number `base`.
  Partial run(const std::byte* expected, const std::byte* got, std::size_t begin, std::size_t end,
              std::size_t base) const {
    Partial part;
    part.result.far.assign(options_.tolerances.size(), 0);
    std::uint64_t same = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint32_t x = reader_.code(expected, i);
      const std::uint32_t y = reader_.code(got, i);
      if (x != y) {
        differing(x, y, base + i, part);
        continue;
      }
      ++same;
      const auto value = static_cast<double>(reader_.value(x));
      if (!std::isfinite(value)) continue;
      ++part.measured;
      add_values(value, value, part.sums);
    }
    if (options_.map != nullptr) part.counter.flush(*options_.map);
    CodeComparison& r = part.result;
    r.values.count = r.ulp.total = r.fp8.total = end - begin;
    r.ulp.counts[0] += same;
    r.fp8.counts[0] += same;
    return part;
  }

 private:
  static void add_values(double x, double y, Sums& sums) {
    sums.xx.add(x * x);
    sums.yy.add(y * y);
    sums.xy.add(x * y);
    sums.magnitude.add(std::abs(x));
  }

  void differing(std::uint32_t x_code, std::uint32_t y_code, std::size_t index,
                 Partial& part) const {
    CodeComparison& r = part.result;
    const float x = reader_.value(x_code);
    const float y = reader_.value(y_code);
    const std::uint64_t distance = ulp_distance(f_, x_code, y_code);
    add_pair(r.ulp, distance, x, y, index);
    add_pair(r.fp8, coarse_distance(x, y), x, y, index);
    if (std::isnan(x) && std::isnan(y)) {
      ++r.nan_payloads;
      return;
    }
    note_mismatch({static_cast<std::int64_t>(index), x_code, y_code, distance}, part);
    if (x != y) ++r.values.mismatches;
    if (std::isfinite(x) && std::isfinite(y)) {
      finite_pair(x, y, index, part);
      return;
    }
    if (r.values.non_finite_mismatches++ == 0) part.first_non_finite = index;
    for (std::uint64_t& far : r.far) ++far;
  }

  void note_mismatch(const CodeMismatch& mismatch, Partial& part) const {
    CodeComparison& r = part.result;
    ++r.bit_mismatches;
    if (!r.first) r.first = mismatch;
    if (!r.worst || mismatch.ulp > r.worst->ulp) r.worst = mismatch;
    if (options_.map != nullptr) part.counter.add(mismatch.index, *options_.map);
  }

  void finite_pair(double x, double y, std::size_t index, Partial& part) const {
    ++part.measured;
    add_values(x, y, part.sums);
    const double d = y - x;
    part.sums.dd.add(d * d);
    part.sums.distance.add(std::abs(d));
    part.sums.drift.add(x < 0.0 ? -d : x > 0.0 ? d : 0.0);
    Comparison& c = part.result.values;
    if (std::abs(d) > c.max_absolute) {
      c.max_absolute = std::abs(d);
      c.max_absolute_index = index;
    }
    // The quotient is worked out only where it may be the largest: it costs more than all else.
    if (!(std::abs(d) < c.max_relative * std::abs(x) * (1.0 - 0x1p-50)))
      if (const double relative = ratio(std::abs(d), std::abs(x)); relative > c.max_relative) {
        c.max_relative = relative;
        c.max_relative_index = index;
      }
    for (std::size_t t = 0; t < options_.tolerances.size(); ++t) {
      const Tolerance& tolerance = options_.tolerances[t];
      if (std::abs(d) > tolerance.absolute + tolerance.relative * std::abs(x)) ++part.result.far[t];
    }
  }

  const Format& f_;
  const Reader& reader_;
  const CodeComparisonOptions& options_;
};

void merge(Partial& into, const Partial& part) {
  CodeComparison& r = into.result;
  const CodeComparison& p = part.result;
  into.sums.add(part.sums);
  into.measured += part.measured;
  if (r.values.non_finite_mismatches == 0) into.first_non_finite = part.first_non_finite;
  r.values.count += p.values.count;
  r.values.mismatches += p.values.mismatches;
  r.values.non_finite_mismatches += p.values.non_finite_mismatches;
  if (p.values.max_absolute > r.values.max_absolute) {
    r.values.max_absolute = p.values.max_absolute;
    r.values.max_absolute_index = p.values.max_absolute_index;
  }
  if (p.values.max_relative > r.values.max_relative) {
    r.values.max_relative = p.values.max_relative;
    r.values.max_relative_index = p.values.max_relative_index;
  }
  r.bit_mismatches += p.bit_mismatches;
  r.nan_payloads += p.nan_payloads;
  merge(r.ulp, p.ulp);
  merge(r.fp8, p.fp8);
  if (!r.first) r.first = p.first;
  if (p.worst && (!r.worst || p.worst->ulp > r.worst->ulp)) r.worst = p.worst;
  for (std::size_t t = 0; t < r.far.size(); ++t) r.far[t] += p.far[t];
}

CodeComparison finished(const Partial& all) {
  const FloatEnvironment environment;
  CodeComparison r = all.result;
  Comparison& c = r.values;
  if (c.non_finite_mismatches > 0 || (all.measured == 0 && c.count > 0)) {
    c.relative_l2 = c.sqnr_db = c.cosine = c.calc_diff = kNan;
    c.max_absolute = c.max_relative = c.mean_signed_relative = kNan;
    r.mean_absolute_relative = kNan;
    c.max_absolute_index = c.max_relative_index = all.first_non_finite;
    return r;
  }
  const double xx = all.sums.xx.total();
  const double yy = all.sums.yy.total();
  const double xy = all.sums.xy.total();
  const double dd = all.sums.dd.total();
  c.relative_l2 = ratio(std::sqrt(dd), std::sqrt(xx));
  c.sqnr_db = dd == 0.0 ? kInfinity : 10.0 * std::log10(xx / dd);
  r.mean_absolute_relative = ratio(all.sums.distance.total(), all.sums.magnitude.total());
  if (xx == 0.0 && yy == 0.0) return r;
  c.cosine = xx == 0.0 || yy == 0.0 ? 0.0 : xy / (std::sqrt(xx) * std::sqrt(yy));
  c.calc_diff = 1.0 - 2.0 * xy / (xx + yy);
  c.mean_signed_relative = ratio(all.sums.drift.total(), all.sums.magnitude.total());
  return r;
}

}  // namespace

MismatchMap make_map(std::int64_t rows, std::int64_t columns, std::int64_t most) {
  const auto side = [most](std::int64_t size) {
    std::int64_t tile = 1;
    while ((size + tile - 1) / tile > most) tile *= 2;
    return tile;
  };
  MismatchMap map;
  map.row_length = std::max<std::int64_t>(columns, 1);
  map.tile_rows = side(rows);
  map.tile_columns = side(columns);
  map.rows = (rows + map.tile_rows - 1) / map.tile_rows;
  map.columns = (columns + map.tile_columns - 1) / map.tile_columns;
  map.counts.assign(static_cast<std::size_t>(map.rows * map.columns), 0);
  return map;
}

struct CodeComparer::State {
  const Format& f;
  CodeComparisonOptions options;
  Reader reader;
  ChunkComparer comparer;
  int threads;
  Partial all{};
  std::size_t count = 0;

  State(const Format& of, CodeComparisonOptions with)
      : f(of),
        options(std::move(with)),
        reader(f),
        comparer(f, reader, options),
        threads(team_size(options.threads)) {
    all.result.far.assign(options.tolerances.size(), 0);
  }
};

CodeComparer::CodeComparer(const Format& f, CodeComparisonOptions options) {
  require(f.code_bits() <= 16 || f.id == FormatId::f32, "format", "at most 16 bits, or f32",
          f.name);
  state_ = std::make_unique<State>(f, std::move(options));
}

CodeComparer::~CodeComparer() = default;

void CodeComparer::add(std::span<const std::byte> expected, std::span<const std::byte> got) {
  const FloatEnvironment environment;
  State& s = *state_;
  require(expected.size() == got.size(), "got", counted(expected.size(), "byte"),
          fmt::format("{}", got.size()));
  require(expected.size() % s.reader.width() == 0, "expected", "whole elements",
          counted(expected.size(), "byte"));
  const std::size_t count = expected.size() / s.reader.width();
  std::vector<Partial> parts(std::min(kChunksAtOnce, (count + kChunk - 1) / kChunk));
  for (std::size_t begin = 0; begin < count; begin += kChunksAtOnce * kChunk) {
    const std::size_t end = std::min(count, begin + kChunksAtOnce * kChunk);
    const auto chunks = static_cast<std::int64_t>((end - begin + kChunk - 1) / kChunk);
#pragma omp parallel for num_threads(s.threads) schedule(dynamic)
    for (std::int64_t i = 0; i < chunks; ++i) {
      const FloatEnvironment of_thread;
      const std::size_t first = begin + static_cast<std::size_t>(i) * kChunk;
      parts[static_cast<std::size_t>(i)] = s.comparer.run(expected.data(), got.data(), first,
                                                          std::min(end, first + kChunk), s.count);
    }
    for (std::int64_t i = 0; i < chunks; ++i) merge(s.all, parts[static_cast<std::size_t>(i)]);
  }
  s.count += count;
}

CodeComparison CodeComparer::finish() const { return finished(state_->all); }

CodeComparison compare_codes(const Format& f, std::span<const std::byte> expected,
                             std::span<const std::byte> got, CodeComparisonOptions options) {
  CodeComparer comparer(f, std::move(options));
  comparer.add(expected, got);
  return comparer.finish();
}

}  // namespace fp8lab
