#include "fp8lab/accumulate/definition.hpp"

#include "target.hpp"

using namespace fp8lab;

/// Models by parameters, `fused:terms=16,...`, and lists of them.
void parse(std::span<const std::uint8_t> input) {
  for (const std::string& part : split_model_list(text_of(input))) {
    const ModelText parts = ModelText::parse("model", part);
    expect(ModelText::parse("model", parts.text()) == parts);
    if (!is_definition(part)) continue;
    // Models once made are kept: a long run would end for want of memory.
    static int left = 200'000;
    if (left-- <= 0) return;
    const InstructionModel& model = defined_model(part);
    // The serial form says the same, and its own serial form is itself.
    const std::string whole = definition_of(model.accumulator, model.a_format, model.b_format);
    const InstructionModel& again = defined_model(whole);
    expect(definition_of(again.accumulator, again.a_format, again.b_format) == whole);
  }
}
