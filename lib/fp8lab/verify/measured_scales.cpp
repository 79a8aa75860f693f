// Scales, measured: with the scales of one operand known, an output is linear in those of the
// other.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/product/scale_variants.hpp"
#include "fp8lab/verify/attempt.hpp"
#include "fp8lab/verify/measure.hpp"
#include "fp8lab/verify/scale_mistakes.hpp"

namespace fp8lab {
namespace {

constexpr std::int64_t kFewestOthers = 64;  // outputs of a row that are looked at
constexpr std::int64_t kMostOthers = 512;   // and at most
constexpr std::int64_t kMostRows = 16;      // rows of a wide fit
constexpr double kScaleErrors = 8.0;        // standard errors that a number may be off
constexpr double kScaleRelative = 1e-3;     // and a share of itself; the judge decides by bits
constexpr double kMatching = 0.99;          // of the measured scales that a reading must give
constexpr double kMatchingLine = 0.9;       // of those of one row or tile

/// Measured scales of sampled rows of an operand and tiles of `block` terms.
struct MeasuredTable {
  Side side = Side::a;
  std::int64_t block = 0;
  std::vector<std::int64_t> rows;
  Doubles values;
  Doubles errors;
  double bias = 0.0;  ///< how far right outputs' scales are measured off, relative

  [[nodiscard]] std::int64_t tiles() const { return values.cols(); }
};

/// The scales of an operand in memory.
class ScalesInMemory {
 public:
  ScalesInMemory(const InverseScales& scales, const CodeMatrix& m)
      : scales_(scales), grid_(scale_grid(scales, m)) {}

  [[nodiscard]] const ScaleTileGrid& shape() const { return grid_; }
  [[nodiscard]] std::int64_t count() const { return std::ssize(scales_.values); }
  [[nodiscard]] double at(std::int64_t position) const {
    if (position == kNoScale) return 1.0;
    if (position == kZeroScale) return 0.0;
    const bool inside = position >= 0 && position < count();
    return inside ? static_cast<double>(scales_.values[static_cast<std::size_t>(position)])
                  : std::nan("");
  }
  /// The right position for an element's row and the tile that begins at term k.
  [[nodiscard]] std::int64_t right(std::int64_t row, std::int64_t k) const {
    return row / grid_.row_block * grid_.columns + k / grid_.k_block;
  }
  static constexpr std::int64_t kZeroScale = -3;

 private:
  const InverseScales& scales_;
  ScaleTileGrid grid_;
};

constexpr std::int64_t kOutside = -4;  ///< a position that is not in the grid

/// A way of reading: the position for a row of the matrix and tile number `tile` of the table.
using Reading = std::function<std::int64_t(std::int64_t row, std::int64_t tile)>;

class OneOperand {
 public:
  /// `right`: the product that was asked for, where the part's has a mistake in the other operand.
  OneOperand(const MeasuredPart& part, Side side, const Product& right)
      : part_(part),
        side_(side),
        p_(part.product.problem),
        scales_(side == Side::a ? p_.scale_a : p_.scale_b),
        grid_(scales_, side == Side::a ? p_.a : p_.b),
        others_(side == Side::a ? right.problem.scale_b : right.problem.scale_a),
        other_(others_, side == Side::a ? p_.b : p_.a) {}

  /// Whether the output is linear in this operand's scales; tries narrower tiles than the right
  /// ones where it is not.
  [[nodiscard]] bool fit() {
    const std::int64_t tile = common_scale_block(p_);
    for (const std::int64_t block : {tile, tile / 2, tile / 4})
      if (block >= std::min<std::int64_t>(tile, 16) && fit(block)) return true;
    return false;
  }
  [[nodiscard]] bool any_other() const {
    for (std::size_t i = 0; i < table_.rows.size(); ++i)
      for (std::int64_t t = 0; t < table_.tiles(); ++t)
        if (counts(i, t) && !near(i, t, right_value(i, t))) return true;
    return false;
  }

  void describe(Measurement& result) {
    letter_ = side_ == Side::a ? "a" : "b";
    of_ = side_ == Side::a ? "A's scale" : "B's scale";
    tiles_of_k(result);
    rows_of_grid(result);
    memory_orders(result);
    other_operand(result);
    functions(result);
    values_of_codes(result);
    anywhere(result);
    times_another(result);
    nowhere(result);
    table_lines(result);
  }

 private:
  [[nodiscard]] bool fit(std::int64_t block) {
    const std::int64_t blocks = ceil_divide(p_.a.k, block);
    const bool of_a = side_ == Side::a;
    const std::vector<std::int64_t>& own = of_a ? part_.sample.rows : part_.sample.columns;
    const std::int64_t wanted = std::clamp(3 * blocks, kFewestOthers, kMostOthers);
    const std::vector<std::int64_t> others =
        some(of_a ? part_.area.columns : part_.area.rows, wanted);
    if (std::ssize(others) < blocks + 4) return false;
    std::vector<std::int64_t> rows = own;
    if (blocks > 32 && std::ssize(rows) > kMostRows) {
      rows.clear();
      for (const std::int64_t i : spread(std::ssize(own), kMostRows))
        rows.push_back(own[static_cast<std::size_t>(i)]);
    }
    const Sample sample = of_a ? Sample{rows, others} : Sample{others, rows};
    const MeasuredView view(part_.product, part_.got, sample, part_.threads);
    table_ = {side_, block, rows, Doubles::Zero(std::ssize(rows), blocks),
              Doubles::Constant(std::ssize(rows), blocks, INFINITY)};
    return solve(view);
  }

