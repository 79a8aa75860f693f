#include "fp8lab/verify/cast_tiles.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/verify/judge.hpp"
#include "fp8lab/verify/measure.hpp"

namespace fp8lab {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kSlack = 0x1p-22;       // relative: products with scales are rounded
constexpr double kOutliers = 0.01;       // of a tile's elements that another mistake may have
constexpr std::size_t kMostTiles = 512;  // wrong ones that are measured
constexpr std::size_t kRightTiles = 64;  // right ones, beside them
constexpr std::int64_t kMostElements = 1 << 20;
constexpr std::size_t kFewestWrong = 8;  // codes: fewer fit many scales

/// What a tile's codes say of its cast.
struct MeasuredTile {
  std::int64_t row = 0;  ///< of the grid
  std::int64_t column = 0;
  bool wrong = false;
  bool fits = false;  ///< one scale and one rounding give its codes
  double low = 0.0;   ///< bounds of the scale
  double high = 0.0;
  RoundingMode rounding = RoundingMode::nearest_even;

  [[nodiscard]] bool holds(double scale) const {
    return fits && scale >= low * (1.0 - kSlack) && scale <= high * (1.0 + kSlack);
  }
  [[nodiscard]] double middle() const { return std::isfinite(high) ? 0.5 * (low + high) : low; }
};

class Tiles {
 public:
  explicit Tiles(const TiledCast& cast) : cast_(cast), f_(format(cast.spec.format)) {
    for (std::uint32_t code = 0; code <= f_.magnitude_mask(); ++code)
      if (const double value = decode(f_, code); std::isfinite(value) && value >= 0.0)
        magnitudes_.push_back(value);
    std::ranges::sort(magnitudes_);
    choose();
  }

  Diagnosis diagnose() {
    Judge judge({cast_.spec.format, cast_.spec.policy}, words_of(cast_.golden),
                words_of(cast_.got));
    std::vector<MeasuredTile*> wrong;
    for (MeasuredTile& tile : tiles_)
      if (tile.wrong && tile.fits) wrong.push_back(&tile);
    if (!wrong.empty() && wrong_codes_ >= kFewestWrong) hypotheses(wrong, judge);
    Diagnosis diagnosis = judge.finish();
    if (diagnosis.causes.empty() && wrong_codes_ >= kFewestWrong) diagnosis.measured = lines();
    return diagnosis;
  }

 private:
  template <typename Visit>
  void each_element(const MeasuredTile& tile, const Visit& visit) const {
    const std::int64_t bottom = std::min((tile.row + 1) * cast_.tiles.rows, cast_.rows);
    const std::int64_t right = std::min((tile.column + 1) * cast_.tiles.columns, cast_.columns);
    for (std::int64_t i = tile.row * cast_.tiles.rows; i < bottom; ++i)
      for (std::int64_t j = tile.column * cast_.tiles.columns; j < right; ++j)
        visit(static_cast<std::size_t>(i * cast_.columns + j));
  }
  [[nodiscard]] float given(std::int64_t row, std::int64_t column) const {
    return cast_.scales[static_cast<std::size_t>(row * cast_.tile_columns() + column)];
  }

  /// Wrong tiles, and some right ones.
  void choose() {
    const std::int64_t size = cast_.tiles.rows * cast_.tiles.columns;
    std::size_t wrong = 0;
    std::size_t right = 0;
    for (std::int64_t row = 0; row < cast_.tile_rows(); ++row)
      for (std::int64_t column = 0; column < cast_.tile_columns(); ++column) {
        if (std::ssize(tiles_) * size > kMostElements) return;
        MeasuredTile tile{.row = row, .column = column};
        std::size_t of_tile = 0;
        each_element(tile,
                     [&](std::size_t at) { of_tile += cast_.golden[at] != cast_.got[at] ? 1 : 0; });
        tile.wrong = of_tile > 0;
        wrong_codes_ += of_tile;
        std::size_t& count = tile.wrong ? wrong : right;
        if (count++ >= (tile.wrong ? kMostTiles : kRightTiles)) continue;
        if (tile.wrong) measure(tile);
        tiles_.push_back(tile);
      }
  }
  [[nodiscard]] std::vector<std::uint32_t> words_of(std::span<const std::byte> codes) const {
    std::vector<std::uint32_t> words;
    for (const MeasuredTile& tile : tiles_)
      each_element(tile, [&](std::size_t at) {
        words.push_back(std::to_integer<std::uint32_t>(codes[at]));
      });
    return words;
  }

