#pragma once
// Library calls by name: what a known kernel does with a product, beside its operands. A name sets
// instruction, promotion, scale order, how K may be split and the usual output.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/product/product.hpp"

namespace fp8lab {

/// One row of `fp8lab list calls`.
struct LibraryCall {
  std::string_view name;   ///< `cublaslt.h100.fast`
  std::string_view model;  ///< of E4M3 operands; other FP8 ones have the same accumulator
  std::int64_t promotion_interval = 0;
  ScaleOrder scale_order = ScaleOrder::product_then_fma;      ///< one scale each, or tiles along K
  ScaleOrder row_scale_order = ScaleOrder::product_then_fma;  ///< one scale a row or column
  std::string_view scales;           ///< the tiles that it takes: `1, rows`, `1x128 x 128x128` ...
  FormatId output = FormatId::bf16;  ///< what it usually writes
  std::int64_t split_tile = 0;       ///< terms of a tile where it splits K; 0: it does not
  std::span<const std::pair<SplitCut, SplitOrder>> splits{};  ///< that it is known to use
  std::string_view epilogue;  ///< what follows the sum, and in which order
  Standing standing = Standing::assumed;
  std::string_view source;  ///< and what exactly is known
};

std::span<const LibraryCall> library_calls();

/// Throws `Error` that lists them.
const LibraryCall& find_library_call(std::string_view name);

/// The registered instruction with the call's accumulator that reads these operands. Throws
/// `Error` that names those there are. float A and B: for a recipe, E4M3.
std::string_view model_of(const LibraryCall& call, ElementType a, ElementType b);

/// `spec` with the model, promotion, scale order and split tile of a call, for these operands.
/// Output, C and epilogue stay. Throws `Error` for a split that the call is not known to use.
GemmSpec with_call(const LibraryCall& call, const GemmOperands& operands, GemmSpec spec);

}  // namespace fp8lab
