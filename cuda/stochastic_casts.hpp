#pragma once
// The chip's casts with stochastic rounding (sm_100a): which there are, their kernels by name, and
// what a launch takes. PTX does not say in text which random bits an element takes; that is
// searched (tool/judge_rounding.hpp).

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "fp8lab/formats/format.hpp"

namespace fp8lab::cuda {

struct StochasticCast {
  std::string_view name;  ///< as PTX writes it
  FormatId to;
  int elements;     ///< 4, or 2 of FP16 and BF16
  bool saturating;  ///< what is too large becomes the largest finite value
};
std::span<const StochasticCast> stochastic_casts();

/// The code of element `element` in the word that a cast of these gives: the last operand is
/// lowest.
constexpr std::uint32_t code_in(const StochasticCast& cast, std::uint32_t word, int element) {
  const int bits = format(cast.to).storage_bits == 16 ? 16 : cast.to == FormatId::e2m1 ? 4 : 8;
  return word >> (bits * (cast.elements - 1 - element)) & ((std::uint32_t{1} << bits) - 1u);
}

struct NamedStochasticCast {
  std::string_view name;
  /// Device memory: `count` times four values and a word of random bits, to a word of codes each.
  void (*launch)(const float* values, const std::uint32_t* random, std::size_t count,
                 std::uint32_t* codes);
};
/// Empty for a toolkit without them.
std::span<const NamedStochasticCast> stochastic_cast_kernels();

}  // namespace fp8lab::cuda