  /// Magnitudes before the cast that a rounding gives this value.
  struct Bounds {
    double low = 0.0;
    double high = 0.0;
  };
  [[nodiscard]] Bounds before(double magnitude, RoundingMode rounding) const {
    const auto at = std::ranges::lower_bound(magnitudes_, magnitude);
    const double below = at == magnitudes_.begin() ? 0.0 : *std::prev(at);
    double above = kInfinity;
    if (std::next(at) != magnitudes_.end()) above = *std::next(at);
    if (rounding == RoundingMode::toward_zero) return {magnitude, above};
    return {0.5 * (below + magnitude), 0.5 * (magnitude + above)};
  }

  void measure(MeasuredTile& tile) const {
    for (const double outliers : {0.0, kOutliers})
      for (const RoundingMode rounding : {RoundingMode::nearest_even, RoundingMode::toward_zero})
        if (!tile.fits) fit(tile, rounding, outliers);
  }
  void fit(MeasuredTile& tile, RoundingMode rounding, double outliers) const {
    std::vector<double> lows;
    std::vector<double> highs;
    each_element(tile, [&](std::size_t at) {
      const double x = static_cast<double>(cast_.x[at]);
      const double value = decode(f_, std::to_integer<std::uint32_t>(cast_.got[at]));
      if (x == 0.0 || !std::isfinite(x) || !std::isfinite(value)) return;
      const Bounds bounds = before(std::abs(value), rounding);
      const bool opposite = value != 0.0 && std::signbit(value) != std::signbit(x);
      lows.push_back(opposite ? kInfinity : bounds.low / std::abs(x));
      highs.push_back(bounds.high / std::abs(x));
    });
    if (lows.size() < 2) return;
    const auto skipped =
        static_cast<std::ptrdiff_t>(std::ceil(outliers * static_cast<double>(lows.size())));
    std::ranges::sort(lows, std::greater{});
    std::ranges::sort(highs);
    if (skipped >= std::ssize(lows)) return;
    tile.low = lows[static_cast<std::size_t>(skipped)];
    tile.high = highs[static_cast<std::size_t>(skipped)];
    tile.rounding = rounding;
    tile.fits = tile.low <= tile.high * (1.0 + kSlack) && tile.low < kInfinity;
  }

  /// The codes of the sample if each wrong tile was cast under `scale` of it.
  [[nodiscard]] std::vector<std::uint32_t> codes_under(
      const std::function<double(const MeasuredTile&)>& scale) const {
    std::vector<std::uint32_t> codes;
    for (const MeasuredTile& tile : tiles_) {
      const bool other = tile.wrong && tile.fits;
      const auto by = other ? static_cast<float>(scale(tile)) : given(tile.row, tile.column);
      CastPolicy policy = cast_.spec.policy;
      if (other && tile.rounding == RoundingMode::toward_zero)
        policy.rounding = RoundingMode::toward_zero;
      each_element(tile, [&](std::size_t at) {
        codes.push_back(encode(f_, policy, canonical(cast_.x[at] * by)));
      });
    }
    return codes;
  }

  void hypotheses(const std::vector<MeasuredTile*>& wrong, Judge& judge) {
    const auto all = [&](const std::function<double(const MeasuredTile&)>& scale) {
      return std::ranges::all_of(
          wrong, [&](const MeasuredTile* tile) { return tile->holds(scale(*tile)); });
    };
    const auto consider = [&](const std::string& name, const std::string& text,
                              const std::function<double(const MeasuredTile&)>& scale) {
      return all(scale) && judge.consider(name, text + roundings(wrong), codes_under(scale));
    };
    const auto own = [&](const MeasuredTile& tile) {
      return static_cast<double>(given(tile.row, tile.column));
    };
    if (consider("rounding_of_tiles", "right scales (measured)", own)) return;
    double low = 0.0;
    double high = kInfinity;
    double least = 0.0;
    double most = kInfinity;
    for (const MeasuredTile* tile : wrong) {
      low = std::max(low, tile->low / own(*tile));
      high = std::min(high, tile->high / own(*tile));
      least = std::max(least, tile->low);
      most = std::min(most, tile->high);
    }
    if (low <= high) {
      const double factor = short_number(low, high);
      if (consider("scale_times",
                   fmt::format("the scale (measured): {:.6g} times the right one", factor),
                   [&](const MeasuredTile& tile) { return factor * own(tile); }))
        return;
    }
    if (other_tiles(wrong, consider)) return;
    if (consider(
            "scale_power_of_two", "the scale (measured) rounded down to a power of two",
            [&](const MeasuredTile& tile) { return std::exp2(std::floor(std::log2(own(tile)))); }))
      return;
    if (consider(
            "scale_power_of_two", "the scale (measured) rounded up to a power of two",
            [&](const MeasuredTile& tile) { return std::exp2(std::ceil(std::log2(own(tile)))); }))
      return;
    if (rounded_scales(own, consider)) return;
    if (least <= most && wrong.size() > 1) {
      const double scale = short_number(least, most);
      if (consider("scale_of_all_tiles_the_same",
                   fmt::format("the scale (measured): {:.6g} in all of them", scale),
                   [&](const MeasuredTile&) { return scale; }))
        return;
    }
    if (consider("other_scale_of_tiles",
                 fmt::format("the scale (measured) of {}: {}", counted(std::ssize(wrong), "tile"),
                             examples(wrong)),
                 [](const MeasuredTile& tile) { return tile.middle(); }))
      judge.call_vague();
  }

