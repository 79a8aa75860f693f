#include "fp8lab/vectors/vectors.hpp"

#include <sstream>

#include "target.hpp"

using namespace fp8lab;

namespace {

std::string written(const VectorFile& file) {
  std::ostringstream out;
  write_vectors(out, file);
  return out.str();
}

}  // namespace

void parse(std::span<const std::uint8_t> input) {
  std::istringstream in{std::string(text_of(input))};
  const std::string first = written(read_vectors(in, "fuzz"));
  std::istringstream again(first);
  expect(written(read_vectors(again, "fuzz")) == first);
}