  bool solve(const MeasuredView& view) {
    const bool of_a = side_ == Side::a;
    const std::int64_t blocks = table_.tiles();
    const std::int64_t others = of_a ? view.columns() : view.rows();
    std::vector<Doubles> parts;
    for (std::int64_t t = 0; t < blocks; ++t) {
      const std::int64_t at = t * table_.block;
      Doubles part = view.products(at, std::min(at + table_.block, view.k()));
      if (!of_a) part.transposeInPlace();
      for (std::int64_t j = 0; j < others; ++j)
        part.col(j) *= of_a ? view.scale_b(j, at) : view.scale_a(j, at);
      parts.push_back(std::move(part));
    }
    const double level = static_cast<double>(scales_.tensor_scale);
    double square = 0.0;
    std::int64_t solved = 0;
    Eigen::MatrixXd x(others, blocks);
    for (std::int64_t i = 0; i < std::ssize(table_.rows); ++i) {
      for (std::int64_t t = 0; t < blocks; ++t)
        x.col(t) = parts[static_cast<std::size_t>(t)].row(i).transpose();
      const Eigen::VectorXd y = of_a ? Eigen::VectorXd(view.sums().row(i).transpose())
                                     : Eigen::VectorXd(view.sums().col(i));
      const std::optional<Weights> w = least_squares(x, y);
      if (!w) continue;
      ++solved;
      square += w->left * w->left;
      table_.values.row(i) = w->values.transpose() / level;
      table_.errors.row(i) = w->errors.transpose() / std::abs(level);
      calibrate(x,
                of_a ? Eigen::VectorXd(view.right_output_sums().row(i).transpose())
                     : Eigen::VectorXd(view.right_output_sums().col(i)),
                i, level);
    }
    // Rows differ in how much is lost in their sums; the judge decides, not this.
    constexpr double kMoreThanUsual = 4.0;
    return solved > 0 &&
           view.fits(std::sqrt(square / static_cast<double>(solved)) / kMoreThanUsual);
  }

  /// The same fit of the right outputs: an accumulator that truncates makes all scales smaller.
  void calibrate(const Eigen::MatrixXd& x, const Eigen::VectorXd& y, std::int64_t i, double level) {
    const std::optional<Weights> w = least_squares(x, y);
    if (!w) return;
    for (std::int64_t t = 0; t < table_.tiles(); ++t) {
      const double right = right_value(static_cast<std::size_t>(i), t) * level;
      const double off = std::abs(w->values(t) - right) - kScaleErrors * w->errors(t);
      if (std::isfinite(off) && right != 0.0)
        table_.bias = std::max(table_.bias, off / std::abs(right));
    }
  }
  [[nodiscard]] double tolerance(std::size_t i, std::int64_t t) const {
    const auto row = static_cast<std::int64_t>(i);
    return kScaleErrors * table_.errors(row, t) +
           (kScaleRelative + 3.0 * table_.bias) * std::abs(table_.values(row, t));
  }
  [[nodiscard]] double value(std::size_t i, std::int64_t t) const {
    return table_.values(static_cast<std::int64_t>(i), t);
  }
  /// Whether an entry was measured well enough to tell scales apart.
  [[nodiscard]] bool counts(std::size_t i, std::int64_t t) const {
    const double size = std::max(std::abs(value(i, t)), std::abs(right_value(i, t)));
    return tolerance(i, t) < 0.3 * size;
  }
  [[nodiscard]] bool near(std::size_t i, std::int64_t t, double x) const {
    return std::abs(value(i, t) - x) <= tolerance(i, t);
  }
  [[nodiscard]] double right_value(std::size_t i, std::int64_t t) const {
    return scales_.empty() ? 1.0 : grid_.at(grid_.right(table_.rows[i], t * table_.block));
  }

  /// Whether a function of the entry (row number, tile) gives the measured scales.
  template <typename ValueOf>
  [[nodiscard]] bool matches(const ValueOf& value_of) const {
    std::size_t all = 0;
    std::size_t same = 0;
    for (std::size_t i = 0; i < table_.rows.size(); ++i)
      for (std::int64_t t = 0; t < table_.tiles(); ++t) {
        if (!counts(i, t)) continue;
        ++all;
        same += near(i, t, value_of(i, t)) ? 1 : 0;
        if (all == 64 && 2 * same < all) return false;
      }
    return all > 0 && static_cast<double>(same) >= kMatching * static_cast<double>(all);
  }
  [[nodiscard]] bool reads(const Reading& reading) const {
    std::size_t known = 0;
    std::size_t all = 0;
    for (std::size_t i = 0; i < table_.rows.size(); ++i)
      for (std::int64_t t = 0; t < table_.tiles(); ++t) {
        ++all;
        known += reading(table_.rows[i], t) != kOutside ? 1 : 0;
      }
    return 4 * known > 3 * all && matches([&](std::size_t i, std::int64_t t) {
             const std::int64_t at = reading(table_.rows[i], t);
             return at == kOutside ? value(i, t) : grid_.at(at);
           });
  }
  /// The candidate whose scales most entries of a line have, if nearly all have them; the first
  /// one of several. `same(candidate, n)`: whether entry n does, or nothing if it does not count.
  template <typename Same>
  [[nodiscard]] static std::optional<std::int64_t> source_of_line(
      const std::vector<std::int64_t>& candidates, std::int64_t entries, const Same& same) {
    std::optional<std::int64_t> best;
    double most = kMatchingLine;
    for (const std::int64_t candidate : candidates) {
      double all = 0.0;
      double alike = 0.0;
      for (std::int64_t n = 0; n < entries; ++n) {
        const std::optional<bool> one = same(candidate, n);
        all += one ? 1.0 : 0.0;
        alike += one && *one ? 1.0 : 0.0;
      }
      const double share = all == 0.0 ? 1.0 : alike / all;
      if (share == 1.0) return candidate;
      if (share > most) best = candidate, most = share;
    }
    return best;
  }
  /// Positions outside of the grid may hold anything.
  [[nodiscard]] bool near_reading(std::size_t i, std::int64_t t, std::int64_t at) const {
    return at == kOutside || near(i, t, grid_.at(at));
  }

  void add(Measurement& result, std::string name, std::string text,
           std::function<float(std::int64_t row, std::int64_t tile)> scale) const {
    result.mistakes.push_back({std::move(name), std::move(text),
                               [this_part = &part_.product, side = side_, block = table_.block,
                                scale = std::move(scale)](const Sample& sample) {
                                 return take_with_scales_of(*this_part, sample, side, block, scale);
                               }});
  }
  void add_reading(Measurement& result, const std::string& name, const std::string& text,
                   const Reading& reading) const {
    add(result, fmt::format("{}_{}", name, letter_), fmt::format("{}{}", of_, text),
        [grid = grid_, reading, table = table_](std::int64_t row, std::int64_t tile) {
          const std::int64_t at = reading(row, tile);
          if (at != kOutside) return static_cast<float>(grid.at(at));
          const auto line = std::ranges::find(table.rows, row) - table.rows.begin();
          if (line == std::ssize(table.rows)) return 0.0F;
          const double measured = table.values(line, tile);
          return std::abs(measured) <= kScaleErrors * table.errors(line, tile)
                     ? 0.0F
                     : static_cast<float>(measured);
        });
  }

