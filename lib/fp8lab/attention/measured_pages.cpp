#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <set>
#include <utility>

#include "fp8lab/attention/measured_rows.hpp"
#include "fp8lab/core/parallel.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t kPagedRows = 24;
constexpr std::int64_t kMostPages = 64;

/// Sums over one page: of p V's first columns, and of p.
struct PageSum {
  std::array<double, 16> o{};
  double p = 0.0;

  PageSum& operator+=(const PageSum& other) {
    for (std::size_t c = 0; c < o.size(); ++c) o[c] += other.o[c];
    p += other.p;
    return *this;
  }
  [[nodiscard]] PageSum times(double factor) const {
    PageSum found = *this;
    for (double& one : found.o) one *= factor;
    found.p *= factor;
    return found;
  }
};

/// What a page reads from another one.
enum class Reads : std::uint8_t { k, v, k_and_v };

std::string_view names_of(Reads reads) {
  return reads == Reads::k ? "K" : reads == Reads::v ? "V" : "K and V";
}

/// Something that may have happened to the pages of K and V.
struct PageFault {
  std::string name;
  std::string text;
  AttentionMistakes::Change change;
  double apart = 0.0;
};

/// Pages of one size.
class Pages {
 public:
  Pages(const MeasuredRows& rows, AttentionMistakes& mistakes, std::int64_t size)
      : rows_(rows),
        inputs_(rows.inputs()),
        mistakes_(mistakes),
        shape_(rows.shape()),
        size_(size),
        count_((shape_.n + size - 1) / size) {}

  /// The faults that explain the rows best, best first.
  std::vector<PageFault> run() {
    const std::vector<const MeasuredRow*> some = rows_.some(kPagedRows);
    std::vector<std::vector<double>> apart(some.size());
    parallel_for(std::ssize(some), threads_of(rows_.options()), [&](std::int64_t i) {
      const auto at = static_cast<std::size_t>(i);
      const MeasuredRow& row = *some[at];
      double norm = 0.0;
      for (std::int64_t c = 0; c < rows_.few_columns(); ++c)
        norm += rows_.got_at(row, c) * rows_.got_at(row, c);
      // Each row counts alike: heads have unlike scales of V.
      apart[at] = each_fault(sums_of(row), [&](const PageSum& sum) {
        return norm > 0.0 ? distance(row, sum) / norm : 0.0;
      });
    });
    if (some.empty()) return {};
    std::vector<double> mean(apart.front().size(), 0.0);
    for (const std::vector<double>& of_row : apart)
      for (std::size_t f = 0; f < mean.size(); ++f)
        mean[f] += of_row[f] / static_cast<double>(some.size());
    return best(mean);
  }

 private:
  /// Of a row: pages [place, source] for each way of reading, row-major.
  struct Sums {
    std::array<std::vector<PageSum>, 3> read;
    double sink = 0.0;
  };

  [[nodiscard]] std::int64_t begin_of(std::int64_t page) const { return page * size_; }
  [[nodiscard]] std::int64_t end_of(std::int64_t page) const {
    return std::min(page * size_ + size_, shape_.n);
  }
  [[nodiscard]] std::size_t at(std::int64_t place, std::int64_t source) const {
    return static_cast<std::size_t>(place * count_ + source);
  }

  [[nodiscard]] Sums sums_of(const MeasuredRow& row) const {
    // Rows of K that the mask hides may stand in places that it does not hide.
    const RowWeights w = rows_.weights(row, row.scores, {0, shape_.n});
    const auto columns = static_cast<std::size_t>(rows_.few_columns());
    Sums sums;
    sums.sink = w.sink;
    for (auto& read : sums.read) read.resize(static_cast<std::size_t>(count_ * count_));
    for (std::int64_t place = 0; place < count_; ++place)
      for (std::int64_t source = 0; source < count_; ++source)
        for (std::int64_t j = begin_of(place); j < end_of(place); ++j) {
          if (j < row.seen.begin || j >= row.seen.end) continue;
          const std::int64_t from = std::min(j - begin_of(place) + begin_of(source), shape_.n - 1);
          const auto add = [&](Reads reads, std::int64_t k, std::int64_t v) {
            PageSum& to = sums.read[static_cast<std::size_t>(reads)][at(place, source)];
            const double p = w.p[static_cast<std::size_t>(k)];
            const float* values = rows_.v_row(row.head / shape_.group, v);
            for (std::size_t c = 0; c < columns; ++c) to.o[c] += p * static_cast<double>(values[c]);
            to.p += p;
          };
          add(Reads::k, from, j);
          add(Reads::v, j, from);
          add(Reads::k_and_v, from, from);
        }
    return sums;
  }

