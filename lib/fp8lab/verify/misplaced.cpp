#include "fp8lab/verify/misplaced.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fp8lab/tensors/codes.hpp"

namespace fp8lab {
namespace {

constexpr std::int64_t kFarStride = 256;  // elements between the length of a row and its stride
constexpr std::int64_t kMostWork = std::int64_t{1} << 24;  // codes compared, of one tile shape

struct Place {
  std::int64_t row = 0;
  std::int64_t column = 0;
};

class Misplacements {
 public:
  Misplacements(const OutputPair& outputs, const Sample& sample, Judge& judge)
      : o_(outputs),
        sample_(sample),
        judge_(judge),
        width_(static_cast<std::size_t>(format(outputs.format).bytes())) {}

  void transposed() {
    if (o_.rows < 2 || o_.columns < 2) return;
    judge_.consider("transposed_output", "written as if it were column-major",
                    codes([&](Place at) { return golden(at.column * o_.rows + at.row); }));
  }

  /// Tiles of this shape that hold the right values of other ones.
  void exchanged(std::int64_t tile_rows, std::int64_t tile_columns, const std::string& name,
                 const std::string& text) {
    if (tile_rows > o_.rows || tile_columns > o_.columns) return;
    if (tile_rows == o_.rows && tile_columns == o_.columns) return;
    const std::optional<Moves> moves = moves_of(tile_rows, tile_columns);
    if (!moves) return judge_.dismiss();
    const std::int64_t by = tile_rows == 1 ? -moves->by.row : -moves->by.column;
    const bool lines = tile_rows == 1 || tile_columns == 1;
    const auto code = [&](Place at) {
      const Place tile{at.row / tile_rows, at.column / tile_columns};
      const std::optional<Place>& from = moves->sources.at({tile.row, tile.column});
      if (from)
        return golden((from->row * tile_rows + at.row % tile_rows) * o_.columns +
                      from->column * tile_columns + at.column % tile_columns);
      const Place there{tile.row + moves->by.row, tile.column + moves->by.column};
      const bool end = moves->shift && !inside(there, tile_rows, tile_columns);
      const std::int64_t index = at.row * o_.columns + at.column;
      return end ? got(index) : golden(index);
    };
    if (lines && moves->shift)
      judge_.consider(fmt::format("{}_shifted_{}", name, by),
                      fmt::format("{} written {} further on", text, by), codes(code));
    else
      judge_.consider(fmt::format("{}_exchanged", name),
                      fmt::format("{} hold the right values of other outputs", text), codes(code));
  }

  /// Stored with another distance between rows, or, where the kernel's output is column-major,
  /// between columns: elements that were not stored there may hold anything.
  void restrided() {
    for (const Strides order : {Strides{false, false, 0}, {true, false, 0}, {true, true, 0}}) {
      const std::int64_t length = order.stored_columns ? o_.rows : o_.columns;
      if (length < 2 || o_.rows * o_.columns == length) continue;
      for (std::int64_t stride = std::max(length / 2 + 1, length - kFarStride);
           stride <= length + kFarStride; ++stride) {
        const Strides tried{order.stored_columns, order.read_columns, stride};
        if (stride == length || !looks_like(tried)) continue;
        judge_.consider(
            order.stored_columns ? "other_column_stride" : "other_row_stride",
            fmt::format("{} of {} elements were stored {} elements apart{}",
                        order.stored_columns ? "columns" : "rows", length, stride,
                        order.stored_columns && !order.read_columns ? ", and read as rows" : ""),
            codes([&](Place at) {
              const std::optional<std::int64_t> from = source_of(at, tried);
              return from ? golden(*from) : got(at.row * o_.columns + at.column);
            }));
        return;
      }
    }
  }

 private:
  /// How an output lies in memory, and how it is read.
  struct Strides {
    bool stored_columns;  ///< the kernel stores columns one after the other, not rows
    bool read_columns;
    std::int64_t stride;  ///< elements from one such line to the next
  };
  /// The element of the output that was stored where (row, column) is read; nothing between lines.
  [[nodiscard]] std::optional<std::int64_t> source_of(Place at, const Strides& s) const {
    const std::int64_t length = s.stored_columns ? o_.rows : o_.columns;
    const std::int64_t index =
        s.read_columns ? at.column * o_.rows + at.row : at.row * o_.columns + at.column;
    // Later lines overwrite earlier ones.
    const std::int64_t line = std::min(index / s.stride, o_.rows * o_.columns / length - 1);
    const std::int64_t within = index - line * s.stride;
    if (within >= length) return std::nullopt;
    return s.stored_columns ? within * o_.columns + line : line * o_.columns + within;
  }
  /// Whether most of a few wrong elements are such, and most of them were stored at all.
  [[nodiscard]] bool looks_like(const Strides& strides) const {
    constexpr std::int64_t kFew = 8;
    int wrong = 0;
    int gaps = 0;
    int same = 0;
    for (const std::int64_t i : spread(std::ssize(sample_.rows), kFew))
      for (const std::int64_t j : spread(std::ssize(sample_.columns), kFew)) {
        const Place at{sample_.rows[static_cast<std::size_t>(i)],
                       sample_.columns[static_cast<std::size_t>(j)]};
        const std::uint32_t code = got(at.row * o_.columns + at.column);
        if (code == golden(at.row * o_.columns + at.column)) continue;
        const std::optional<std::int64_t> from = source_of(at, strides);
        ++(from ? wrong : gaps);
        same += from && golden(*from) == code ? 1 : 0;
      }
    return wrong >= 8 && wrong > gaps && 10 * same >= 9 * wrong;
  }
  [[nodiscard]] std::uint32_t golden(std::int64_t index) const {
    return code_at(o_.format, o_.golden, static_cast<std::size_t>(index));
  }
  [[nodiscard]] std::uint32_t got(std::int64_t index) const {
    return code_at(o_.format, o_.got, static_cast<std::size_t>(index));
  }

