#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>

#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/formats/code_hex.hpp"
#include "fp8lab/identify/identify.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t kMembersShown = 12;

std::string code_text(FormatId id, std::uint32_t code) {
  const Format& f = format(id);
  if (id == FormatId::f32)
    return fmt::format("{} ({:.9g})", code_hex(f, code), std::bit_cast<float>(code));
  return fmt::format("{} ({:.6g})", code_hex(f, code), decode(f, code));
}

std::string_view place_text(CPlacement place) {
  if (place == CPlacement::accumulator) return "the accumulator";
  return place == CPlacement::epilogue ? "the epilogue" : "the promoted sum";
}

std::string describe_class(const Identification& result, const ExplanationClass& one) {
  std::string text = fmt::format("{:>9.4f} %  {}\n", 100.0 * one.rate(),
                                 describe(one.members.front(), result.scaled));
  const std::size_t shown = std::min(one.members.size(), kMembersShown);
  for (std::size_t i = 1; i < shown; ++i)
    text += fmt::format("            or {}\n", describe(one.members[i], result.scaled));
  if (shown < one.members.size())
    text += fmt::format("            or {} more\n", one.members.size() - shown);
  return text;
}

std::string verdict(const Identification& result) {
  const ExplanationClass& best = result.ranking.front();
  const std::int64_t size = result.rows * result.columns;
  if (!result.explained())
    return fmt::format("unexplained: the best of {} hypotheses gives {} of {} outputs\n",
                       result.tried, best.matches, best.compared);
  std::string text = fmt::format("explained: all {} outputs, bit for bit, by {} of {} hypotheses\n",
                                 size, best.members.size(), result.tried);
  if (best.members.size() > 1) text += "  which this data cannot tell apart\n";
  for (const Explanation& member : best.members)
    if (const auto options = command_options(member, result.scaled))
      return text + fmt::format("  options of gemm and verify: {}\n", fmt::join(*options, " "));
  return text;
}

}  // namespace

std::optional<std::vector<std::string>> command_options(const Explanation& one, bool scaled) {
  if (one.rounding != "kept" && one.rounding != "nearest_even") return std::nullopt;
  std::vector<std::string> options{"--model", std::string(one.models.front())};
  const auto add = [&](const char* name, std::string_view value) {
    options.emplace_back(name);
    options.emplace_back(value);
  };
  if (one.promotion_interval > 0) add("--promotion", fmt::format("{}", one.promotion_interval));
  if (scaled) add("--scale-order", to_string(one.scale_order));
  if (one.c_enters != CPlacement::unnamed) add("--c-enters", to_string(one.c_enters));
  if (one.split_k > 1) add("--split-k", fmt::format("{}", one.split_k));
  return options;
}

std::string describe(const Explanation& one, bool scaled) {
  std::string text(one.models.front());
  if (one.models.size() > 1)
    text += fmt::format(" (= {})", fmt::join(one.models.begin() + 1, one.models.end(), ", "));
  text += one.promotion_interval == 0 ? ", no promotion"
                                      : fmt::format(", promotion {}", one.promotion_interval);
  if (scaled) text += fmt::format(", scales {}", to_string(one.scale_order));
  if (one.c_enters != CPlacement::unnamed)
    text += fmt::format(", C in {}", place_text(one.c_enters));
  if (one.split_k > 1) text += fmt::format(", K in {} parts", one.split_k);
  return text + fmt::format(", output {}", one.rounding);
}

std::string describe(const Identification& result, std::size_t most) {
  const FloatEnvironment environment;
  std::string text = fmt::format("D [{}, {}] over k = {}, {}\n", result.rows, result.columns,
                                 result.k, format(result.output).name);
  if (result.ranking.empty()) return text + "no hypothesis fits these operands\n";
  text += verdict(result);
  for (std::size_t i = 0; i < std::min(most, result.ranking.size()); ++i)
    text += describe_class(result, result.ranking[i]);
  if (result.beyond > 0)
    text += fmt::format("  {} more are right on the sample and were not computed on all outputs\n",
                        result.beyond);
  if (result.separating.empty()) return text;
  text += fmt::format("the first two differ on {} of {} outputs compared:\n",
                      result.separating_count, result.separating_compared);
  for (const SeparatingElement& e : result.separating)
    text += fmt::format("  row {} column {}: got {}, first {}, second {}\n", e.row, e.column,
                        code_text(result.output, e.got), code_text(result.output, e.first),
                        code_text(result.output, e.second));
  return text;
}

}  // namespace fp8lab
