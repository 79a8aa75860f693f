#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/printable.hpp"
#include "fp8lab/formats/code_hex.hpp"
#include "fp8lab/verify/gates.hpp"
#include "fp8lab/verify/verify.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t kMostCauses = 3;

std::string number(double x) { return fmt::format("{:.6g}", x); }

/// `0x7e (448)`.
std::string code_text(const Format& f, std::uint32_t code) {
  return fmt::format("0x{} ({:.9g})", code_hex(f, code), decode(f, code));
}

std::string headline(const VerifyReport& r) {
  const CodeComparison& c = r.comparison;
  std::string text = fmt::format("{}: ", to_string(r.verdict));
  if (c.bitwise())
    text += fmt::format(
        "all {} outputs have the golden bits{}", c.values.count,
        r.scales && r.scales->wrong > 0
            ? fmt::format(", {} of {} scales differ", r.scales->wrong, r.scales->compared)
            : "");
  else
    text += fmt::format(
        "{} of {} outputs differ in bits ({:.4g} %)", c.bit_mismatches, c.values.count,
        100.0 * static_cast<double>(c.bit_mismatches) / static_cast<double>(c.values.count));
  text += fmt::format(" [{}, {}] {}, against {}; check: {}\n", r.rows, r.columns,
                      format(r.output).name, printable(r.subject), r.check.name());
  if (r.within_activation > 0)
    text += fmt::format(
        "  {} outputs have other bits within the allowance of the activation (not counted)\n",
        r.within_activation);
  if (c.nan_payloads > 0)
    text += fmt::format("  {} NaN outputs have other NaN bits (not counted)\n", c.nan_payloads);
  return text;
}

std::string histogram_text(std::string_view name, const UlpHistogram& h) {
  std::string text = fmt::format("  {}:", name);
  for (std::size_t bin = 0; bin < UlpHistogram::kBins; ++bin) {
    if (h.counts[bin] == 0) continue;
    const std::uint64_t last = UlpHistogram::last_of(bin);
    const std::uint64_t first = bin < 2 ? last : UlpHistogram::last_of(bin - 1) + 1;
    text += first == last ? fmt::format("  {}: {}", last, h.counts[bin])
                          : fmt::format("  {}-{}: {}", first, last, h.counts[bin]);
  }
  if (h.nan_mismatches > 0) text += fmt::format("  NaN: {}", h.nan_mismatches);
  return text + fmt::format("  (toward zero {}, away {})\n", h.toward_zero, h.away_from_zero);
}

std::string place(const VerifyReport& r, std::size_t index) {
  const auto columns = static_cast<std::size_t>(std::max<std::int64_t>(r.columns, 1));
  return fmt::format("[{}, {}]", index / columns, index % columns);
}

std::string metrics_text(const VerifyReport& r) {
  const CodeComparison& c = r.comparison;
  const Comparison& v = c.values;
  std::string text = histogram_text(fmt::format("ULP of {}", format(r.output).name), c.ulp);
  text += histogram_text("ULP of FP8 (E4M3's significand)", c.fp8);
  text += fmt::format("  relative L2 {}  SQNR {} dB  cosine {:.9g}  calc_diff {}  bias {}\n",
                      number(v.relative_l2), number(v.sqnr_db), v.cosine, number(v.calc_diff),
                      number(v.mean_signed_relative));
  text += fmt::format("  max abs {} at {}  max rel {} at {}\n", number(v.max_absolute),
                      place(r, v.max_absolute_index), number(v.max_relative),
                      place(r, v.max_relative_index));
  if (v.non_finite_mismatches > 0)
    text += fmt::format("  {} pairs with a NaN or an infinity in only one of the two\n",
                        v.non_finite_mismatches);
  return text;
}

std::string budget_text(const ErrorBudget& b) {
  if (b.special) return "    a NaN or an infinity takes part\n";
  return fmt::format(
      "    exact {:.9g}, budget {} = quantization {} + accumulation {} + output rounding {}\n",
      b.exact, number(b.total()), number(b.quantization), number(b.accumulation),
      number(b.rounding));
}

std::string models_text(const VerifyReport& r, const ElementReport& e) {
  std::string same;
  std::string other;
  for (const ModelAnswer& answer : e.models) {
    if (answer.code == e.mismatch.got)
      same += fmt::format(" {}", answer.model);
    else
      other += fmt::format("\n      {} {}", answer.model, code_text(format(r.output), answer.code));
  }
  return fmt::format("    models that give this output:{}{}\n", same.empty() ? " none" : same,
                     other);
}