  [[nodiscard]] double distance(const MeasuredRow& row, const PageSum& sum) const {
    double squares = 0.0;
    for (std::int64_t c = 0; c < rows_.few_columns(); ++c) {
      const double o = sum.p > 0.0 ? sum.o[static_cast<std::size_t>(c)] / sum.p : 0.0;
      const double apart = rows_.got_at(row, c) - o;
      squares += std::isfinite(apart) ? apart * apart : 0.0;
    }
    return squares;
  }

  /// `distance` of the sums of every fault, in the order of `fault`.
  [[nodiscard]] std::vector<double> each_fault(
      const Sums& sums, const std::function<double(const PageSum&)>& distance) const {
    const auto& right = sums.read[0];
    PageSum all;
    all.p = sums.sink;
    for (std::int64_t page = 0; page < count_; ++page) all += right[at(page, page)];
    std::vector<double> found;
    for (const Reads reads : {Reads::v, Reads::k, Reads::k_and_v}) {
      const auto& read = sums.read[static_cast<std::size_t>(reads)];
      for (std::int64_t place = 0; place < count_; ++place)
        for (std::int64_t source = 0; source < count_; ++source) {
          PageSum one = all;
          one += right[at(place, place)].times(-1.0);
          one += read[at(place, source)];
          found.push_back(distance(one));
        }
      for (std::int64_t place = 0; place < count_; ++place)
        for (std::int64_t source = 0; source < count_; ++source) {
          PageSum one = all;
          one += right[at(place, place)].times(-1.0);
          one += right[at(source, source)].times(-1.0);
          one += read[at(place, source)];
          one += read[at(source, place)];
          found.push_back(place < source ? distance(one) : std::numeric_limits<double>::infinity());
        }
      for (const std::int64_t by : {-1, 1, -2, 2}) {
        PageSum one;
        one.p = sums.sink;
        for (std::int64_t page = 0; page < count_; ++page)
          one += read[at(page, std::clamp<std::int64_t>(page + by, 0, count_ - 1))];
        found.push_back(distance(one));
      }
    }
    for (std::int64_t page = 0; page < count_; ++page)
      for (const double times : {0.0, 2.0, 3.0}) {
        PageSum one = all;
        one += right[at(page, page)].times(times - 1.0);
        found.push_back(distance(one));
      }
    for (const bool alone : {true, false})
      for (std::int64_t first = 0; first < count_; ++first) {
        PageSum part;
        for (std::int64_t last = first; last < count_; ++last) {
          part += right[at(last, last)];
          PageSum one = all;
          one += part.times(-1.0);
          PageSum only = part;
          only.p += sums.sink;
          found.push_back(distance(alone ? only : one));
        }
      }
    for (const std::int64_t step : kSteps)
      for (std::int64_t rest = 0; rest < step; ++rest) {
        PageSum one;
        one.p = sums.sink;
        for (std::int64_t page = 0; page < count_; ++page)
          if (page % step != rest) one += right[at(page, page)];
        found.push_back(distance(one));
      }
    return found;
  }

  [[nodiscard]] std::string columns_of(std::int64_t first, std::int64_t last) const {
    return fmt::format("columns {} to {}", begin_of(first), end_of(last) - 1);
  }

  /// Fault number `index` of those that `each_fault` tries.
  [[nodiscard]] PageFault fault(std::int64_t index) const {
    const std::int64_t pairs = count_ * count_;
    for (const Reads reads : {Reads::v, Reads::k, Reads::k_and_v}) {
      if (index < 2 * pairs) {
        const std::int64_t place = index % pairs / count_;
        const std::int64_t source = index % count_;
        return index < pairs ? moved(reads, place, source) : exchanged(reads, place, source);
      }
      index -= 2 * pairs;
      constexpr std::array<std::int64_t, 4> kBy{-1, 1, -2, 2};
      if (index < std::ssize(kBy)) return shifted(reads, kBy[static_cast<std::size_t>(index)]);
      index -= std::ssize(kBy);
    }
    if (index < 3 * count_) return repeated(index / 3, static_cast<int>(index % 3));
    index -= 3 * count_;
    for (const bool alone : {true, false})
      for (std::int64_t first = 0; first < count_; ++first)
        for (std::int64_t last = first; last < count_; ++last)
          if (index-- == 0) return part(alone, first, last);
    for (const std::int64_t step : kSteps)
      for (std::int64_t rest = 0; rest < step; ++rest)
        if (index-- == 0) return alternate(step, rest);
    return {};
  }

