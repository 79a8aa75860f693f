// Tables of observed calls, and the text that names a call in one: the first byte says which.

#include "fp8lab/product/calls.hpp"
#include "target.hpp"

using namespace fp8lab;

void parse(std::span<const std::uint8_t> input) {
  if (input.empty()) return;
  const std::string text(text_of(input.subspan(1)));
  if (input.front() % 2 == 1) {
    const TableCall call = parse_table_call(text);
    expect(is_table_call(text));
    expect(parse_table_call(call.text).choices == call.choices);
    return;
  }
  const CallTable table = parse_call_table(text, "table");
  const CallTable again = parse_call_table(to_text(table), "table");
  expect(again.calls == table.calls && again.header == table.header && again.model == table.model);
}
