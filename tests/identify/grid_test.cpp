// The whole grid of hypotheses, in its order, for operands of every kind: intervals that divide
// tiles, parts of K, orders of scales, places of C, and units that apply scales themselves.

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/gemm/gemm.hpp"
#include "fp8lab/identify/hypotheses.hpp"
#include "fp8lab/scaling/presets.hpp"
#include "fp8lab/scaling/quantize.hpp"

using namespace fp8lab;

namespace {

std::string text_of_hypothesis(const Accumulation& one, std::span<const NamedAccumulator> models) {
  return fmt::format("{}, interval {}, {}, {} parts, C {}", models[one.accumulator].names.front(),
                     one.promotion_interval, to_string(one.scale_order), one.split_k,
                     to_string(one.c_enters));
}

/// Every hypothesis, each number tried: `tile` terms share scales (0: all of K).
std::string all_hypotheses(const GemmProblem& problem, std::span<const NamedAccumulator> models,
                           std::int64_t tile, bool second_level) {
  const bool scaled = !problem.scale_a.empty() || !problem.scale_b.empty();
  std::string all;
  for (const int parts : {1, 2, 4, 8, 16})
    for (std::size_t m = 0; m < models.size(); ++m) {
      const AccumulatorModel& model = models[m].accumulator;
      const bool inside = traits_of(model).takes_scales && scaled;
      if (inside && parts > 1) continue;
      std::vector<std::int64_t> intervals;
      if (inside || tile == 0) intervals.push_back(0);
      // Powers of two from 16 on in front of the tile itself.
      for (std::int64_t i = 16; !inside && i <= (tile > 0 ? tile : problem.a.k - 1); i *= 2)
        if (i % model.terms == 0 && (tile == 0 || tile % i == 0)) intervals.push_back(i);
      const bool power = (tile & (tile - 1)) == 0 && tile >= 16;
      if (!inside && tile > 0 && !power && tile % model.terms == 0) intervals.push_back(tile);
      for (const std::int64_t interval : intervals) {
        const std::int64_t step = interval > 0 ? interval : model.terms;
        std::int64_t steps = 0;
        for (std::int64_t k = 0; k < problem.a.k; k += step) ++steps;
        if (parts > 1 && steps < parts) continue;
        GemmProblem promoted = problem;
        promoted.model = model;
        promoted.promotion_interval = interval;
        const std::vector<CPlacement> places = problem.c == nullptr
                                                   ? std::vector{CPlacement::unnamed}
                                                   : possible_c_placements(promoted);
        for (const CPlacement place : places)
          for (const ScaleOrder order : scale_orders()) {
            const bool matters = scaled && (!inside || second_level);
            if (!matters && order != scale_orders().front()) continue;
            all += text_of_hypothesis({m, interval, order, parts, place}, models) + '\n';
          }
      }
    }
  return all;
}

std::string hypotheses_of(const GemmProblem& problem, std::span<const NamedAccumulator> models) {
  std::string all;
  for (const Accumulation& one : accumulations(problem, models))
    all += text_of_hypothesis(one, models) + '\n';
  return all;
}

/// The first line in which two texts differ.
std::string first_difference(const std::string& expected, const std::string& got) {
  std::size_t at = 0;
  while (at < expected.size() && at < got.size() && expected[at] == got[at]) ++at;
  const auto line = [&](const std::string& text) {
    const std::size_t begin = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;
    return begin >= text.size() ? "the end" : text.substr(begin, text.find('\n', begin) - begin);
  };
  return expected == got ? "" : fmt::format("expected {}, got {}", line(expected), line(got));
}

}  // namespace