  [[nodiscard]] AttentionMistakes::Change reading(
      Reads reads, const std::function<std::int64_t(std::int64_t)>& page_of) const {
    return [this, reads, page_of](AttentionMistake& m) {
      const auto row_of = [&](std::int64_t row) {
        return std::min(row % size_ + begin_of(page_of(row / size_)), shape_.n - 1);
      };
      ChangedOperands& operands = mistakes_.operands();
      if (reads != Reads::v) m.inputs.k = operands.with_rows(inputs_.k, shape_.n, row_of);
      if (reads != Reads::k) m.inputs.v = operands.with_rows(inputs_.v, shape_.n, row_of);
    };
  }

  [[nodiscard]] PageFault moved(Reads reads, std::int64_t place, std::int64_t source) const {
    return {"wrong_page",
            fmt::format("{} read {} of {} (measured)", columns_of(place, place), names_of(reads),
                        columns_of(source, source)),
            reading(reads, [=](std::int64_t page) { return page == place ? source : page; })};
  }
  [[nodiscard]] PageFault exchanged(Reads reads, std::int64_t a, std::int64_t b) const {
    return {"wrong_page",
            fmt::format("{} of {} and {} are exchanged (measured)", names_of(reads),
                        columns_of(a, a), columns_of(b, b)),
            reading(reads, [=](std::int64_t page) {
              return page == a ? b : page == b ? a : page;
            })};
  }
  [[nodiscard]] PageFault shifted(Reads reads, std::int64_t by) const {
    return {"wrong_page",
            fmt::format("each page of {} rows reads {} of the page {} {} (measured)", size_,
                        names_of(reads), std::abs(by), by < 0 ? "before" : "behind"),
            reading(reads, [=, this](std::int64_t page) {
              return std::clamp<std::int64_t>(page + by, 0, count_ - 1);
            })};
  }

  [[nodiscard]] PageFault repeated(std::int64_t page, int which) const {
    if (which == 0) return part(false, page, page);
    const int times = which + 1;
    const std::int64_t tile = rows_.options().kv_tile;
    if (size_ % tile != 0) return {};
    return {"tile_twice",
            fmt::format("{} count {} times (measured)", columns_of(page, page), times),
            [=, this](AttentionMistake& m) {
              m.variant.times.assign(static_cast<std::size_t>((shape_.n + tile - 1) / tile), 1);
              for (std::int64_t t = begin_of(page) / tile; t * tile < end_of(page); ++t)
                m.variant.times[static_cast<std::size_t>(t)] = times;
            }};
  }

  [[nodiscard]] AttentionMistakes::Change without(
      const std::function<bool(std::int64_t)>& page_is_read) const {
    return [this, page_is_read](AttentionMistake& m) {
      for (std::int64_t j = 0; j < shape_.n; ++j)
        m.variant.unread.push_back(page_is_read(j / size_) ? 0 : 1);
    };
  }

  [[nodiscard]] PageFault part(bool alone, std::int64_t first, std::int64_t last) const {
    return {alone ? "part_alone" : "columns_unread",
            fmt::format("{} are {} (measured)", columns_of(first, last),
                        alone ? "all that is read: other parts are not merged" : "left out"),
            without([=](std::int64_t page) { return (page >= first && page <= last) == alone; })};
  }
  [[nodiscard]] PageFault alternate(std::int64_t step, std::int64_t rest) const {
    return {"tiles_skipped",
            fmt::format("one of {} tiles of {} columns is left out: those from columns {}, {}, ... "
                        "on (measured)",
                        step, size_, rest * size_, (rest + step) * size_),
            without([=](std::int64_t page) { return page % step != rest; })};
  }

  [[nodiscard]] std::vector<PageFault> best(const std::vector<double>& apart) const {
    constexpr std::size_t kMost = 3;
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < apart.size(); ++i)
      if (apart[i] < kExplained) order.push_back(i);
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return apart[i]; });
    std::vector<PageFault> found;
    for (const std::size_t i : order) {
      if (found.size() == kMost) break;
      PageFault one = fault(static_cast<std::int64_t>(i));
      one.apart = apart[i];
      if (one.change) found.push_back(std::move(one));
    }
    return found;
  }

  static constexpr std::array<std::int64_t, 3> kSteps{2, 3, 4};

  const MeasuredRows& rows_;
  const AttentionInputs& inputs_;
  AttentionMistakes& mistakes_;
  AttentionShape shape_;
  std::int64_t size_;
  std::int64_t count_;
};

/// Places of a row's columns in memory, as mistaken kernels read them.
struct ColumnMap {
  std::string text;
  std::function<std::int64_t(std::int64_t row, std::int64_t column)> from;
};

