#include "fp8lab/io/replay.hpp"

#include <fmt/format.h>

#include <bit>

#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab {
namespace {

std::string describe_operand(const char* name, FormatId id,
                             const std::vector<std::uint32_t>& codes) {
  const Format& f = format(id);
  std::string text = fmt::format("  {} ({}):", name, f.name);
  for (std::size_t i = 0; i < codes.size(); ++i)
    text += fmt::format("{}{:0{}x} {:.6g}", i % 8 == 0 ? "\n    " : "   ", codes[i],
                        (f.code_bits() + 3) / 4, decode(f, codes[i]));
  return text + "\n";
}

std::string describe_float(const char* name, std::uint32_t bits) {
  return fmt::format("  {:<9}{:08x} {:.9g}\n", name, bits, std::bit_cast<float>(bits));
}

}  // namespace

ReplayReport replay(const VectorFile& file, const AccumulatorModel& model) {
  ReplayReport report;
  for (const VectorCase& one : file.cases) {
    const float got =
        dot_product(model, file.a_format, one.a, file.b_format, one.b, std::bit_cast<float>(one.c));
    const auto got_bits = std::bit_cast<std::uint32_t>(got);
    ++report.cases;
    if (got_bits == one.d) continue;
    ++report.mismatches;
    if (report.shown.size() < kMaxShown)
      report.shown.push_back({one.line, file.a_format, file.b_format, one, one.d, got_bits});
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
  ReplayReport report = replay(file, model.accumulator);
  report.model = model.name;
  return report;
}

std::string describe(const ReplayMismatch& mismatch) {
  std::string text = fmt::format("line {}:\n", mismatch.line);
  text += describe_operand("a", mismatch.a_format, mismatch.inputs.a);
  text += describe_operand("b", mismatch.b_format, mismatch.inputs.b);
  text += describe_float("c", mismatch.inputs.c);
  text += describe_float("expected", mismatch.expected);
  text += describe_float("got", mismatch.got);
  return text;
}

}  // namespace fp8lab
