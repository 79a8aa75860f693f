#include "fp8lab/vectors/vector_files.hpp"

#include "target.hpp"

using namespace fp8lab;

void parse(std::span<const std::uint8_t> input) {
  const VectorFile file = load_vectors(as_file(input, ".jsonl"));
  for (const VectorCase& one : file.cases)
    expect(one.a.size() == one.b.size() && one.a.size() == static_cast<std::size_t>(file.terms));
}