TEST_CASE("identify: the grid of hypotheses, each in its place", "[identify]") {
  const std::vector<std::uint8_t> codes(3 * 1000, 0x38);
  const std::vector<float> ones(3 * 1000, 1.0F);
  struct Kind {
    std::int64_t k;
    std::int64_t a_tile;  ///< 0: no scales
    std::int64_t b_tile;
    std::int64_t tile;  ///< that both have
  };
  for (const Kind& kind :
       {Kind{100, 0, 0, 0}, Kind{256, 0, 0, 0}, Kind{513, 0, 0, 0}, Kind{256, 256, 256, 0},
        Kind{256, 1000, 0, 0}, Kind{256, 128, 0, 128}, Kind{384, 0, 96, 96},
        Kind{384, 192, 128, 64}, Kind{288, 96, 96, 96}, Kind{30, 0, 0, 0}, Kind{300, 48, 300, 48}})
    for (const bool with_c : {false, true}) {
      GemmProblem problem;
      problem.a = {FormatId::e4m3fn, codes.data(), 2, kind.k, kind.k, 1};
      problem.b = {FormatId::e4m3fn, codes.data(), 3, kind.k, kind.k, 1};
      const auto scales = [&](std::int64_t rows, std::int64_t tile) -> InverseScales {
        if (tile == 0) return {};
        const std::int64_t count = rows * ((kind.k + tile - 1) / tile);
        return {std::span(ones).first(static_cast<std::size_t>(count)), 1, tile};
      };
      problem.scale_a = scales(2, kind.a_tile);
      problem.scale_b = scales(3, kind.b_tile);
      if (with_c) problem.c = ones.data();
      const std::vector<NamedAccumulator> models = accumulators_for(problem);
      INFO("k " << kind.k << ", tiles " << kind.a_tile << " and " << kind.b_tile << ", C "
                << with_c);
      CHECK(first_difference(all_hypotheses(problem, models, kind.tile, false),
                             hypotheses_of(problem, models)) == "");
    }
}

TEST_CASE("identify: units that apply scales have their order of the second level alone",
          "[identify]") {
  const std::vector<float> values(4 * 128, 0.75F);
  for (const char* preset : {"ocp-mxfp8", "mxfp4", "nvfp4"})
    for (const bool second : {false, true}) {
      const QuantizedTensor q = quantize(find_preset(preset).weight, FloatMatrix{values, 4, 128});
      GemmProblem problem;
      problem.a = problem.b = q.matrix();
      problem.scale_a = problem.scale_b = q.inverse();
      problem.scale_a.tensor_scale = 1.0F;
      for (const bool of_a : {true, false}) {
        problem.scale_a.tensor_scale = second && of_a ? 0.5F : 1.0F;
        problem.scale_b.tensor_scale = second && !of_a ? 0.5F : 1.0F;
        const std::vector<NamedAccumulator> models = accumulators_for(problem);
        bool any_inside = false;
        for (const NamedAccumulator& one : models)
          any_inside |= traits_of(one.accumulator).takes_scales;
        INFO(preset << ", second level " << second << " of A " << of_a);
        CHECK(any_inside);
        CHECK(first_difference(
                  all_hypotheses(problem, models, std::string(preset) == "nvfp4" ? 16 : 32, second),
                  hypotheses_of(problem, models)) == "");
      }
    }
}

TEST_CASE("identify: accumulators that read the operands are tried, each once", "[identify]") {
  const std::vector<std::uint16_t> codes(64, 0);
  for (const FormatId a : {FormatId::e4m3fn, FormatId::e5m2, FormatId::f16, FormatId::bf16,
                           FormatId::e4m3fnuz, FormatId::e5m2fnuz})
    for (const FormatId b :
         {FormatId::e4m3fn, FormatId::e5m2, FormatId::f16, FormatId::bf16, FormatId::e4m3fnuz}) {
      GemmProblem problem;
      problem.a = {a, codes.data(), 1, 32, 32, 1};
      problem.b = {b, codes.data(), 1, 32, 32, 1};
      std::vector<AccumulatorModel> models;
      std::vector<std::string> expected;
      const auto consider = [&](const InstructionModel& one) {
        const bool reads = one.a_format == a && one.b_format == b;
        if (!reads && one.standing != Standing::definition) return;
        if (!takes_formats(one.accumulator, a, b)) return;
        if (traits_of(one.accumulator).takes_scales) return;
        const auto at = std::find(models.begin(), models.end(), one.accumulator);
        if (at == models.end()) {
          models.push_back(one.accumulator);
          expected.emplace_back(one.name);
        } else {
          expected[static_cast<std::size_t>(at - models.begin())] += fmt::format(" {}", one.name);
        }
      };
      for (const InstructionModel& one : instruction_models()) consider(one);
      const std::vector<std::string> more{"fp32"};
      consider(find_instruction_model("fp32"));
      std::vector<std::string> got;
      for (const NamedAccumulator& one : accumulators_for(problem, more)) {
        got.push_back(fmt::format("{}", fmt::join(one.names, " ")));
      }
      INFO(format(a).name << " and " << format(b).name);
      CHECK(got == expected);
    }
}