std::vector<ColumnMap> column_maps(std::int64_t d) {
  std::vector<ColumnMap> maps;
  for (std::int64_t bit = 1; bit < d; bit *= 2)
    maps.push_back({fmt::format("column c is column c xor {}", bit),
                    [=](std::int64_t, std::int64_t c) { return (c ^ bit) < d ? c ^ bit : c; }});
  const auto interleaved = [&](std::int64_t first, const std::string& of) {
    const std::int64_t half = (d - first) / 2;
    maps.push_back({"halves " + of + " are interleaved: pairs where halves are rotated",
                    [=](std::int64_t, std::int64_t c) {
                      const std::int64_t in = c - first;
                      return in < 0 ? c : first + in % 2 * half + in / 2;
                    }});
    maps.push_back({"pairs " + of + " are taken apart: halves where pairs are rotated",
                    [=](std::int64_t, std::int64_t c) {
                      const std::int64_t in = c - first;
                      return in < 0 ? c : first + in % half * 2 + in / half;
                    }});
    if (first > 0)
      maps.push_back({"halves " + of + " are exchanged", [=](std::int64_t, std::int64_t c) {
                        const std::int64_t in = c - first;
                        return in < 0 ? c : first + (in + half) % (2 * half);
                      }});
  };
  if (d % 2 == 0) interleaved(0, "of the columns");
  if (d > 64 && d % 2 == 0) interleaved(d - 64, "of the last 64 columns");
  for (const std::int64_t chunk : {16, 8, 32})
    for (const std::int64_t chunks : {8, 4, 2})
      if (d % (chunk * chunks) == 0)
        for (const std::int64_t rows : {1, 2, 4})
          maps.push_back({fmt::format("chunks of {} are swizzled: chunk i of row r is chunk i xor "
                                      "r{} mod {}",
                                      chunk, rows == 1 ? "" : fmt::format(" / {}", rows), chunks),
                          [=](std::int64_t row, std::int64_t c) {
                            return c ^ (row / rows % chunks * chunk);
                          }});
  for (const std::int64_t by : {1, 8, 16})
    if (by < d)
      maps.push_back({fmt::format("column c is column (c + {}) mod {}", by, d),
                      [=](std::int64_t, std::int64_t c) { return (c + by) % d; }});
  maps.push_back(
      {"columns are in reverse", [=](std::int64_t, std::int64_t c) { return d - 1 - c; }});
  return maps;
}

void measure_columns_of_k(const MeasuredRows& rows, AttentionMistakes& mistakes) {
  const AttentionInputs& in = rows.inputs();
  constexpr std::size_t kFewRows = 8;
  const std::vector<const MeasuredRow*> some = rows.some(kFewRows);
  const std::vector<ColumnMap> maps = column_maps(in.k.columns);
  std::vector<double> apart(maps.size());
  parallel_for(std::ssize(maps), threads_of(rows.options()), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    apart[at] = rows.apart(some, [&](const MeasuredRow& row) {
      return rows.output(rows.weights(row, rows.scores_from(row, maps[at].from), row.seen),
                         row.head / rows.shape().group, rows.few_columns());
    });
  });
  for (std::size_t i = 0; i < maps.size(); ++i)
    if (apart[i] < kExplained)
      mistakes.add("permuted_columns", fmt::format("of K's rows {} (measured)", maps[i].text),
                   [&](AttentionMistake& m) {
                     m.inputs.k = mistakes.operands().with_columns(in.k, maps[i].from);
                   });
}

void measure_columns_of_v(const MeasuredRows& rows, AttentionMistakes& mistakes) {
  const AttentionInputs& in = rows.inputs();
  constexpr std::size_t kFewRows = 8;
  const std::vector<const MeasuredRow*> some = rows.some(kFewRows);
  for (const ColumnMap& map : column_maps(in.v.columns)) {
    const double apart = rows.apart(some, [&](const MeasuredRow& row) {
      const RowWeights w = rows.weights(row, row.scores, row.seen);
      std::vector<double> o(static_cast<std::size_t>(rows.few_columns()), 0.0);
      double sum = w.sink;
      for (std::int64_t j = row.seen.begin; j < row.seen.end; ++j) {
        const double p = w.p[static_cast<std::size_t>(j)];
        const float* v = rows.v_row(row.head / rows.shape().group, j);
        sum += p;
        for (std::int64_t c = 0; c < std::ssize(o); ++c)
          o[static_cast<std::size_t>(c)] += p * static_cast<double>(v[map.from(j, c)]);
      }
      for (double& one : o) one /= sum;
      return o;
    });
    if (apart < kExplained)
      mistakes.add("permuted_columns", fmt::format("of V's rows {} (measured)", map.text),
                   [&](AttentionMistake& m) {
                     m.inputs.v = mistakes.operands().with_columns(in.v, map.from);
                   });
  }
}