  template <typename Code>
  [[nodiscard]] std::vector<std::uint32_t> codes(const Code& code) const {
    std::vector<std::uint32_t> result;
    for (const std::int64_t row : sample_.rows)
      for (const std::int64_t column : sample_.columns) result.push_back(code(Place{row, column}));
    return result;
  }

  /// A whole tile of the output.
  [[nodiscard]] bool inside(Place tile, std::int64_t tile_rows, std::int64_t tile_columns) const {
    return tile.row >= 0 && tile.column >= 0 && (tile.row + 1) * tile_rows <= o_.rows &&
           (tile.column + 1) * tile_columns <= o_.columns;
  }

  [[nodiscard]] bool equal(Place tile, Place from, std::int64_t tile_rows,
                           std::int64_t tile_columns) {
    const auto at = [&](Place p, std::int64_t row) {
      return static_cast<std::size_t>((p.row * tile_rows + row) * o_.columns +
                                      p.column * tile_columns) *
             width_;
    };
    for (std::int64_t row = 0; row < tile_rows; ++row) {
      ++work_;
      if (std::memcmp(&o_.got[at(tile, row)], &o_.golden[at(from, row)],
                      static_cast<std::size_t>(tile_columns) * width_) != 0)
        return false;
    }
    return true;
  }

  /// The tile of the golden output that a tile of the output is, its own place first.
  [[nodiscard]] std::optional<Place> source_of(Place tile, std::int64_t tile_rows,
                                               std::int64_t tile_columns) {
    if (!inside(tile, tile_rows, tile_columns)) return std::nullopt;
    if (equal(tile, tile, tile_rows, tile_columns)) return tile;
    for (std::int64_t row = 0; row < o_.rows / tile_rows; ++row)
      for (std::int64_t column = 0; column < o_.columns / tile_columns; ++column) {
        if (work_ > kMostWork) return std::nullopt;
        if (equal(tile, {row, column}, tile_rows, tile_columns)) return Place{row, column};
      }
    return std::nullopt;
  }

  /// Where the sample's tiles come from.
  struct Moves {
    std::map<std::pair<std::int64_t, std::int64_t>, std::optional<Place>> sources;
    bool shift = false;  ///< all that moved did so by one distance; the ends may hold anything
    Place by{};          ///< that distance: from there to here
  };

  /// Nothing where too many tiles come from nowhere, none moved, or those that did are copies of
  /// tiles that are right where they belong.
  [[nodiscard]] std::optional<Moves> moves_of(std::int64_t tile_rows, std::int64_t tile_columns) {
    Moves moves;
    work_ = 0;
    std::set<std::pair<std::int64_t, std::int64_t>> distances;
    std::int64_t moved = 0;
    std::int64_t copies = 0;
    std::int64_t lost = 0;
    for (const std::int64_t row : sample_.rows)
      for (const std::int64_t column : sample_.columns) {
        const Place tile{row / tile_rows, column / tile_columns};
        const auto [entry, is_new] = moves.sources.try_emplace({tile.row, tile.column});
        if (!is_new) continue;
        const std::optional<Place> from = source_of(tile, tile_rows, tile_columns);
        entry->second = from;
        if (!from) {
          if (++lost > 2 + moved) return std::nullopt;
        } else if (from->row != tile.row || from->column != tile.column) {
          ++moved;
          copies += equal(*from, *from, tile_rows, tile_columns) ? 1 : 0;
          distances.insert({from->row - tile.row, from->column - tile.column});
        }
      }
    moves.shift = distances.size() == 1 && moved > 1;
    if (moved == 0 || (!moves.shift && 2 * copies > moved)) return std::nullopt;
    if (moves.shift) moves.by = {distances.begin()->first, distances.begin()->second};
    const bool lines = tile_rows == 1 || tile_columns == 1;
    if (moves.shift && !lines && 2 * copies > moved) return std::nullopt;
    return moves;
  }

  const OutputPair& o_;
  const Sample& sample_;
  Judge& judge_;
  std::size_t width_;
  std::int64_t work_ = 0;
};

}  // namespace

void try_misplacements(const OutputPair& outputs, const Sample& sample, Judge& judge) {
  Misplacements places(outputs, sample, judge);
  places.transposed();
  places.exchanged(1, outputs.columns, "rows", "rows");
  places.exchanged(outputs.rows, 1, "columns", "columns");
  places.restrided();
  constexpr std::array<std::array<std::int64_t, 2>, 6> kTiles{
      {{128, 256}, {256, 128}, {128, 128}, {64, 128}, {128, 64}, {64, 64}}};
  for (const auto& [rows, columns] : kTiles)
    places.exchanged(rows, columns, fmt::format("tiles_{}x{}", rows, columns),
                     fmt::format("tiles of {} x {}", rows, columns));
}

}  // namespace fp8lab
