#pragma once
// What cuBLASLt wants for C where nothing is added: beta is zero and C is not read.

#include "fp8lab/formats/format.hpp"

namespace fp8lab::cuda {

struct LtOperandC {
  FormatId format = FormatId::f32;
  bool in_place = true;  ///< C is D; otherwise there is none
};

/// An FP8 D wants a C of BF16 or FP16. That cannot be D itself: cuBLASLt refuses one matrix with
/// two layouts (CUBLAS_STATUS_INVALID_VALUE).
inline LtOperandC lt_operand_c(FormatId d) {
  if (format(d).storage_bits == 8) return {FormatId::bf16, false};
  return {d, true};
}

}  // namespace fp8lab::cuda