  /// The factor, or its inverse, which kernels store, in a format of 16 bits.
  template <typename Own, typename Consider>
  static bool rounded_scales(const Own& own, const Consider& consider) {
    for (const FormatId id : {FormatId::bf16, FormatId::f16})
      for (const bool inverse : {true, false}) {
        const auto rounded = [id](double x) {
          return decode(format(id), encode(format(id), kNvidiaNosat, static_cast<float>(x)));
        };
        if (consider("scale_rounded",
                     fmt::format("the {} (measured) rounded to {}",
                                 inverse ? "scale" : "factor of x", format(id).name),
                     [&](const MeasuredTile& tile) {
                       return inverse ? 1.0 / rounded(1.0 / own(tile)) : rounded(own(tile));
                     }))
          return true;
      }
    return false;
  }

  /// Each wrong tile has the scale of another one.
  template <typename Consider>
  bool other_tiles(const std::vector<MeasuredTile*>& wrong, const Consider& consider) const {
    const std::int64_t rows = cast_.tile_rows();
    const std::int64_t columns = cast_.tile_columns();
    const auto by_rule = [&](bool along_row) {
      std::vector<std::int64_t> from;
      std::vector<std::int64_t> to;
      const std::int64_t count = along_row ? columns : rows;
      for (const MeasuredTile* tile : wrong) {
        const std::int64_t own = along_row ? tile->column : tile->row;
        const auto source = nearest_other(own, count, [&](std::int64_t at) {
          return tile->holds(
              static_cast<double>(along_row ? given(tile->row, at) : given(at, tile->column)));
        });
        if (!source) return false;
        from.push_back(own);
        to.push_back(*source);
      }
      const PositionRule rule = rule_of(from, to, count);
      return consider(
          along_row ? "scale_of_other_tile" : "scale_of_other_row_of_tiles",
          fmt::format("the scale (measured): {} i of tiles has that of {} {}",
                      along_row ? "column" : "row", along_row ? "column" : "row", rule.text),
          [&, source = rule.source](const MeasuredTile& tile) {
            const std::int64_t at =
                std::clamp<std::int64_t>(source(along_row ? tile.column : tile.row), 0, count - 1);
            return static_cast<double>(along_row ? given(tile.row, at) : given(at, tile.column));
          });
    };
    if (by_rule(true) || by_rule(false)) return true;
    return anywhere(wrong, consider);
  }
  template <typename Consider>
  bool anywhere(const std::vector<MeasuredTile*>& wrong, const Consider& consider) const {
    std::vector<std::int64_t> from;
    std::vector<std::int64_t> to;
    const std::int64_t count = std::ssize(cast_.scales);
    if (count > 65536) return false;
    for (const MeasuredTile* tile : wrong) {
      const std::int64_t own = tile->row * cast_.tile_columns() + tile->column;
      const auto source = nearest_other(own, count, [&](std::int64_t at) {
        return tile->holds(static_cast<double>(cast_.scales[static_cast<std::size_t>(at)]));
      });
      if (!source) return false;
      from.push_back(own);
      to.push_back(*source);
    }
    const PositionRule rule = rule_of(from, to, count);
    return consider(
        "scale_misplaced",
        fmt::format("the scale (measured): number i in memory has that of number {}", rule.text),
        [&, source = rule.source](const MeasuredTile& tile) {
          const std::int64_t at = std::clamp<std::int64_t>(
              source(tile.row * cast_.tile_columns() + tile.column), 0, count - 1);
          return static_cast<double>(cast_.scales[static_cast<std::size_t>(at)]);
        });
  }