/// The bit that is taken to place `of`.
std::int64_t place(const std::array<std::int64_t, 5>& bits, std::int64_t of) {
  return std::ranges::find(bits, of) - bits.begin();
}

/// Rows of V or K whose numbers within groups of 32 have their bits in another order, as fragments
/// of 8-bit operands have.
void measure_bits_of_rows(const MeasuredRows& rows, AttentionMistakes& mistakes) {
  const std::int64_t n = rows.shape().n;
  constexpr std::size_t kFewRows = 8;
  const std::vector<const MeasuredRow*> some = rows.some(kFewRows);
  struct Found {
    double apart;
    std::string text;
    bool of_v;
    std::function<std::int64_t(std::int64_t)> from;
  };
  std::vector<Found> found;
  std::array<std::int64_t, 5> bits{0, 1, 2, 3, 4};
  while (std::next_permutation(bits.begin(), bits.end())) {
    const auto from = [bits, n](std::int64_t row) {
      std::int64_t to = row / 32 * 32;
      for (std::size_t i = 0; i < bits.size(); ++i) to += (row >> i & 1) << bits[i];
      return to < n ? to : row;
    };
    for (const bool of_v : {true, false})
      found.push_back(
          {0.0,
           fmt::format("in each group of 32 rows of {}, row b4 b3 b2 b1 b0 is row b{} b{} b{} b{} "
                       "b{} (measured)",
                       of_v ? "V" : "K", place(bits, 4), place(bits, 3), place(bits, 2),
                       place(bits, 1), place(bits, 0)),
           of_v, from});
  }
  parallel_for(std::ssize(found), threads_of(rows.options()), [&](std::int64_t i) {
    Found& one = found[static_cast<std::size_t>(i)];
    one.apart = rows.apart(some, [&](const MeasuredRow& row) {
      RowWeights w = rows.weights(row, row.scores, one.of_v ? row.seen : SeenColumns{0, n});
      std::vector<double> o(static_cast<std::size_t>(rows.few_columns()), 0.0);
      double sum = w.sink;
      for (std::int64_t j = row.seen.begin; j < row.seen.end; ++j) {
        const std::int64_t other = one.from(j);
        const double p = w.p[static_cast<std::size_t>(one.of_v ? j : other)];
        const float* v = rows.v_row(row.head / rows.shape().group, one.of_v ? other : j);
        sum += p;
        for (std::size_t c = 0; c < o.size(); ++c) o[c] += p * static_cast<double>(v[c]);
      }
      for (double& value : o) value /= sum;
      return o;
    });
  });
  std::ranges::stable_sort(found, {}, &Found::apart);
  constexpr std::size_t kMost = 2;
  for (std::size_t i = 0; i < kMost && found[i].apart < kExplained; ++i)
    mistakes.add("permuted_rows", found[i].text, [&](AttentionMistake& m) {
      const Found& one = found[i];
      AttentionOperand& x = one.of_v ? m.inputs.v : m.inputs.k;
      x = mistakes.operands().with_rows(x, n, one.from);
    });
}

}  // namespace

void measure_pages(const MeasuredRows& rows, AttentionMistakes& mistakes) {
  if (rows.all().empty()) return;
  std::set<std::int64_t, std::greater<>> sizes{rows.options().kv_tile, 256, 128, 64, 32, 16};
  std::deque<Pages> pages;  // what was found refers to them
  std::vector<PageFault> found;
  for (const std::int64_t size : sizes) {
    const std::int64_t count = (rows.shape().n + size - 1) / size;
    if (count < 2 || count > kMostPages) continue;
    // Smaller pages have to explain more.
    constexpr double kClearly = 0.8;
    const double coarser = found.empty() ? 1.0 : kClearly * found.front().apart;
    std::vector<PageFault> own = pages.emplace_back(rows, mistakes, size).run();
    std::erase_if(own, [&](const PageFault& one) { return one.apart >= coarser; });
    found.insert(found.begin(), own.begin(), own.end());
  }
  std::ranges::stable_sort(found, {}, &PageFault::apart);
  constexpr std::size_t kMost = 6;
  for (std::size_t i = 0; i < std::min(kMost, found.size()); ++i)
    mistakes.add(found[i].name, found[i].text, found[i].change);
  measure_columns_of_k(rows, mistakes);
  measure_columns_of_v(rows, mistakes);
  measure_bits_of_rows(rows, mistakes);
}

}  // namespace fp8lab