  /// "each tile of K has the scale of tile ...", the same in all rows.
  void tiles_of_k(Measurement& result) const {
    if (scales_.empty() || table_.tiles() < 2) return;
    std::vector<std::int64_t> from;
    std::vector<std::int64_t> to;
    for (std::int64_t t = 0; t < table_.tiles(); ++t) {
      const std::optional<std::int64_t> source = source_of_tile(t);
      if (!source) return;
      from.push_back(t);
      to.push_back(*source);
    }
    const Reading reading = [grid = grid_, to](std::int64_t row, std::int64_t tile) {
      const std::int64_t column = to[static_cast<std::size_t>(tile)];
      return column < 0 ? column : grid.right(row, 0) + column;
    };
    add_reading(result, "scale_of_other_k_tile", fmt::format(" (measured): {}", tiles_text(to)),
                reading);
  }
  /// The column of the grid whose scales tile `t` has in all rows: its own one if that fits.
  [[nodiscard]] std::optional<std::int64_t> source_of_tile(std::int64_t t) const {
    const std::int64_t own = t * table_.block / grid_.shape().k_block;
    std::vector<std::int64_t> candidates{own};
    for (std::int64_t by = 1; by < grid_.shape().columns; ++by)
      for (const std::int64_t column : {own - by, own + by})
        if (column >= 0 && column < grid_.shape().columns) candidates.push_back(column);
    candidates.push_back(kNoScale);
    candidates.push_back(ScalesInMemory::kZeroScale);
    return source_of_line(
        candidates, std::ssize(table_.rows),
        [&](std::int64_t column, std::int64_t n) -> std::optional<bool> {
          const auto i = static_cast<std::size_t>(n);
          if (!counts(i, t)) return std::nullopt;
          return near(i, t,
                      grid_.at(column < 0 ? column : grid_.right(table_.rows[i], 0) + column));
        });
  }
  [[nodiscard]] std::string tiles_text(std::span<const std::int64_t> to) const {
    std::vector<std::int64_t> own;
    std::vector<std::int64_t> of;
    std::string special;
    for (std::size_t t = 0; t < to.size(); ++t) {
      const auto tile = static_cast<std::int64_t>(t);
      const std::int64_t begin = tile * table_.block;
      if (to[t] >= 0) {
        own.push_back(begin / grid_.shape().k_block);
        of.push_back(to[t]);
      } else {
        special += fmt::format("{}[{}, {}) {}", special.empty() ? "" : ", ", begin,
                               std::min(begin + table_.block, p_.a.k),
                               to[t] == kNoScale ? "not scaled" : "left out");
      }
    }
    std::string moved = own == of ? "" : rule_of(own, of, grid_.shape().columns).text;
    if (!moved.empty())
      moved = table_.block == grid_.shape().k_block
                  ? fmt::format("tile i of K has that of tile {}", moved)
                  : fmt::format("{} terms of tile i of K have that of tile {}", table_.block,
                                half_text(to));
    if (special.empty()) return moved;
    return fmt::format("the terms {}{}", special, moved.empty() ? "" : "; " + moved);
  }
  /// Parts of tiles: which of them read another tile's scale.
  [[nodiscard]] std::string half_text(std::span<const std::int64_t> to) const {
    const std::int64_t parts = grid_.shape().k_block / table_.block;
    std::string text;
    int listed = 0;
    for (std::size_t t = 0; t < to.size(); ++t) {
      const std::int64_t own = static_cast<std::int64_t>(t) / parts;
      if (to[t] == own || to[t] < 0 || listed == 4) continue;
      ++listed;
      text += fmt::format("{}{} (part {} of tile {})", text.empty() ? "" : ", ", to[t],
                          static_cast<std::int64_t>(t) % parts, own);
    }
    return text + (listed == 4 ? " ..." : "");
  }

  /// Each row has the scales of another row, in all tiles.
  void rows_of_grid(Measurement& result) const {
    if (scales_.empty() || grid_.shape().rows < 2) return;
    std::vector<std::int64_t> from;
    std::vector<std::int64_t> sources;
    bool distinct = false;
    for (std::size_t i = 0; i < table_.rows.size(); ++i) {
      const std::optional<std::int64_t> source = source_of_row(i);
      if (!source) return;
      const std::int64_t own = table_.rows[i] / grid_.shape().row_block;
      from.push_back(own);
      sources.push_back(*source);
      distinct = distinct || *source != own;
    }
    if (!distinct) return;
    const PositionRule rule = rule_of(from, sources, grid_.shape().rows);
    const bool single = grid_.shape().row_block == 1;
    add_reading(result, "scale_of_other_row",
                fmt::format(" (measured): row {}i has that of row {}", single ? "" : "of tiles ",
                            rule.text),
                [rule, grid = grid_, block = table_.block](std::int64_t row, std::int64_t tile) {
                  const std::int64_t own = row / grid.shape().row_block;
                  const std::int64_t source =
                      std::clamp<std::int64_t>(rule.source(own), 0, grid.shape().rows - 1);
                  return grid.right(row, tile * block) + (source - own) * grid.shape().columns;
                });
  }
  [[nodiscard]] std::optional<std::int64_t> source_of_row(std::size_t i) const {
    const std::int64_t rows = grid_.shape().rows;
    const std::int64_t own = table_.rows[i] / grid_.shape().row_block;
    std::vector<std::int64_t> candidates;
    for (std::int64_t by = 0; by < rows; ++by)
      for (const std::int64_t row : {own + by, own - by})
        if (row >= 0 && row < rows) candidates.push_back(row);
    return source_of_line(
        candidates, table_.tiles(), [&](std::int64_t row, std::int64_t t) -> std::optional<bool> {
          if (!counts(i, t)) return std::nullopt;
          return near(
              i, t,
              grid_.at(row * grid_.shape().columns + t * table_.block / grid_.shape().k_block));
        });
  }
  /// An order of a grid in memory: row-major or column-major, its lines padded.
  struct Order {
    bool by_columns = false;
    std::int64_t stride = 0;
    [[nodiscard]] std::int64_t place(std::int64_t row, std::int64_t column) const {
      return by_columns ? column * stride + row : row * stride + column;
    }
    [[nodiscard]] std::string text() const {
      return fmt::format("{} with {} scales to a {}", by_columns ? "column-major" : "row-major",
                         stride, by_columns ? "column" : "row");
    }
  };
  [[nodiscard]] std::vector<Order> orders() const {
    const ScaleTileGrid& g = grid_.shape();
    std::vector<Order> all;
    for (const bool by_columns : {false, true}) {
      const std::int64_t own = by_columns ? g.rows : g.columns;
      std::set<std::int64_t> strides;
      for (const std::int64_t to : {1, 2, 4, 8, 16, 32, 64, 128}) strides.insert(round_up(own, to));
      for (std::int64_t less = 1; less <= std::min<std::int64_t>(own - 1, 4); ++less)
        strides.insert(own - less);
      for (std::int64_t more = 1; more <= 4; ++more) strides.insert(own + more);
      for (const std::int64_t stride : strides) all.push_back({by_columns, stride});
    }
    return all;
  }

