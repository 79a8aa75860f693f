// Which method computes what: every registered unit and variations of units, against kept rows.
// kept_methods.inc is written anew, where a choice changes on purpose, by FP8LAB_KEEP_METHODS=FILE.

#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/gemm/methods/methods.hpp"
#include "gemm/problems.hpp"

using namespace fp8lab;
using namespace fp8lab::test;
using namespace fp8lab::gemm_detail;

namespace {

// Compilers take more than the 65 536 characters that they are required to.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverlength-strings"
constexpr std::string_view kKept =
#include "gemm/kept_methods.inc"
    ;
#pragma GCC diagnostic pop

constexpr Shape kShapes[] = {{1, 4096, 64}, {2, 4096, 64}, {3, 4096, 64}, {4, 4096, 64},
                             {5, 4096, 64}, {8, 4096, 64}, {9, 4096, 64}, {4, 200, 64},
                             {1, 32, 64},   {1, 8, 64},    {32, 8, 64},   {33, 8, 64},
                             {32, 9, 64},   {64, 64, 64}};

constexpr std::int64_t kLength = 1000;

/// Exponents of both operands' rows or of c that a kernel takes: "-45..116", several with spaces.
std::string taken(const std::function<bool(int)>& takes) {
  std::string text;
  constexpr int kEnd = 128;
  for (int e = -150; e < kEnd; ++e) {
    if (!takes(e)) continue;
    const int first = e;
    while (e + 1 < kEnd && takes(e + 1)) ++e;
    text += fmt::format("{}{}..{}", text.empty() ? "" : " ", first, e);
  }
  return text.empty() ? "none" : text;
}

/// What a plan says beside its name: exponents of rows of one binade, how far those of rows of two
/// may be from 0 on either side, those of c beside rows of 2^0 and beside rows of 2^-8 to 2^8, and
/// whether c may be -0.
std::string limits_of(const Method& method, const Format& a, const Format& b) {
  const auto row = [](const Format& f, int largest, int lowest) {
    return RowSummary{.largest = largest, .lowest = lowest - f.mantissa_bits};
  };
  const auto takes = [&](int largest, int lowest) {
    return method.takes(row(a, largest, lowest), row(b, largest, lowest), kLength);
  };
  const auto starts = [&](float c, int spread) {
    return method.takes_start(c, row(a, spread, -spread), row(b, spread, -spread));
  };
  const std::string near = taken([&](int e) { return starts(std::ldexp(-1.25F, e), 0); });
  const std::string wide = taken([&](int e) { return starts(std::ldexp(-1.25F, e), 8); });
  return fmt::format("rows {}, apart {}, c {}{}{}", taken([&](int e) { return takes(e, e); }),
                     taken([&](int e) { return e >= 0 && takes(e, -e); }), near,
                     wide == near ? "" : ", beside wide rows " + wide,
                     starts(-0.0F, 0) ? "" : ", no -0");
}

/// The method for data of which the first one's kernel does not take all, if there is another.
std::string of_other_data(const GemmProblem& p, const Method& method) {
  GemmProblem longer = p;
  longer.a.k = longer.b.k = kLength;
  const MethodPtr other = method.for_other_data(MethodRequest(longer));
  if (!other) return "";
  return fmt::format("; else {}: {}", other->name(),
                     limits_of(*other, format(p.a.format), format(p.b.format)));
}

/// One row of the table.
std::string row_of(const std::string& name, GemmProblem p) {
  const std::string start = fmt::format("{} {} {}: {}", name, format(p.a.format).name,
                                        format(p.b.format).name, gemm_method(p));
  const MethodPtr method = plan_method(MethodRequest(p));
  if (!method) return start + "\n";
  std::string terms;
  for (const int intervals : {0, 1, 3}) {
    p.promotion_interval = intervals * p.model.terms;
    terms +=
        fmt::format("{}{}", terms.empty() ? "" : "/", plan_method(MethodRequest(p))->form().terms);
  }
  p.promotion_interval = 0;
  std::string lines;
  for (const Shape& shape : kShapes) {
    p.a.rows = shape.m;
    p.b.rows = shape.n;
    const MethodPtr planned = plan_method(MethodRequest(p));
    const PackForm& form = planned->form();
    lines += form.dots.used() ? 'd' : form.word_dots.used() ? 'w' : form.group_dots ? 'g' : '.';
  }
  const bool in_double = dynamic_cast<const MethodOf<double>*>(method.get()) != nullptr;
  return fmt::format("{}, {}, terms {}, {}, {}{}\n", start, in_double ? "double" : "float", terms,
                     lines, limits_of(*method, format(p.a.format), format(p.b.format)),
                     of_other_data(p, *method));
}

/// Rows of one model with its own formats, or with others that it takes.
std::string rows_of(const InstructionModel& model, const std::string& name, bool others) {
  GemmProblem p = problem_of(model);
  p.a.k = p.b.k = 64;
  std::string rows = row_of(name, p);
  if (!others) return rows;
  using enum FormatId;
  constexpr std::array<std::array<FormatId, 2>, 7> kOthers{{{e4m3fn, e5m2},
                                                            {e4m3fnuz, e5m2fnuz},
                                                            {e2m1, e2m3},
                                                            {f16, f16},
                                                            {bf16, bf16},
                                                            {tf32, tf32},
                                                            {e5m2, f16}}};
  for (const auto& [a, b] : kOthers) {
    try {
      require_formats(p.model, a, b);
    } catch (const Error&) {
      continue;
    }
    p.a.format = a;
    p.b.format = b;
    rows += row_of(name, p);
  }
  return rows;
}

std::string all_rows() {
  std::string rows;
  for (const InstructionModel& model : instruction_models())
    rows += rows_of(model, std::string(model.name), false);
  for (const std::string_view name :
       {"sm90.wgmma.e4m3", "sm90.mma.e4m3", "exact", "exact32", "fp32", "sequential14.rz",
        "sequential14.rne", "seed.listing", "gfx908.mfma.bf16", "gfx942.mfma.f16",
        "gfx942.mfma.fp8", "sm120.mma.mxf8f6f4.e4m3"})
    rows += rows_of(find_instruction_model(name), std::string(name), true);
  for (const std::string_view name :
       {"sm90.wgmma.e4m3", "sm90.wgmma.e5m2.f16", "sm90.mma.f16", "sm90.mma.bf16",
        "sm90.mma.f16.f16", "sm90.mma.e4m3", "gfx942.mfma.f16"})
    for (const int terms : {4, 16, 32, 33})
      for (const int fraction : {15, 16, 25, 26, 36, 37})
        for (const RoundingMode rounding :
             {RoundingMode::toward_zero, RoundingMode::nearest_even}) {
          InstructionModel model = find_instruction_model(name);
          AccumulatorModel& m = model.accumulator;
          m.terms = terms;
          m.alignment_fraction_bits = fraction;
          m.rounding = rounding;
          m.output_fraction_bits = rounding == RoundingMode::nearest_even ? 23 : 13;
          rows += rows_of(
              model, fmt::format("{}:{},{},{}", name, terms, fraction, to_string(rounding)), false);
        }
  return rows;
}

/// Kernels have no FP16 output but on x86: rows of such models are compared there only.
bool is_compared(std::string_view row) {
#if defined(__x86_64__)
  return !row.empty();
#else
  const auto name = row.substr(0, row.find_first_of(" :"));
  return !row.empty() && find_instruction_model(name).accumulator.output_format != FormatId::f16;
#endif
}

/// The rows of `text` that are compared.
std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  std::istringstream in{std::string(text)};
  for (std::string line; std::getline(in, line);)
    if (is_compared(line)) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("methods: which one computes what is as kept", "[gemm][methods]") {
  const std::string rows = all_rows();
  if (const char* file = std::getenv("FP8LAB_KEEP_METHODS")) {
    std::ofstream(file) << "R\"(\n" << rows << ")\"\n";
    SUCCEED("written");
    return;
  }
  const std::vector<std::string> kept = lines_of(kKept);
  const std::vector<std::string> got = lines_of(rows);
  CHECK(kept.size() == got.size());
  int shown = 0;
  for (std::size_t i = 0; i < std::min(kept.size(), got.size()) && shown < 20; ++i) {
    if (kept[i] == got[i]) continue;
    ++shown;
    CHECK(got[i] == kept[i]);
  }
}
