#include "fp8lab/plots/gnuplot_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

namespace fp8lab {
namespace {

constexpr std::size_t kTitleColumns = 108;

}  // namespace

std::size_t raised_after(std::string_view text, std::size_t at) {
  if (text[at] != '^') return 0;
  const std::string_view rest = text.substr(at + 1);
  const auto digit = [&](std::size_t i) {
    return i < rest.size() && rest[i] >= '0' && rest[i] <= '9';
  };
  if (rest.starts_with('T')) {
    const bool ends = rest.size() < 2 || std::isalnum(static_cast<unsigned char>(rest[1])) == 0;
    return ends ? 1 : 0;
  }
  std::size_t length = rest.starts_with('-') ? 1 : 0;
  if (!digit(length)) return 0;
  while (digit(length) || (length < rest.size() && rest[length] == '.' && digit(length + 1)))
    ++length;
  return length;
}

std::vector<std::string> wrap(std::string_view text, std::size_t width) {
  std::vector<std::string> lines(1);
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    std::string& line = lines.back();
    if (!line.empty() && columns_of(line) + 1 + columns_of(word) > width) {
      lines.emplace_back(word);
    } else {
      if (!line.empty()) line += ' ';
      line += word;
    }
  }
  return lines;
}

std::string enhanced(std::string_view text) {
  // Single quotes: gnuplot runs backquoted commands inside double ones.
  std::string out = "'";
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (const std::size_t raised = raised_after(text, i); raised > 0) {
      out += fmt::format("^{{{}}}", text.substr(i + 1, raised));
      i += raised;
    } else if (c == '\n') {
      out += "'.\"\\n\".'";
    } else if (c == '\'') {
      out += "''";
    } else {
      if (std::string_view("\\{}^_@&~").find(c) != std::string_view::npos) out += '\\';
      out += c;
    }
  }
  return out + "'";
}

std::string one_line(std::string_view text) {
  std::string out(text);
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return out;
}

std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

std::string title_script(std::string_view title, std::string_view note, double room) {
  // A label, since gnuplot centres a title on the axes: beside a wide legend it
  // would run out of the picture.
  const auto lines = wrap(one_line(title), kTitleColumns);
  const auto notes = wrap(one_line(note), kTitleColumns + 16);
  const double note_top = 0.965 - 0.04 * static_cast<double>(lines.size());
  std::string script = fmt::format("set label 1 {} at screen 0.018,0.962 left font ',15'\n",
                                   enhanced(fmt::format("{}", fmt::join(lines, "\n"))));
  double plot_top = note_top - 0.03 - room;
  if (!note.empty()) {
    script +=
        fmt::format("set label 2 {} at screen 0.018,{:.3f} left font ',11' tc rgb '#555555'\n",
                    enhanced(fmt::format("{}", fmt::join(notes, "\n"))), note_top);
    plot_top -= 0.032 * static_cast<double>(notes.size());
  }
  return script + fmt::format("set tmargin at screen {:.3f}\n", plot_top);
}

std::string tics_script(std::string_view axis, const AxisLayout& layout) {
  // Where gnuplot chooses, its own format gives tics below 1e-3 too few digits to differ.
  if (layout.tics.empty())
    return layout.high < 1e-3 && layout.low > -1e-3 ? fmt::format("set format {} '%.4g'\n", axis)
                                                    : "";
  std::vector<std::string> tics;
  for (const Tic& tic : layout.tics)
    tics.push_back(tic.minor ? fmt::format("'' {} 1", tic.position)
                             : fmt::format("'{}' {} 0", tic.label, tic.position));
  return fmt::format("set {}tics nomirror ({})\n", axis, fmt::join(tics, ", "));
}

std::string script_for_both(std::string_view name, std::string_view body) {
  constexpr const char* kFont = "font 'DejaVu Sans,13' background '#ffffff'";
  return fmt::format(
      "# Draws {0}.svg and {0}.png: gnuplot {0}.gp (and {0}.pdf: gnuplot -e pdf=1 {0}.gp)\n"
      "reset\nset encoding utf8\n"
      "set terminal svg size 900,560 dynamic {1} name '{0}'\nset output '{0}.svg'\n"
      "{2}"
      "set terminal pngcairo size 1350,840 fontscale 1.15 linewidth 1.5 pointscale 1.5 {1}\n"
      "set output '{0}.png'\nreplot\n"
      "if (exists('pdf')) {{\n"
      "  set terminal pdfcairo size 16cm,10cm font 'DejaVu Sans,9' fontscale 0.75 linewidth 1\n"
      "  set output '{0}.pdf'\n  replot\n}}\nunset output\n",
      name, kFont, body);
}

}  // namespace fp8lab
