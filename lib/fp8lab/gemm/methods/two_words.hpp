#pragma once
// Sums in two words of binary64, for methods that one word of it is not always enough.

#include "fp8lab/gemm/kernels.hpp"
#include "fp8lab/gemm/pack_form.hpp"

namespace fp8lab::gemm_detail {

/// Bits that binary64 holds.
inline constexpr int kDoubleBits = 53;

/// Two words for sums of so many products of all finite codes; unused where they are not enough.
TwoWords find_two_words(const Format& a, const Format& b, std::int64_t addends);

/// Whether such sums take c.
bool take_start(const TwoWords& words, float c);

}  // namespace fp8lab::gemm_detail
