#pragma once
// How a library call made its output: promotion interval, parts of K and rounding, found by
// comparing the output with the library's product.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/product/calls.hpp"
#include "fp8lab/product/product.hpp"

namespace fp8lab::cuda {

struct LtFinding {
  std::uint64_t outputs = 0;         ///< how many were compared
  std::uint64_t tried = 0;           ///< candidates
  std::vector<CallModel> fitting{};  ///< those that give every output; fewest parts first
  CallModel nearest{};               ///< what gives most of a sample of the outputs
  double nearest_share = 0.0;        ///< of that sample, 0 to 1
};

/// Finds the candidates that give `outputs`, row-major codes of `product.output` in little endian.
/// Of the product, operands, scales, instruction and output format count; its promotion, split and
/// scale order are what is searched. Candidates have one chain or intervals of 32 to 2048 terms,
/// 1 to 16 parts, or `stated_parts`, of tiles of 64 or 128 terms. What differs for no
/// data at all, such as an interval longer than K, or equal parts of K whose sums are added in
/// order and promotion at their ends, is tried once. Throws `Error` for outputs of
/// another size, for C, for an epilogue and for scales that change along K.
LtFinding find_lt_model(const Product& product, std::span<const std::byte> outputs,
                        int stated_parts = 1);

/// What a call gives for other operands of the same size: codes of the output, row-major.
using LtRun = std::function<std::vector<std::byte>(const Product&)>;

/// Leaves those of the fitting candidates that also give what `run` gives for operands on which
/// they differ. `product` is that of the finding, of which only the sizes, instruction, formats
/// and whether it has scales count. Draws magnitudes that change along K, sums that cancel, few
/// terms far apart, and scales, until one candidate is left or `draws` of them have not told two
/// apart.
void separate(LtFinding& finding, const Product& product, const LtRun& run, std::uint64_t seed,
              int draws = 48);

/// For people: the candidate, how many more fit, or that none does.
std::string to_string(const LtFinding& finding);

}  // namespace fp8lab::cuda
