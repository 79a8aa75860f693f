#include "fp8lab/vectors/recording.hpp"

#include "target.hpp"

using namespace fp8lab;

void parse(std::span<const std::uint8_t> input) {
  const VectorFile file = read_cases(as_file(input, ".txt"));
  for (const VectorCase& one : file.cases) expect(one.a.size() == one.b.size());
}
