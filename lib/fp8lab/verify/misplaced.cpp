#include "fp8lab/verify/misplaced.hpp"

#include <fmt/format.h>

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

 private:
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
  constexpr std::array<std::array<std::int64_t, 2>, 6> kTiles{
      {{128, 256}, {256, 128}, {128, 128}, {64, 128}, {128, 64}, {64, 64}}};
  for (const auto& [rows, columns] : kTiles)
    places.exchanged(rows, columns, fmt::format("tiles_{}x{}", rows, columns),
                     fmt::format("tiles of {} x {}", rows, columns));
}

}  // namespace fp8lab
