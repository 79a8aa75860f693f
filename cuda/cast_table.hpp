#pragma once
// The chip's conversions between formats, as a table: what each instruction converts, and the cast
// of the library that it is compared with. Nothing here needs CUDA: the kernels are found by name.

#include <cstdint>
#include <span>
#include <string_view>

#include "fp8lab/cast/policy.hpp"
#include "fp8lab/formats/format.hpp"

namespace fp8lab::cuda {

/// One `cvt`. It converts two values; a narrow result has a byte of its own here, also where the
/// instruction puts two E2M1 codes into one.
struct CastInstruction {
  std::string_view name;  ///< as PTX writes it
  FormatId from;
  FormatId to;
  CastPolicy policy;

  /// Codes of `from`, all of which are compared.
  [[nodiscard]] std::uint64_t inputs() const {
    return std::uint64_t{1} << format(from).code_bits();
  }
};

/// Conversions of Blackwell to and from FP4, FP6 and UE8M0 (sm_100a and sm_120a).
std::span<const CastInstruction> narrow_casts();

}  // namespace fp8lab::cuda
