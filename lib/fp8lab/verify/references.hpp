#pragma once
// What test suites compare an output with.

#include <array>
#include <cstddef>
#include <vector>

#include "fp8lab/verify/expect.hpp"

namespace fp8lab {

/// A reference, and its codes in the output's format.
struct Reference {
  std::vector<double> values;
  std::vector<std::byte> codes;
};
Reference reference_of(std::vector<double> values, const OutputCast& output);

/// One of each kind, see `ReferenceKind`. Products without C, bias and vectors of scales.
std::array<Reference, kReferences> references_of(const Product& product,
                                                 const ExpectOptions& options);

}  // namespace fp8lab