  /// The number of fewest binary digits within these bounds.
  static double short_number(double low, double high) {
    const double middle = 0.5 * (low + high);
    if (!(middle > 0.0) || !std::isfinite(middle)) return low;
    return of_few_bits(middle, 0, 23, [&](double at) { return at >= low && at <= high; });
  }
  [[nodiscard]] static std::string roundings(const std::vector<MeasuredTile*>& wrong) {
    const auto truncated = std::ranges::count_if(wrong, [](const MeasuredTile* tile) {
      return tile->rounding == RoundingMode::toward_zero;
    });
    if (truncated == 0) return "";
    if (truncated == std::ssize(wrong)) return "; truncated (round toward zero)";
    return fmt::format("; {} truncated (round toward zero)", counted(truncated, "tile"));
  }
  [[nodiscard]] std::string examples(const std::vector<MeasuredTile*>& wrong) const {
    constexpr std::size_t kListed = 4;
    std::string text;
    for (std::size_t i = 0; i < std::min(kListed, wrong.size()); ++i)
      text += fmt::format(
          "{}({}, {}) {:.4g} times the right one", i == 0 ? "" : ", ", wrong[i]->row,
          wrong[i]->column,
          wrong[i]->middle() / static_cast<double>(given(wrong[i]->row, wrong[i]->column)));
    return text + (wrong.size() > kListed ? " ..." : "");
  }

  /// Where each wrong code is the other one of the two next to the exact result: how many were
  /// rounded up, and how many stochastic rounding gives.
  [[nodiscard]] std::string either_neighbour() const {
    double up = 0.0;
    double expected = 0.0;
    double variance = 0.0;
    bool neighbours = true;
    for (const MeasuredTile& tile : tiles_)
      each_element(tile, [&](std::size_t at) {
        const double exact = std::abs(static_cast<double>(cast_.x[at]) *
                                      static_cast<double>(given(tile.row, tile.column)));
        const double got = std::abs(decode(f_, std::to_integer<std::uint32_t>(cast_.got[at])));
        const auto above = std::ranges::upper_bound(magnitudes_, exact);
        if (!std::isfinite(exact) || above == magnitudes_.end() || above == magnitudes_.begin())
          return;
        const double below = *std::prev(above);
        neighbours = neighbours && (got == below || (got == *above && exact > below));
        const double share = (exact - below) / (*above - below);
        up += got == *above ? 1.0 : 0.0;
        expected += share;
        variance += share * (1.0 - share);
      });
    if (!neighbours) return "";
    const bool stochastic = std::abs(up - expected) <= 5.0 * std::sqrt(variance) + 1.0;
    return fmt::format(
        "each wrong code is the other one of the two next to the exact result; {:.0f} magnitudes "
        "were rounded up, {} of stochastic rounding ({:.0f} +- {:.0f})",
        up, stochastic ? "as is to be expected" : "but not as is to be expected", expected,
        std::sqrt(variance));
  }

  /// What each of the first wrong tiles shows.
  [[nodiscard]] std::vector<std::string> lines() const {
    constexpr std::size_t kListed = 4;
    if (const std::string both = either_neighbour(); !both.empty()) return {both};
    std::vector<std::string> result;
    for (const MeasuredTile& tile : tiles_) {
      if (!tile.wrong || result.size() == kListed) continue;
      const double right = static_cast<double>(given(tile.row, tile.column));
      result.push_back(
          tile.fits
              ? fmt::format("tile ({}, {}): the scale is {:.4g} to {:.4g} times the right "
                            "one{}",
                            tile.row, tile.column, tile.low / right, tile.high / right,
                            tile.rounding == RoundingMode::toward_zero ? ", truncated" : "")
              : fmt::format("tile ({}, {}): no one scale gives its codes", tile.row, tile.column));
    }
    return result;
  }