  /// The whole grid in one order of memory, read as if it were in another one or from an offset.
  void memory_orders(Measurement& result) const {
    const ScaleTileGrid& g = grid_.shape();
    if (scales_.empty() || grid_.count() < 4) return;
    for (const Order& lies : orders()) {
      if (lies.stride < (lies.by_columns ? g.rows : g.columns)) continue;
      for (const Order& read : orders())
        if (memory_order(lies, read, 0, result)) return;
      for (std::int64_t offset = -2 * g.columns; offset <= 2 * g.columns; ++offset)
        if (memory_order(lies, lies, offset, result)) return;
    }
  }
  bool memory_order(const Order& lies, const Order& read, std::int64_t offset,
                    Measurement& result) const {
    const ScaleTileGrid& g = grid_.shape();
    if (offset == 0 && lies.by_columns == read.by_columns && lies.stride == read.stride)
      return false;
    const Reading reading = [=, block = table_.block](std::int64_t row, std::int64_t tile) {
      const std::int64_t at = read.place(row / g.row_block, tile * block / g.k_block) + offset;
      const std::int64_t line = at < 0 ? -1 : at / lies.stride;
      const std::int64_t in_line = at < 0 ? -1 : at % lies.stride;
      const std::int64_t r = lies.by_columns ? in_line : line;
      const std::int64_t c = lies.by_columns ? line : in_line;
      // Padding, and what lies behind the grid: unknown to the measurement.
      return r < 0 || r >= g.rows || c < 0 || c >= g.columns ? kOutside : r * g.columns + c;
    };
    if (!plausible(reading) || !reads(reading)) return false;
    add_reading(result, "scale_in_other_order",
                offset == 0
                    ? fmt::format(" (measured): the grid is {}, and was read as {}", lies.text(),
                                  read.text())
                    : fmt::format(" (measured): read {} scales too {} in memory ({})",
                                  std::abs(offset), offset > 0 ? "far" : "early", lies.text()),
                reading);
    // What lies behind the grid is not known, but measured.
    for (const std::int64_t row : table_.rows)
      for (std::int64_t t = 0; t < table_.tiles(); ++t)
        result.mistakes.back().rough |= reading(row, t) == kOutside;
    return true;
  }
  /// Looks at a few entries first.
  [[nodiscard]] bool plausible(const Reading& reading) const {
    int off = 0;
    for (std::size_t i = 0; i < table_.rows.size(); i += 1 + table_.rows.size() / 6)
      for (std::int64_t t = 0; t < table_.tiles(); t += 1 + table_.tiles() / 4)
        if (counts(i, t) && !near_reading(i, t, reading(table_.rows[i], t)) && ++off > 2)
          return false;
    return true;
  }

  /// The other operand's scales in place of its own.
  void other_operand(Measurement& result) const {
    const bool of_a = side_ == Side::a;
    if (scales_.empty() || others_.empty()) return;
    const auto position = [other = other_](std::int64_t row, std::int64_t k) {
      return std::min(row / other.shape().row_block, other.shape().rows - 1) *
                 other.shape().columns +
             k / other.shape().k_block;
    };
    for (const bool both : {false, true}) {
      const auto scale = [=, grid = grid_, other = other_, block = table_.block](
                             std::int64_t row, std::int64_t tile) {
        return other.at(position(row, tile * block)) *
               (both ? grid.at(grid.right(row, tile * block)) : 1.0);
      };
      if (!matches([&](std::size_t i, std::int64_t t) { return scale(table_.rows[i], t); }))
        continue;
      add(result, fmt::format("scale_{}_{}other_operand", letter_, both ? "times_" : "of_"),
          fmt::format("{} (measured): {} the scales of {}", of_,
                      both ? "multiplied by" : "in its place", of_a ? "B" : "A"),
          [scale](std::int64_t row, std::int64_t tile) {
            return static_cast<float>(scale(row, tile));
          });
    }
  }

