#pragma once
// Reading operands from device memory, and whole dot products by integers.

#include "emulated_core.hpp"

namespace fp8lab::cuda {

FP8LAB_HD inline std::uint32_t load_word(const std::uint8_t* row, int i, int storage_bits) {
  if (storage_bits == 8) return row[i];
  if (storage_bits == 16) return reinterpret_cast<const std::uint16_t*>(row)[i];
  return reinterpret_cast<const std::uint32_t*>(row)[i];
}

/// c + the products [begin, end) of two rows, `model.terms` at a time.
FP8LAB_HD inline float dot_by_integers(const EmulatedModel& model, const EmulatedFormat& a_format,
                                       const EmulatedFormat& b_format, const std::uint8_t* a_row,
                                       const std::uint8_t* b_row, int begin, int end, float c) {
  for (int first = begin; first < end; first += model.terms) {
    const int count = min(model.terms, end - first);
    const auto load_a = [&](int i) {
      return unpack_operand(a_format, load_word(a_row, first + i, a_format.storage_bits));
    };
    const auto load_b = [&](int i) {
      return unpack_operand(b_format, load_word(b_row, first + i, b_format.storage_bits));
    };
    c = fused_step_integer(model, a_format.mantissa_bits, b_format.mantissa_bits, count, load_a,
                           load_b, c);
  }
  return c;
}

/// c + all `terms` products of two rows, which for halves stand in their order.
FP8LAB_HD inline float output_by_integers(const EmulatedModel& model,
                                          const EmulatedFormat& a_format,
                                          const EmulatedFormat& b_format, const std::uint8_t* a_row,
                                          const std::uint8_t* b_row, int terms, Halves halves,
                                          float c) {
  const auto sum_of = [&](int begin, int count, float start) {
    return dot_by_integers(model, a_format, b_format, a_row, b_row, begin,
                           min(begin + count, terms), start);
  };
  c = enter_accumulator(model, c);
  if (halves == Halves::none) return sum_of(0, terms, c);
  for (int k = 0; k < terms; k += kHalvesTerms) {
    constexpr int kHalf = kHalvesTerms / 2;
    const float sum = halves == Halves::chained ? sum_of(k, kHalvesTerms, 0.0F)
                                                : add_apart(model, sum_of(k, kHalf, 0.0F),
                                                            sum_of(k + kHalf, kHalf, 0.0F));
    c = add_apart(model, c, sum);
  }
  return c;
}

}  // namespace fp8lab::cuda