  const TiledCast& cast_;
  const Format& f_;
  std::vector<double> magnitudes_;  ///< finite values of codes without sign, ascending
  std::vector<MeasuredTile> tiles_;
  std::size_t wrong_codes_ = 0;
};

/// What a right scale may have become, and the words for it.
struct ScaleChange {
  std::string text;
  std::function<float(float)> of;
};

std::vector<ScaleChange> scale_changes() {
  const auto rounded = [](FormatId id) {
    return [id](float x) {
      return static_cast<float>(decode(format(id), encode(format(id), kNvidiaNosat, x)));
    };
  };
  const auto power = [](double (*round)(double)) {
    return [round](float x) {
      return static_cast<float>(std::exp2(round(std::log2(static_cast<double>(x)))));
    };
  };
  return {
      {"the right ones inverted", [](float x) { return 1.0F / x; }},
      {"the right ones squared", [](float x) { return x * x; }},
      {"1 everywhere", [](float) { return 1.0F; }},
      {"the right ones rounded to bf16", rounded(FormatId::bf16)},
      {"the right ones rounded to f16", rounded(FormatId::f16)},
      {"the right ones rounded up to powers of two", power([](double x) { return std::ceil(x); })},
      {"the right ones rounded down to powers of two",
       power([](double x) { return std::floor(x); })},
      {"the nearest powers of two", power([](double x) { return std::round(x); })}};
}

/// The memory order in which a grid [rows, columns] of scales stands, where another one is right.
std::string order_of(std::span<const float> right, std::span<const float> got,
                     std::int64_t columns) {
  const std::int64_t rows = std::ssize(right) / columns;
  const auto column_major = [=](std::int64_t row, std::int64_t column) {
    return column * rows + row;
  };
  const auto blocked = [=](std::int64_t row, std::int64_t column) {
    return blocked_128x4_position(columns, row, column);
  };
  /// Whether place (row, column) of one grid is place `at(row, column)` in the memory of the other.
  const auto holds = [&](std::span<const float> here, std::span<const float> there,
                         const auto& at) {
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t column = 0; column < columns; ++column) {
        const std::int64_t place = at(row, column);
        if (place >= std::ssize(there) ||
            !same_scale(here[static_cast<std::size_t>(row * columns + column)],
                        there[static_cast<std::size_t>(place)]))
          return false;
      }
    return true;
  };
  if (holds(right, got, column_major)) return "they are the right ones in column-major order";
  if (holds(got, right, column_major))
    return "they are the right ones, read as if these were column-major";
  if (holds(right, got, blocked)) return "they are the right ones in blocks of 128 x 4";
  if (holds(got, right, blocked))
    return "they are the right ones, read as if these stood in blocks of 128 x 4";
  return "";
}

}  // namespace

bool same_scale(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

Diagnosis diagnose_tiles(const TiledCast& cast) { return Tiles(cast).diagnose(); }

std::vector<std::string> describe_scales(std::span<const float> right, std::span<const float> got,
                                         std::int64_t columns) {
  std::vector<std::size_t> wrong;
  for (std::size_t i = 0; i < right.size(); ++i)
    if (!same_scale(right[i], got[i])) wrong.push_back(i);
  if (wrong.empty()) return {};
  std::vector<std::string> lines;
  const auto place = [&](std::size_t at) {
    const auto i = static_cast<std::int64_t>(at);
    return fmt::format("({}, {})", i / columns, i % columns);
  };
  std::string first;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, wrong.size()); ++i)
    first += fmt::format("{}tile {} has {:.9g} (right: {:.9g})", i == 0 ? "" : ", ",
                         place(wrong[i]), got[wrong[i]], right[wrong[i]]);
  lines.push_back(fmt::format("{} of {} scales differ: {}{}", wrong.size(), right.size(), first,
                              wrong.size() > 3 ? " ..." : ""));
  const auto all = [&](const auto& holds) { return std::ranges::all_of(wrong, holds); };
  for (const ScaleChange& change : scale_changes())
    if (all([&](std::size_t i) { return same_scale(change.of(right[i]), got[i]); }))
      lines.push_back("they are " + change.text);
  const double factor = static_cast<double>(got[wrong[0]]) / static_cast<double>(right[wrong[0]]);
  if (all([&](std::size_t i) {
        const double one = static_cast<double>(got[i]) / static_cast<double>(right[i]);
        return std::abs(one - factor) <= 0x1p-21 * std::abs(factor);
      }))
    lines.push_back(fmt::format("they are {:.6g} times the right ones", factor));
  else if (all([&](std::size_t i) {
             return std::abs(static_cast<double>(got[i]) - static_cast<double>(right[i])) <=
                    0x1p-22 * std::abs(static_cast<double>(right[i]));
           }))
    lines.emplace_back("they are one or two units in the last place off: other operations");
  if (std::string order = order_of(right, got, columns); !order.empty()) {
    lines.push_back(std::move(order));
    return lines;
  }
  std::vector<std::int64_t> from;
  std::vector<std::int64_t> to;
  for (const std::size_t at : wrong) {
    if (right.size() > 65536) break;
    const auto own = static_cast<std::int64_t>(at);
    const auto source = nearest_other(own, std::ssize(right), [&](std::int64_t other) {
      return same_scale(right[static_cast<std::size_t>(other)], got[at]);
    });
    if (!source) break;
    from.push_back(own);
    to.push_back(*source);
  }
  if (from.size() == wrong.size())
    lines.push_back(fmt::format("number i in memory is that of number {}",
                                rule_of(from, to, std::ssize(right)).text));
  return lines;
}

}  // namespace fp8lab