  /// A number times the right scale: one for all, one for each tile or one for each row.
  void functions(Measurement& result) const {
    const auto times = [&](const std::string& name, const std::string& text,
                           const std::function<double(std::int64_t, std::int64_t)>& factor) {
      if (!matches([&](std::size_t i, std::int64_t t) {
            return right_value(i, t) * factor(table_.rows[i], t);
          }))
        return;
      const bool scaled = !scales_.empty();
      add(result, fmt::format("{}_{}", name, letter_), text,
          [grid = grid_, block = table_.block, scaled, factor](std::int64_t row,
                                                               std::int64_t tile) {
            const double right = scaled ? grid.at(grid.right(row, tile * block)) : 1.0;
            return static_cast<float>(right * factor(row, tile));
          });
    };
    constexpr double kSimple[]{0.0, 2.0, -1.0, 0.5, 4.0, 0.25, 3.0};
    std::vector<double> of_tiles;
    for (std::int64_t t = 0; t < table_.tiles(); ++t) {
      std::optional<double> found;
      for (const double factor : {1.0, 0.0, 2.0, -1.0, 0.5, 4.0, 0.25, 3.0, 8.0, 16.0}) {
        bool all = true;
        for (std::size_t i = 0; i < table_.rows.size() && all; ++i)
          all = !counts(i, t) || near(i, t, factor * right_value(i, t));
        if (all && !found) found = factor;
      }
      if (!found) break;
      of_tiles.push_back(*found);
    }
    if (std::ssize(of_tiles) == table_.tiles() && table_.tiles() > 1) {
      std::string text;
      for (std::int64_t t = 0; t < table_.tiles(); ++t)
        if (of_tiles[static_cast<std::size_t>(t)] != 1.0)
          text += fmt::format("{}[{}, {}) x {}", text.empty() ? "" : ", ", t * table_.block,
                              std::min((t + 1) * table_.block, p_.a.k),
                              of_tiles[static_cast<std::size_t>(t)]);
      times("k_tile_weight", fmt::format("tiles of K with another weight (measured): {}", text),
            [of_tiles](std::int64_t, std::int64_t t) {
              return of_tiles[static_cast<std::size_t>(t)];
            });
    }
    constant_or_power(result);
    for (const double factor : kSimple)
      times("scale_times", fmt::format("{} (measured): {} times the right one", of_, factor),
            [factor](std::int64_t, std::int64_t) { return factor; });
  }

  /// The right scale times that of another place, which a register still held.
  void times_another(Measurement& result) const {
    if (scales_.empty()) return;
    struct Place {
      std::int64_t rows;
      std::int64_t tiles;
      std::string_view text;
    };
    constexpr Place kPlaces[]{{0, -1, "the tile of K before"},
                              {-128, 0, "128 rows before"},
                              {-64, 0, "64 rows before"},
                              {-1, 0, "the row before"}};
    const std::int64_t block = table_.block;
    for (const Place& place : kPlaces) {
      const auto scale = [grid = grid_, place, block](std::int64_t row, std::int64_t tile) {
        const double right = grid.at(grid.right(row, tile * block));
        if (row + place.rows < 0 || tile + place.tiles < 0) return right;
        return right * grid.at(grid.right(row + place.rows, (tile + place.tiles) * block));
      };
      if (!matches([&](std::size_t i, std::int64_t t) { return scale(table_.rows[i], t); }))
        continue;
      add(result, fmt::format("scale_times_another_{}", letter_),
          fmt::format("{} (measured): the right one times that of {}: applied on top of it", of_,
                      place.text),
          [scale](std::int64_t row, std::int64_t tile) {
            return static_cast<float>(scale(row, tile));
          });
      return;
    }
  }

  /// The number of few digits that is near enough to a measured one.
  [[nodiscard]] double rounded(double x) const {
    return of_few_decimals(x, 4, [&](double at) {
      return std::abs(at - x) <= (kScaleRelative + 3.0 * table_.bias) * std::abs(x);
    });
  }

  /// One number for all scales, or a power of each.
  void constant_or_power(Measurement& result) const {
    double xy = 0.0;
    double xx = 0.0;
    std::vector<double> all;
    for (std::size_t i = 0; i < table_.rows.size(); ++i)
      for (std::int64_t t = 0; t < table_.tiles(); ++t) {
        if (!counts(i, t) || !(value(i, t) > 0.0) || !(right_value(i, t) > 0.0)) continue;
        all.push_back(value(i, t));
        const double x = std::log2(right_value(i, t));
        xy += x * std::log2(value(i, t));
        xx += x * x;
      }
    if (all.size() < 8) return;
    std::ranges::nth_element(all, all.begin() + std::ssize(all) / 2);
    const double middle = rounded(all[all.size() / 2]);
    const double power = xx > 0.0 ? std::round(4.0 * xy / xx) / 4.0 : 1.0;
    if (matches([&](std::size_t, std::int64_t) { return middle; })) {
      add(result, fmt::format("scale_{}_of_all_tiles_the_same", letter_),
          fmt::format("{} (measured): {} everywhere", of_, measured_text(middle)),
          [middle](std::int64_t, std::int64_t) { return static_cast<float>(middle); });
      result.mistakes.back().rough = true;
    } else if (power != 1.0 && matches([&](std::size_t i, std::int64_t t) {
                 return std::pow(right_value(i, t), power);
               }))
      add(result, fmt::format("scale_{}_to_a_power", letter_),
          fmt::format("{} (measured): the right one to the power {}", of_, power),
          [grid = grid_, power, block = table_.block](std::int64_t row, std::int64_t tile) {
            return static_cast<float>(std::pow(grid.at(grid.right(row, tile * block)), power));
          });
  }

  /// Every measured scale stands somewhere in the tensor, without a rule.
  void anywhere(Measurement& result) const {
    if (scales_.empty() || grid_.count() < 4) return;
    std::vector<std::pair<double, std::int64_t>> sorted;
    for (std::int64_t at = 0; at < grid_.count(); ++at) sorted.emplace_back(grid_.at(at), at);
    std::ranges::sort(sorted);
    std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> found;
    std::set<double> used;
    std::string examples;
    int listed = 0;
    for (std::size_t i = 0; i < table_.rows.size(); ++i)
      for (std::int64_t t = 0; t < table_.tiles(); ++t) {
        const std::int64_t own = grid_.right(table_.rows[i], t * table_.block);
        if (!counts(i, t) || near(i, t, grid_.at(own))) continue;
        auto least = std::ranges::lower_bound(sorted, std::pair{value(i, t), std::int64_t{-1}});
        if (least == sorted.end()) --least;
        if (least != sorted.begin() &&
            value(i, t) - std::prev(least)->first < std::abs(least->first - value(i, t)))
          --least;
        if (!near(i, t, least->first)) return;
        found[{table_.rows[i], t}] = least->second;
        used.insert(least->first);
        if (listed++ < 3)
          examples += fmt::format("{}(row {}, tile {}) has that of (row {}, tile {})",
                                  examples.empty() ? "" : ", ", table_.rows[i], t,
                                  least->second / grid_.shape().columns,
                                  least->second % grid_.shape().columns);
      }
    // Few distinct scales match by chance.
    if (found.empty() || used.size() < 8) return;
    add_reading(
        result, "scale_misplaced",
        fmt::format(" (measured) read from other places: {}{}", examples, listed > 3 ? " ..." : ""),
        [found, grid = grid_, block = table_.block](std::int64_t row, std::int64_t tile) {
          const auto at = found.find({row, tile});
          return at == found.end() ? grid.right(row, tile * block) : at->second;
        });
    // Of scales that are nearly equal the wrong one may have been taken.
    result.mistakes.back().rough = result.mistakes.back().last = true;
  }

