#pragma once
// Right values in wrong places: an output that was written transposed or with another distance
// between its rows, or whose rows, columns or tiles were exchanged.

#include <cstdint>
#include <span>

#include "fp8lab/product/product.hpp"
#include "fp8lab/verify/judge.hpp"

namespace fp8lab {

/// An output [rows, columns] and the golden one, codes of one format.
struct OutputPair {
  FormatId format = FormatId::f32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::span<const std::byte> golden;
  std::span<const std::byte> got;
};

/// Puts such mistakes before a judge of the elements of `sample`.
void try_misplacements(const OutputPair& outputs, const Sample& sample, Judge& judge);

}  // namespace fp8lab
