#include "fp8lab/io/safetensors.hpp"

#include "target.hpp"

using namespace fp8lab;

void parse(std::span<const std::uint8_t> input) {
  const SafetensorsFile file(as_file(input, ".safetensors"));
  for (const NamedTensor& one : file.tensors()) {
    expect(to_float(one.tensor).size() == static_cast<std::size_t>(one.tensor.size()));
    expect(file.find(one.name).bytes.data() == one.tensor.bytes.data());
  }
}
