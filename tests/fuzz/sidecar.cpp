#include "fp8lab/io/operand.hpp"

#include "target.hpp"

using namespace fp8lab;

void parse(std::span<const std::uint8_t> input) {
  static const OwnFile kData(".bin");
  static const std::string kName = kData.holding(std::string(64, '\0')).string();
  (void)as_file(input, ".bin.json");
  const Operand operand = load_operand(kName);
  expect(operand.tensor().bytes.size() == 64);
}