std::string element_text(const VerifyReport& r, const ElementReport& e) {
  const Format& f = format(r.output);
  std::string text = fmt::format(
      "  {} mismatch: row {} column {}: expected {}, got {}, {}\n", e.which, e.row, e.column,
      code_text(f, e.mismatch.expected), code_text(f, e.mismatch.got),
      e.mismatch.ulp == kNanDistance ? "NaN on one side" : fmt::format("{} ulp", e.mismatch.ulp));
  if (!e.budget) return text;
  text += budget_text(*e.budget);
  if (e.k_end == e.k_begin) return text + models_text(r, e);
  text += fmt::format("    K-block [{}, {}), nearest to the difference, sums to {}; largest:",
                      e.k_begin, e.k_end, number(e.k_block_sum));
  for (const TermReport& term : e.terms)
    text += fmt::format("  k {} 0x{:02x} x 0x{:02x} = {}", term.k, term.a_code, term.b_code,
                        number(term.product));
  return text + "\n" + models_text(r, e);
}

std::string map_text(const VerifyReport& r) {
  const MismatchMap& map = r.map;
  if (r.comparison.bitwise() || map.rows * map.columns < 2) return "";
  std::string text =
      fmt::format("  map, one character per tile of {} x {} (. none, 1-9 tenths wrong, # all):\n",
                  map.tile_rows, map.tile_columns);
  for (std::int64_t row = 0; row < map.rows; ++row) {
    text += "    ";
    for (std::int64_t column = 0; column < map.columns; ++column) {
      const auto count =
          static_cast<double>(map.counts[static_cast<std::size_t>(row * map.columns + column)]);
      const std::int64_t height = std::min(map.tile_rows, r.rows - row * map.tile_rows);
      const std::int64_t width = std::min(map.tile_columns, r.columns - column * map.tile_columns);
      const double share = count / static_cast<double>(height * width);
      if (share == 0.0)
        text += '.';
      else if (share == 1.0)
        text += '#';
      else
        text += static_cast<char>('0' + std::clamp(static_cast<int>(10.0 * share), 1, 9));
    }
    text += '\n';
  }
  return text;
}

/// Lines that are no longer than a terminal is wide, the later ones indented.
std::string wrapped(const std::string& text, std::size_t indent) {
  constexpr std::size_t kWidth = 80;
  std::string lines;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t margin = lines.empty() ? 0 : indent;
    std::size_t end = text.size();
    if (text.size() - at > kWidth - margin) {
      end = text.rfind(' ', at + kWidth - margin);
      if (end == std::string::npos || end <= at) end = std::min(text.find(' ', at), text.size());
    }
    lines += std::string(margin, ' ') + text.substr(at, end - at) + '\n';
    at = std::min(text.find_first_not_of(' ', end), text.size());
  }
  return lines;
}

/// The map with at most so many lines and characters: each is the largest of what it stands for.
std::string small_map(const VerifyReport& r) {
  constexpr std::int64_t kLines = 6;
  constexpr std::int64_t kCharacters = 64;
  VerifyReport small;
  small.rows = r.rows;
  small.columns = r.columns;
  small.comparison = r.comparison;
  const std::int64_t down = std::max<std::int64_t>(1, (r.map.rows + kLines - 1) / kLines);
  const std::int64_t across =
      std::max<std::int64_t>(1, (r.map.columns + kCharacters - 1) / kCharacters);
  small.map.tile_rows = r.map.tile_rows * down;
  small.map.tile_columns = r.map.tile_columns * across;
  small.map.rows = (r.map.rows + down - 1) / down;
  small.map.columns = (r.map.columns + across - 1) / across;
  small.map.counts.assign(static_cast<std::size_t>(small.map.rows * small.map.columns), 0);
  for (std::int64_t row = 0; row < r.map.rows; ++row)
    for (std::int64_t column = 0; column < r.map.columns; ++column)
      small.map
          .counts[static_cast<std::size_t>(row / down * small.map.columns + column / across)] +=
          r.map.counts[static_cast<std::size_t>(row * r.map.columns + column)];
  return map_text(small);
}

bool fills_output(const VerifyReport& r) {
  return r.comparison.bit_mismatches == r.comparison.values.count;
}

/// The regions and a small map.
/// What is wrong with a quantizer's scales.
std::string scales_text(const VerifyReport& r) {
  if (!r.scales) return "";
  if (r.scales->wrong == 0) return fmt::format("scales: all {} are right\n", r.scales->compared);
  std::string text;
  for (const std::string& line : r.scales->lines)
    text += wrapped(fmt::format("{} {}", text.empty() ? "scales:" : "       ", line), 8);
  return text;
}

