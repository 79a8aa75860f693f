#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "fp8lab/core/error.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/plots/draw.hpp"
#include "fp8lab/plots/gnuplot_text.hpp"
#include "fp8lab/plots/look.hpp"

namespace fp8lab {
namespace {

// Viridis, read off at nine places: even in lightness and safe for all colour vision.
constexpr std::array kPalette{"#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c",
                              "#28ae80", "#5ec962", "#addc30", "#fde725"};
constexpr std::size_t kMaxWrittenCells = 200;  // more than that, and numbers do not fit
constexpr double kDarkShades = 0.42;  // below, white text has the better contrast, above black

std::size_t widest(const std::vector<std::string>& labels) {
  std::size_t columns = 0;
  for (const std::string& label : labels) columns = std::max(columns, columns_of(label));
  return columns;
}

/// Labels below the map, wrapped to the width of a cell, or aslant where a word is wider.
std::string column_tics(const HeatMap& map) {
  const std::size_t beside = std::min<std::size_t>(widest(map.rows), 60) + 20;
  const std::size_t room = std::max<std::size_t>((118 - beside) / map.columns.size(), 4) - 1;
  std::vector<std::string> tics;
  bool aslant = false;
  for (std::size_t i = 0; i < map.columns.size(); ++i) {
    const std::vector<std::string> lines = wrap(map.columns[i], room);
    aslant = aslant || widest(lines) > room + 1;
    tics.push_back(fmt::format("{} {}", enhanced(fmt::format("{}", fmt::join(lines, "\n"))), i));
  }
  return fmt::format("set xtics ({}) scale 0{}\n", fmt::join(tics, ", "),
                     aslant ? " rotate by 30 right" : "");
}

std::string row_tics(const HeatMap& map) {
  std::vector<std::string> tics;
  for (std::size_t i = 0; i < map.rows.size(); ++i)
    tics.push_back(fmt::format("{} {}", enhanced(map.rows[i]), i));
  return fmt::format("set ytics ({}) scale 0\n", fmt::join(tics, ", "));
}

/// Where a value stands between the palette's ends, 0 to 1.
double shade_of(const HeatMap& map, const ColourRange& range, double value) {
  return map.log ? std::log(value / range.low) / std::log(range.high / range.low)
                 : (value - range.low) / (range.high - range.low);
}

struct Cells {
  std::string data;  ///< two blocks: cells with a colour, cells without
  std::size_t coloured = 0;
  std::size_t grey = 0;
};

/// `x y value text-colour number` for each cell but NaN, row by row from the bottom.
Cells cells_of(const HeatMap& map, const Axis& axis, const ColourRange& range) {
  Cells cells;
  const std::vector<std::string> texts = cell_texts(map);
  std::string grey;
  for (std::size_t i = 0; i < map.values.size(); ++i) {
    const double value = map.values[i];
    if (std::isnan(value)) continue;
    const bool show = can_show(axis, value);
    const int colour = show && shade_of(map, range, value) < kDarkShades ? 0xffffff : 0x000000;
    (show ? cells.data : grey) += fmt::format("{} {} {} {} \"{}\"\n", i % map.columns.size(),
                                              i / map.columns.size(), value, colour, texts[i]);
    ++(show ? cells.coloured : cells.grey);
  }
  const std::string heading = fmt::format("# {}\n# column row value\n", one_line(map.title));
  const std::string gap = cells.coloured > 0 && cells.grey > 0 ? "\n\n" : "";
  cells.data = heading + cells.data + gap + grey;
  return cells;
}

std::string note_of(const HeatMap& map, const ColourRange& range, std::size_t grey) {
  std::vector<std::string> notes;
  if (grey > 0)
    notes.push_back(fmt::format("grey: {} cell{} {}infinite", grey, grey == 1 ? "" : "s",
                                map.log ? "≤ 0 (log colours) or " : ""));
  if (range.beyond > 0)
    notes.push_back(fmt::format("colours end at {:.3g}: {} larger cell{} the last one", range.high,
                                range.beyond, range.beyond == 1 ? " has" : "s have"));
  return fmt::format("{}", fmt::join(notes, "; "));
}

std::string plot_command(const HeatMap& map, const Cells& cells) {
  const std::string boxes = "using 1:2:($1-0.5):($1+0.5):($2-0.5):($2+0.5)";
  std::vector<std::string> parts;
  if (cells.coloured > 0)
    parts.push_back(
        fmt::format("  '{}.dat' index 0 {}:3 with boxxyerror fc palette lw 1", map.name, boxes));
  if (cells.grey > 0)
    parts.push_back(fmt::format("  '{}.dat' index {} {} with boxxyerror fc rgb '#cccccc' lw 1",
                                map.name, cells.coloured > 0 ? 1 : 0, boxes));
  if (!parts.empty() && map.values.size() <= kMaxWrittenCells)
    parts.push_back(
        fmt::format("  '{}.dat' using 1:2:5:4 with labels tc rgb variable font ',11'", map.name));
  if (parts.empty()) parts.emplace_back("  1/0 notitle");
  return fmt::format("plot \\\n{}\n", fmt::join(parts, ", \\\n"));
}

std::string palette_script() {
  std::vector<std::string> stops;
  for (std::size_t i = 0; i < kPalette.size(); ++i)
    stops.push_back(fmt::format("{} '{}'", i, kPalette[i]));
  return fmt::format("set palette defined ({})\n", fmt::join(stops, ", "));
}

}  // namespace

void write_plot(const HeatMap& map, const std::filesystem::path& folder) {
  require_file_name("heat map name", map.name);
  const std::size_t expected = map.rows.size() * map.columns.size();
  require(expected == map.values.size() && expected > 0,
          fmt::format("heat map {}: values", map.name),
          fmt::format("rows x columns = {}, and at least one", expected),
          std::to_string(map.values.size()));
  const Axis axis{map.value_label, map.log, 10};
  const ColourRange range = colour_range(map);
  const AxisLayout layout = lay_out(axis, std::vector{range.low, range.high});
  const Cells cells = cells_of(map, axis, range);
  const std::string note = note_of(map, range, cells.grey);

  std::string body = title_script(map.title, note);
  body += fmt::format("set xlabel {}\nset ylabel {}\nset cblabel {} offset 1.5,0\n",
                      enhanced(map.x_label), enhanced(map.y_label), enhanced(map.value_label));
  body += fmt::format("set xrange [-0.5:{}]\nset yrange [-0.5:{}]\nset cbrange [{}:{}]\n",
                      static_cast<double>(map.columns.size()) - 0.5,
                      static_cast<double>(map.rows.size()) - 0.5, range.low, range.high);
  if (map.log) body += "set logscale cb\n";
  body += tics_script("cb", layout) + palette_script();
  body += column_tics(map) + row_tics(map);
  body += "unset key\nset border 0\nset style fill solid border rgb '#ffffff'\n";
  body += plot_command(map, cells);
  write_file(folder / (map.name + ".dat"), cells.data);
  write_file(folder / (map.name + ".gp"), script_for_both(map.name, body));
}

}  // namespace fp8lab
