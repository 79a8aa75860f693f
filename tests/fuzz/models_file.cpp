#include "fp8lab/accumulate/definition.hpp"
#include "target.hpp"

using namespace fp8lab;

/// Files of models by name: TOML, or JSON where the text begins with a brace.
void parse(std::span<const std::uint8_t> input) {
  const std::string_view text = text_of(input);
  // Models once made are kept: a long run would end for want of memory.
  static int left = 400'000;
  if (left-- <= 0) return;
  ModelBook book;
  if (text.starts_with('{'))
    book.add_json("fuzz.json", text);
  else
    book.add_toml("fuzz.toml", text);
  for (const std::string& definition : book.definitions()) {
    const ModelText parts = ModelText::parse("definition", definition);
    expect(!parts.name.empty());
    expect(book.resolve(parts.name) == definition);
    expect(is_definition(definition));
    (void)defined_model(definition);
  }
}