  /// Another number for each right one: the table by which the kernel reads the codes of scales.
  void values_of_codes(Measurement& result) const {
    if (scales_.empty() || is_one_factor()) return;
    struct Sum {
      double of = 0.0;
      double weights = 0.0;
    };
    std::map<double, Sum> sums;
    std::set<std::int64_t> cells;
    for (std::size_t i = 0; i < table_.rows.size(); ++i)
      for (std::int64_t t = 0; t < table_.tiles(); ++t) {
        if (!std::isfinite(tolerance(i, t))) continue;
        Sum& sum = sums[right_value(i, t)];
        const double weight = 1.0 / std::max(std::pow(tolerance(i, t), 2.0), 1e-300);
        sum.of += weight * value(i, t);
        sum.weights += weight;
        cells.insert(grid_.right(table_.rows[i], t * table_.block));
      }
    // A table needs numbers that stand in many places: else any fault of scales is one.
    if (4 * sums.size() > cells.size()) return;
    std::map<double, double> reads;
    bool measured = false;  // not read: no number of few bits is near
    for (const auto& [right, sum] : sums) {
      const double mean = sum.of / sum.weights;
      reads[right] = short_number(mean, 1.0 / std::sqrt(sum.weights));
      measured = measured || reads[right] == mean;
    }
    // One number for all codes is no table of them.
    const double first = reads.empty() ? 0.0 : reads.begin()->second;
    if (std::ranges::all_of(reads, [&](const auto& one) { return one.second == first; })) return;
    const auto read = [reads](double right) {
      const auto found = reads.find(right);
      return found == reads.end() ? right : found->second;
    };
    if (!matches([&](std::size_t i, std::int64_t t) { return read(right_value(i, t)); })) return;
    std::string text;
    int listed = 0;
    for (const auto& [right, is] : reads)
      if (is != right && listed++ < 4)
        text += fmt::format("{}{} for {}", listed == 1 ? "" : ", ", measured_text(is),
                            measured_text(right));
    add(result, fmt::format("scale_codes_read_otherwise_{}", letter_),
        fmt::format("{} (measured) is another number for each code: {}{}", of_, text,
                    listed > 4 ? " ..." : ""),
        [grid = grid_, read, block = table_.block](std::int64_t row, std::int64_t tile) {
          return static_cast<float>(read(grid.at(grid.right(row, tile * block))));
        });
    result.mistakes.back().rough = measured;
    result.mistakes.back().error = measured ? relative_error() : 0.0;
    result.mistakes.back().alone = true;
  }
  /// The number of few significant bits, first of a code of UE4M3, that is near a measured one.
  [[nodiscard]] static double short_number(double x, double tolerance) {
    if (x == 0.0 || !std::isfinite(x)) return x;
    return of_few_bits(x, 3, 7, [&](double at) { return std::abs(at - x) <= tolerance; });
  }

  /// Whether all scales are the right ones times one number: that is seen in the outputs, too.
  [[nodiscard]] bool is_one_factor() const {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < table_.rows.size(); ++i)
      for (std::int64_t t = 0; t < table_.tiles(); ++t)
        if (counts(i, t)) ratios.push_back(value(i, t) / right_value(i, t));
    if (ratios.empty()) return false;
    std::ranges::nth_element(ratios, ratios.begin() + std::ssize(ratios) / 2);
    const double factor = ratios[ratios.size() / 2];
    return matches([&](std::size_t i, std::int64_t t) { return factor * right_value(i, t); });
  }

  /// Numbers that no reading of the tensor gives, in most places.
  void nowhere(Measurement& result) const {
    if (scales_.empty()) return;
    std::size_t all = 0;
    std::size_t other = 0;
    for (std::size_t i = 0; i < table_.rows.size(); ++i)
      for (std::int64_t t = 0; t < table_.tiles(); ++t) {
        if (!counts(i, t)) continue;
        ++all;
        other += near(i, t, right_value(i, t)) || near(i, t, 0.0) ? 0 : 1;
      }
    if (other < 8 || 4 * other < 3 * all) return;
    if (is_one_factor()) return;
    add(result, fmt::format("scale_{}_not_of_its_tensor", letter_),
        fmt::format("{} (measured): numbers that are not the tensor's in any order: of another "
                    "tensor, computed otherwise, or not initialised",
                    of_),
        [grid = grid_, table = table_](std::int64_t row, std::int64_t tile) {
          const auto line = std::ranges::find(table.rows, row) - table.rows.begin();
          return static_cast<float>(line == std::ssize(table.rows)
                                        ? grid.at(grid.right(row, tile * table.block))
                                        : table.values(line, tile));
        });
    result.mistakes.back().rough = result.mistakes.back().last = true;
    result.mistakes.back().error = relative_error();
  }
  /// How far sums under measured scales are off, relative to the magnitudes of their terms.
  [[nodiscard]] double relative_error() const {
    std::vector<double> errors;
    for (std::size_t i = 0; i < table_.rows.size(); ++i)
      for (std::int64_t t = 0; t < table_.tiles(); ++t)
        if (counts(i, t)) errors.push_back(tolerance(i, t) / std::abs(value(i, t)));
    if (errors.empty()) return 0.0;
    std::ranges::nth_element(errors, errors.begin() + std::ssize(errors) / 2);
    return errors[errors.size() / 2] / std::sqrt(static_cast<double>(p_.a.k));
  }

