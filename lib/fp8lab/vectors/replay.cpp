#include "fp8lab/vectors/replay.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>

#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/names.hpp"

namespace fp8lab {
namespace {

constexpr std::array<std::string_view, 3> kExecutedNames{
    "as one instruction", "as chained FP16 halves", "as separate FP16 halves"};

std::string describe_operand(const char* name, FormatId id,
                             const std::vector<std::uint32_t>& codes) {
  const Format& f = format(id);
  std::string text = fmt::format("  {} ({}):", name, f.name);
  for (std::size_t i = 0; i < codes.size(); ++i)
    text += fmt::format("{}{:0{}x} {:.6g}", i % 8 == 0 ? "\n    " : "   ", codes[i],
                        (f.code_bits() + 3) / 4, decode(f, codes[i]));
  return text + "\n";
}

/// "  scales of a (ue8m0):" and every code with its value.
std::string describe_scales(const char* name, ScaleFormat scale,
                            const std::vector<std::uint8_t>& codes) {
  std::string text = fmt::format("  scales of {} ({}):", name, to_string(scale));
  const Format& f = magnitude_format(scale);
  for (const std::uint8_t code : codes)
    text += fmt::format("   {:02x} {:.6g}", code, decode(f, code & f.magnitude_mask()));
  return text + "\n";
}

std::string describe_float(const char* name, std::uint32_t bits) {
  return fmt::format("  {:<9}{:08x} {:.9g}\n", name, bits, std::bit_cast<float>(bits));
}

}  // namespace

std::string_view executed_name(std::optional<HalvesOrder> halves) {
  return halves ? kExecutedNames[1 + static_cast<std::size_t>(*halves)] : kExecutedNames[0];
}

std::optional<HalvesOrder> find_executed(std::string_view name) {
  const std::size_t at = find_name(kExecutedNames, "executed", name);
  if (at == 0) return std::nullopt;
  return static_cast<HalvesOrder>(at - 1);
}

AccumulatorModel executed_model(const VectorFile& file) {
  const InstructionModel& registered = find_instruction_model(file.model);
  AccumulatorModel model = registered.accumulator;
  const auto line = file.header.find("executed");
  if (line == file.header.end()) return model;
  const std::optional<HalvesOrder> halves = find_executed(line->second);
  const bool by_halves = model.kind == AccumulationKind::fp16_halves;
  require(halves.has_value() == by_halves, "executed",
          fmt::format("what {} is, {} ({})", registered.name,
                      by_halves ? "FP16 halves" : "one instruction", to_string(model.kind)),
          fmt::format("'{}'", line->second));
  if (halves) model.halves_order = *halves;
  return model;
}

std::uint32_t result_bits(const AccumulatorModel& model, const VectorFile& file,
                          const VectorCase& one) {
  const auto c = std::bit_cast<float>(one.c);
  if (!file.scales)
    return std::bit_cast<std::uint32_t>(
        dot_product(model, file.a_format, one.a, file.b_format, one.b, c));
  const std::vector<std::uint32_t> a(one.scales_a.begin(), one.scales_a.end());
  const std::vector<std::uint32_t> b(one.scales_b.begin(), one.scales_b.end());
  const BlockScales scales{magnitude_format(file.scales->format).id, file.scales->block, a, b};
  return std::bit_cast<std::uint32_t>(
      dot_product(model, file.a_format, one.a, file.b_format, one.b, scales, c));
}

ReplayReport replay(const VectorFile& file, const AccumulatorModel& model) {
  require(!file.scales || traits_of(model).takes_scales, "scales",
          "none: this accumulator uses no scales",
          file.scales ? to_string(file.scales->format) : "none");
  ReplayReport report;
  for (const VectorCase& one : file.cases) {
    const std::uint32_t got_bits = result_bits(model, file, one);
    ++report.cases;
    if (is_same_result(file, one.d, got_bits)) continue;
    ++report.mismatches;
    if (report.shown.size() < kMaxShown)
      report.shown.push_back(
          {one.line, file.a_format, file.b_format, one, one.d, got_bits, file.scales});
  }
  return report;
}

ReplayReport replay(const VectorFile& file, const std::string& model_name) {
  const InstructionModel& model =
      find_instruction_model(model_name.empty() ? file.model : model_name);
  const int file_width = format(file.a_format).storage_bits;
  const int model_width = format(model.a_format).storage_bits;
  require(file_width == model_width, "model",
          fmt::format("one for {}-bit inputs, as the file holds {}", file_width,
                      format(file.a_format).name),
          fmt::format("{} ({})", model.name, format(model.a_format).name));
  require(!file.scales || traits_of(model.accumulator).takes_scales, "model",
          "a model that uses block scales", fmt::format("{}, which uses no scales", model.name));
  ReplayReport report = replay(file, model_name.empty() ? executed_model(file) : model.accumulator);
  report.model = model.name;
  return report;
}

std::string describe(const ReplayMismatch& mismatch) {
  std::string text = fmt::format("line {}:\n", mismatch.line);
  text += describe_operand("a", mismatch.a_format, mismatch.inputs.a);
  text += describe_operand("b", mismatch.b_format, mismatch.inputs.b);
  if (mismatch.scales) {
    text += describe_scales("a", mismatch.scales->format, mismatch.inputs.scales_a);
    text += describe_scales("b", mismatch.scales->format, mismatch.inputs.scales_b);
  }
  text += describe_float("c", mismatch.inputs.c);
  text += describe_float("expected", mismatch.expected);
  text += describe_float("got", mismatch.got);
  return text;
}

}  // namespace fp8lab
