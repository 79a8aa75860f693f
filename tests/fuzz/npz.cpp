#include "fp8lab/io/npz.hpp"

#include "target.hpp"

using namespace fp8lab;

void parse(std::span<const std::uint8_t> input) {
  const NpzFile file(as_file(input, ".npz"));
  std::size_t left = 16;
  for (const std::string& name : file.names()) {
    if (left-- == 0) return;
    const NpzTensor member = file.read(name);
    expect(to_float(member.tensor).size() == static_cast<std::size_t>(member.tensor.size()));
  }
}