std::string where_text(const VerifyReport& r) {
  constexpr std::size_t kRegions = 3;
  if (fills_output(r)) return "where: all outputs\n";
  std::string text;
  for (std::size_t i = 0; i < std::min(kRegions, r.regions.size()); ++i)
    text += wrapped(fmt::format("{} {}", i == 0 ? "where:" : "      ", describe(r.regions[i])), 7);
  if (r.regions.size() > kRegions)
    text += fmt::format("       and {} more regions\n", r.regions.size() - kRegions);
  if (r.regions.empty() && !r.elements.empty())
    text += fmt::format("where: scattered, the first at row {}, column {}\n", r.elements[0].row,
                        r.elements[0].column);
  return text + (r.regions.size() > 1 || r.regions.empty() ? small_map(r) : "");
}

/// The first wrong element and its numbers, of outputs with few of them.
std::string element_line(const VerifyReport& r) {
  if (r.elements.empty() || r.comparison.bit_mismatches > 4) return "";
  const ElementReport& e = r.elements[0];
  const Format& f = format(r.output);
  std::string text =
      fmt::format("first mismatch: row {} column {}: expected {}, got {}", e.row, e.column,
                  code_text(f, e.mismatch.expected), code_text(f, e.mismatch.got));
  std::string models;
  for (const ModelAnswer& answer : e.models)
    if (answer.code == e.mismatch.got) models += fmt::format(" {}", answer.model);
  if (!models.empty()) text += "; models that give this:" + models;
  return wrapped(text.size() > 300 ? text.substr(0, 296) + " ..." : text, 7);
}

std::string why_text(const VerifyReport& r) {
  constexpr std::size_t kCauses = 2;
  constexpr std::size_t kMeasured = 4;
  if (!r.diagnosis) return "";
  const Diagnosis& d = *r.diagnosis;
  std::string text;
  for (std::size_t i = 0; i < std::min(kCauses, d.causes.size()); ++i) {
    const Cause& cause = d.causes[i];
    text += wrapped(
        fmt::format("{} {}: {} (explains {} of {} sampled mismatches, changes {} of {} right "
                    "outputs)",
                    i == 0 ? "cause:" : "or:   ", cause.name, cause.text, cause.explained,
                    d.mismatches, cause.contradicted, d.right),
        7);
  }
  if (d.causes.size() > kCauses)
    text +=
        fmt::format("       and {} more that explain equally many\n", d.causes.size() - kCauses);
  if (!d.causes.empty()) return text;
  const bool in_regions = std::ranges::any_of(r.regions, says_why);
  text = fmt::format("cause: none of {} known mistakes explains {}\n", d.tried,
                     in_regions ? "all of it; the regions say more" : "it");
  // Figures of all outputs together mean nothing where each region has a reason of its own.
  std::uint64_t inside = 0;
  for (const Region& region : r.regions) inside += says_why(region) ? region.mismatches : 0;
  if (inside > 0 && inside == r.comparison.bit_mismatches) return text;
  for (std::size_t i = 0; i < std::min(kMeasured, d.measured.size()); ++i) {
    const std::string line = "measured: " + d.measured[i];
    text += wrapped(line.size() > 150 ? line.substr(0, 146) + " ..." : line, 9);
  }
  return text;
}

std::string budget_line(const VerifyReport& r) {
  if (!r.budget) return "";
  return fmt::format(
      "  {} of {} examined mismatches{} are within the budget of the exact result (median "
      "budget: {:.3g} of the result)\n",
      r.budget->within, r.budget->checked,
      r.check.kind == Check::Kind::budget ? " (the largest, and evenly spread ones)" : "",
      r.budget->median);
}

std::string diagnosis_text(const Diagnosis& d) {
  std::string text;
  for (std::size_t i = 0; i < std::min(kMostCauses, d.causes.size()); ++i) {
    const Cause& cause = d.causes[i];
    const std::string undecided =
        cause.undecided == 0
            ? ""
            : fmt::format(", {} more agree with the right output too", cause.undecided);
    text += fmt::format(
        "  {} {}: {} ({} of {} sampled mismatches{}; would change {} of {} right ones)\n",
        i == 0 ? "cause:" : "or:   ", cause.name, cause.text, cause.explained, d.mismatches,
        undecided, cause.contradicted, d.right);
  }
  if (d.causes.size() > kMostCauses)
    text += fmt::format("  and {} more that explain equally many\n", d.causes.size() - kMostCauses);
  if (d.causes.empty())
    text = fmt::format("  cause: none of {} known mistakes explains it\n", d.tried);
  for (const std::string& line : d.measured) text += fmt::format("  measured: {}\n", line);
  return text;
}

