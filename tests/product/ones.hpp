#pragma once
// Operands whose values do not matter, for what shapes and options decide.

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "fp8lab/tensors/tensor.hpp"

namespace fp8lab::test {

inline const std::vector<std::uint8_t>& ones() {
  static const std::vector<std::uint8_t> kOnes(64 * 64, 0x38);
  return kOnes;
}
inline const std::vector<float>& floats() {
  static const std::vector<float> kFloats(64 * 64, 1.0F);
  return kFloats;
}
inline TensorView codes(std::vector<std::int64_t> shape, ElementType type = ElementType::e4m3fn) {
  const auto size = static_cast<std::size_t>(element_count(shape, "codes"));
  return view_of(type, std::move(shape), std::span(ones()).first(size));
}
inline TensorView real(std::vector<std::int64_t> shape) {
  const auto size = static_cast<std::size_t>(element_count(shape, "floats"));
  return view_of(ElementType::f32, std::move(shape), std::span(floats()).first(size));
}

}  // namespace fp8lab::test
