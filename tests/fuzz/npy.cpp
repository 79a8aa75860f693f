#include "fp8lab/io/npy.hpp"

#include "target.hpp"

using namespace fp8lab;

void parse(std::span<const std::uint8_t> input) {
  const std::optional<ElementType> types[] = {std::nullopt, ElementType::e4m3fn, ElementType::bf16,
                                              ElementType::e2m1x2, ElementType::e2m3x4};
  for (const auto& type : types) try {
      const TensorView tensor = parse_npy(std::as_bytes(input), "fuzz", type);
      expect(to_float(tensor).size() == static_cast<std::size_t>(tensor.size()));
    } catch (const Error&) {
      continue;
    }
}