std::string gates_text(const VerifyReport& r) {
  std::string text = "  shipped gates that would pass this output:";
  std::string failing = "  shipped gates that would reject it:";
  for (std::size_t i = 0; i < r.gates.size(); ++i)
    (r.gates[i] ? text : failing) += fmt::format(" {}", gates()[i].name);
  return text + "\n" + failing + "\n";
}

}  // namespace

std::string describe(const PowerReport& p, std::size_t index) {
  PowerReport::Seen all;
  std::string classes;
  for (const FaultClass kind : {FaultClass::output, FaultClass::operands, FaultClass::rounding}) {
    const PowerReport::Seen one = p.seen(index, kind);
    if (one.applicable == 0) continue;
    all.applicable += one.applicable;
    all.seen += one.seen;
    classes += fmt::format("{}{} {} of {}", classes.empty() ? "" : ", ", to_string(kind), one.seen,
                           one.applicable);
  }
  const std::string found = all.applicable == 0
                                ? "no fault applies"
                                : fmt::format("{} of {} applicable faults detected ({})", all.seen,
                                              all.applicable, classes);
  std::string text = fmt::format("  power of {}: {}, on {} x {} outputs\n", p.checks[index].name(),
                                 found, p.rows, p.columns);
  const bool tolerant = p.checks[index].kind != Check::Kind::bitwise;
  for (const FaultOutcome& fault : p.faults) {
    if (!fault.applies || fault.detected[index]) continue;
    const bool not_its_business = tolerant && fault.kind == FaultClass::rounding;
    text += fmt::format("  {}: {} ({}): {}\n", not_its_business ? "cannot see" : "missed",
                        fault.name, fault.text, fault.reason);
  }
  return text;
}

std::string describe(const VerifyReport& r) {
  const FloatEnvironment environment;
  std::string text = headline(r);
  text += scales_text(r);
  if (!r.comparison.bitwise()) {
    for (const Region& region : r.regions) text += fmt::format("  region: {}\n", describe(region));
    text += map_text(r);
    if (r.diagnosis) text += diagnosis_text(*r.diagnosis);
    text += metrics_text(r);
    for (const ElementReport& element : r.elements) text += element_text(r, element);
    text += budget_line(r);
    text += gates_text(r);
  }
  if (r.power) text += describe(*r.power, r.power_of_check);
  return text;
}

std::string summary(const VerifyReport& r, const std::string& command) {
  const FloatEnvironment environment;
  if (r.comparison.bitwise() && r.verdict != Verdict::mismatch) return describe(r);
  const auto first_line = [](const std::string& text) {
    const std::size_t begin = text.find_first_not_of(' ');
    return begin == std::string::npos ? "" : text.substr(begin, text.find('\n') - begin);
  };
  const std::string verdict = first_line(headline(r));
  const std::size_t size = verdict.find(" [");
  std::string text = wrapped(verdict.substr(0, size), 2);
  if (size != std::string::npos) text += wrapped("  " + verdict.substr(size + 1), 2);
  text += headline(r).substr(headline(r).find('\n') + 1);
  text += scales_text(r);
  if (!r.comparison.bitwise()) text += where_text(r) + why_text(r) + element_line(r);
  text += wrapped(first_line(budget_line(r)), 2);
  if (r.power && r.verdict == Verdict::mismatch)
    text += wrapped(first_line(describe(*r.power, r.power_of_check)), 2);
  else if (r.power)  // what the check cannot see is the point of it
    text += describe(*r.power, r.power_of_check);
  if (!command.empty()) text += "next:  " + command + '\n';
  return text;
}

std::string describe_faults(const PowerReport& power) {
  const FloatEnvironment environment;
  std::size_t widest = 5;
  for (const FaultOutcome& fault : power.faults) widest = std::max(widest, fault.name.size());
  std::string text = fmt::format("{:<{}}  changed", "fault", widest);
  for (const Check& check : power.checks) text += fmt::format("  {}", check.name());
  text += '\n';
  for (const FaultOutcome& fault : power.faults) {
    text += fmt::format("{:<{}}", fault.name, widest);
    if (!fault.applies) {
      text += fmt::format("  does not apply: {}\n", fault.reason);
      continue;
    }
    text += fmt::format("  {:>6.2f}%", 100.0 * fault.mismatch_rate);
    for (std::size_t i = 0; i < power.checks.size(); ++i)
      text += fmt::format("  {:<{}}", fault.detected[i] ? "detected" : "MISSED",
                          power.checks[i].name().size());
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

}  // namespace fp8lab