  void table_lines(Measurement& result) const {
    constexpr std::size_t kRows = 4;
    constexpr std::int64_t kTiles = 8;
    constexpr double kSure =
        0.5;  // error of a number that is shown, relative to it or to the right one
    for (std::size_t i = 0; i < std::min(kRows, table_.rows.size()); ++i) {
      std::string line = fmt::format("{} of row {}, measured / right:", of_, table_.rows[i]);
      for (std::int64_t t = 0; t < std::min(kTiles, table_.tiles()); ++t) {
        const double size = std::max(std::abs(value(i, t)), std::abs(right_value(i, t)));
        line += fmt::format(" {}", tolerance(i, t) <= kSure * size
                                       ? measured_text(value(i, t) / right_value(i, t))
                                       : "?");
      }
      result.lines.push_back(line + (table_.tiles() > kTiles ? " ..." : ""));
    }
  }

  const MeasuredPart& part_;
  Side side_;
  const GemmProblem& p_;
  const InverseScales& scales_;
  ScalesInMemory grid_;
  const InverseScales& others_;
  ScalesInMemory other_;
  MeasuredTable table_;
  std::string letter_;
  std::string of_;
};

/// Scales of both operands that are wrong in the same tiles of K.
class BothOperands {
 public:
  explicit BothOperands(const MeasuredPart& part)
      : part_(part),
        block_(common_scale_block(part.product.problem)),
        view_(part.product, part.got,
              {some(part.area.rows, kLines), some(part.area.columns, kLines)}, part.threads),
        tiles_(ceil_divide(view_.k(), block_)) {}

  /// The pair of tiles whose scales each tile has: the one that leaves least, tile by tile, until
  /// nothing changes.
  void measure(Measurement& result) {
    if (tiles_ < 2 || tiles_ > kMostTiles || !(view_.rms() > 0.0)) return;
    set_up();
    for (int pass = 0; pass < kPasses; ++pass) {
      bool changed = false;
      for (std::int64_t t = 0; t < tiles_; ++t) changed |= choose(t);
      if (!changed) break;
    }
    const double square = left_.squaredNorm() / static_cast<double>(left_.size());
    if (of_a_ == own_ || of_b_ == own_ || !view_.fits(std::sqrt(square) / 4.0)) return;
    const auto text = [&](const std::vector<std::int64_t>& to) {
      return rule_of(own_, to, tiles_).text;
    };
    result.mistakes.push_back(
        {of_a_ == of_b_ ? "scale_of_other_k_tile_a_and_b" : "scales_of_other_k_tiles",
         of_a_ == of_b_
             ? fmt::format("both scales (measured): tile i of K has those of tile {}", text(of_a_))
             : fmt::format("both scales (measured): tile i of K has A's of tile {}, B's of tile {}",
                           text(of_a_), text(of_b_)),
         [product = &part_.product, block = block_, a = of_a_, b = of_b_](const Sample& sample) {
           return with_both(*product, sample, block, a, b);
         }});
  }

 private:
  static constexpr std::int64_t kLines = 96;
  static constexpr std::int64_t kMostTiles = 64;
  static constexpr int kPasses = 8;

  void set_up() {
    scale_a_.resize(view_.rows(), tiles_);
    scale_b_.resize(view_.columns(), tiles_);
    left_ = view_.sums();
    for (double& x : left_.reshaped()) x = std::isfinite(x) ? x : 0.0;
    for (std::int64_t t = 0; t < tiles_; ++t) {
      const std::int64_t at = t * block_;
      for (std::int64_t i = 0; i < view_.rows(); ++i) scale_a_(i, t) = view_.scale_a(i, at);
      for (std::int64_t j = 0; j < view_.columns(); ++j) scale_b_(j, t) = view_.scale_b(j, at);
      products_.push_back(view_.products(at, std::min(at + block_, view_.k())));
      own_.push_back(t);
    }
    of_a_ = of_b_ = own_;
    for (std::int64_t t = 0; t < tiles_; ++t) left_ -= scaled(t);
    for (Eigen::Index i = 0; i < left_.size(); ++i)
      if (!std::isfinite(view_.sums().data()[i])) left_.data()[i] = 0.0;
    const Eigen::VectorXd norms =
        view_.sums()
            .unaryExpr([](double x) { return std::isfinite(x) ? x : 0.0; })
            .rowwise()
            .norm();
    weights_ = norms.unaryExpr([](double x) { return x > 0.0 ? 1.0 / (x * x) : 0.0; });
  }
  [[nodiscard]] Doubles scaled(std::int64_t t) const {
    const auto at = static_cast<std::size_t>(t);
    return scale_a_.col(of_a_[at]).asDiagonal() * products_[at] *
           scale_b_.col(of_b_[at]).asDiagonal();
  }
  bool choose(std::int64_t t) {
    const auto at = static_cast<std::size_t>(t);
    left_ += scaled(t);
    const Doubles& p = products_[at];
    // What is left for each pair, without what is left for none; rows count alike.
    const Doubles a = weights_.asDiagonal() * scale_a_;
    const Doubles gain = a.transpose() * left_.cwiseProduct(p) * scale_b_;
    const Doubles size = (weights_.asDiagonal() * scale_a_.cwiseAbs2()).transpose() *
                         p.cwiseAbs2() * scale_b_.cwiseAbs2();
    std::int64_t of_a = of_a_[at];
    std::int64_t of_b = of_b_[at];
    const auto left = [&](std::int64_t x, std::int64_t y) { return size(x, y) - 2.0 * gain(x, y); };
    double least = left(of_a, of_b) - 1e-12 * std::abs(left(of_a, of_b));
    for (std::int64_t x = 0; x < tiles_; ++x)
      for (std::int64_t y = 0; y < tiles_; ++y)
        if (left(x, y) < least) least = left(x, y), of_a = x, of_b = y;
    const bool changed = of_a != of_a_[at] || of_b != of_b_[at];
    of_a_[at] = of_a;
    of_b_[at] = of_b;
    left_ -= scaled(t);
    return changed;
  }
  static std::optional<Product> with_both(const Product& product, const Sample& sample,
                                          std::int64_t block, const std::vector<std::int64_t>& a,
                                          const std::vector<std::int64_t>& b) {
    const auto scales = [&](const InverseScales& of, const CodeMatrix& m,
                            const std::vector<std::int64_t>& to) {
      return [&, grid = ScalesInMemory(of, m)](std::int64_t row, std::int64_t tile) {
        return static_cast<float>(
            grid.at(grid.right(row, to[static_cast<std::size_t>(tile)] * block)));
      };
    };
    const GemmProblem& p = product.problem;
    const std::optional<Product> first =
        take_with_scales_of(product, sample, Side::a, block, scales(p.scale_a, p.a, a));
    if (!first) return std::nullopt;
    const GemmProblem& q = first->problem;
    return take_with_scales_of(
        *first, {spread(first->rows(), first->rows()), spread(first->columns(), first->columns())},
        Side::b, block, scales(q.scale_b, q.b, b));
  }

  const MeasuredPart& part_;
  std::int64_t block_;
  MeasuredView view_;
  std::int64_t tiles_;
  Doubles scale_a_, scale_b_;      ///< of rows and tiles
  std::vector<Doubles> products_;  ///< of tiles, without scales
  Doubles left_;                   ///< what the chosen pairs do not explain
  Eigen::VectorXd weights_;        ///< of rows
  std::vector<std::int64_t> own_, of_a_, of_b_;
};

/// A known mistake in one operand's scales, under which the output is linear in the other's.
class KnownInOther {
 public:
  KnownInOther(const MeasuredPart& part, Side side)
      : part_(part),
        side_(side),
        block_(common_scale_block(part.product.problem)),
        view_(part.product, part.got, sample_of(part, side, block_), part.threads) {}

  void measure(Measurement& result) const {
    const Side other = side_ == Side::a ? Side::b : Side::a;
    const std::string_view letter = other == Side::a ? "a" : "b";
    const std::string_view of = other == Side::a ? "A's scale" : "B's scale";
    if (lines() < ceil_divide(view_.k(), block_) + 4) return;
    for (const ScaleMistake& known : scale_mistakes(part_.product)) {
      const auto few = attempt([&] { return known.take(part_.product, view_.sample(), other); });
      if (!few || common_scale_block(few->problem) != block_ || !linear_under(*few)) continue;
      const Sample all{spread(part_.product.rows(), part_.product.rows()),
                       spread(part_.product.columns(), part_.product.columns())};
      const std::optional<Product> whole = known.take(part_.product, all, other);
      if (!whole) continue;
      const auto held = std::make_shared<const Product>(*whole);
      const MeasuredPart under{*held, part_.got, part_.area, part_.sample, part_.threads};
      Measurement found;
      OneOperand operand(under, side_, part_.product);
      if (operand.fit() && operand.any_other()) operand.describe(found);
      std::erase_if(found.mistakes,
                    [](const MeasuredMistake& mistake) { return mistake.last || mistake.alone; });
      for (MeasuredMistake& mistake : found.mistakes) {
        mistake.name =
            fmt::format("{}_and_{}", fmt::format(fmt::runtime(known.name), letter), mistake.name);
        mistake.text =
            fmt::format("{}; {}", fmt::format(fmt::runtime(known.text), of), mistake.text);
        mistake.take = [held, take = std::move(mistake.take)](const Sample& sample) {
          return take(sample);
        };
        result.mistakes.push_back(std::move(mistake));
      }
      if (!found.mistakes.empty()) return;
    }
  }

 private:
  static constexpr std::int64_t kRows = 4;

  static Sample sample_of(const MeasuredPart& part, Side side, std::int64_t block) {
    const bool of_a = side == Side::a;
    const std::int64_t tiles = ceil_divide(part.product.problem.a.k, block);
    const std::vector<std::int64_t> rows =
        some(of_a ? part.sample.rows : part.sample.columns, kRows);
    const std::vector<std::int64_t> others =
        some(of_a ? part.area.columns : part.area.rows,
             std::clamp(3 * tiles, kFewestOthers, kMostOthers));
    return of_a ? Sample{rows, others} : Sample{others, rows};
  }
  [[nodiscard]] std::int64_t lines() const {
    return side_ == Side::a ? view_.columns() : view_.rows();
  }
  [[nodiscard]] bool linear_under(const Product& wrong) const {
    const bool of_a = side_ == Side::a;
    const GemmProblem& p = wrong.problem;
    const ScaleLookup scales = of_a ? ScaleLookup(p.scale_b, p.b) : ScaleLookup(p.scale_a, p.a);
    const std::int64_t rows = of_a ? view_.rows() : view_.columns();
    const std::int64_t tiles = ceil_divide(view_.k(), block_);
    double square = 0.0;
    for (std::int64_t i = 0; i < rows; ++i) {
      Eigen::MatrixXd x(lines(), tiles);
      for (std::int64_t t = 0; t < tiles; ++t)
        for (std::int64_t j = 0; j < lines(); ++j)
          x(j, t) = part_of(t)(of_a ? i : j, of_a ? j : i) *
                    static_cast<double>(scales.at(j, t * block_));
      const std::optional<Weights> w =
          least_squares(x, of_a ? Eigen::VectorXd(view_.sums().row(i).transpose())
                                : Eigen::VectorXd(view_.sums().col(i)));
      if (!w) return false;
      square += w->left * w->left / static_cast<double>(rows);
    }
    return view_.fits(std::sqrt(square) / 4.0);
  }
  [[nodiscard]] const Doubles& part_of(std::int64_t t) const {
    while (std::ssize(parts_) <= t) {
      const std::int64_t at = std::ssize(parts_) * block_;
      parts_.push_back(view_.products(at, std::min(at + block_, view_.k())));
    }
    return parts_[static_cast<std::size_t>(t)];
  }

  const MeasuredPart& part_;
  Side side_;
  std::int64_t block_;
  MeasuredView view_;
  mutable std::vector<Doubles> parts_;
};

}  // namespace

void measure_scales(const MeasuredPart& part, Measurement& result) {
  for (const Side side : {Side::a, Side::b}) {
    const GemmProblem& p = part.product.problem;
    if ((side == Side::a ? p.scale_a : p.scale_b).empty()) continue;
    OneOperand operand(part, side, part.product);
    if (operand.fit() && operand.any_other()) operand.describe(result);
  }
}

void measure_both_scales(const MeasuredPart& part, Measurement& result) {
  const GemmProblem& p = part.product.problem;
  if (p.scale_a.empty() || p.scale_b.empty()) return;
  BothOperands(part).measure(result);
  for (const Side side : {Side::a, Side::b})
    if (result.mistakes.empty()) KnownInOther(part, side).measure(result);
}

}  // namespace fp8lab
