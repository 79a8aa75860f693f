#pragma once
// Library calls by name: how a known kernel computes a product. A name sets the instruction,
// promotion, scale order, possible splits of K and the usual output.

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
  std::string_view model;  ///< for E4M3 operands; other FP8 operands have the same accumulator
  std::int64_t promotion_interval = 0;
  ScaleOrder scale_order = ScaleOrder::product_then_fma;      ///< per tensor, or tiles along K
  ScaleOrder row_scale_order = ScaleOrder::product_then_fma;  ///< for one scale per row or column
  std::string_view scales;  ///< the tiles that it accepts: `1, rows`, `1x128 x 128x128` ...
  FormatId output = FormatId::bf16;  ///< the usual output
  std::int64_t split_tile = 0;       ///< terms in a tile if it splits K; 0: it does not
  std::span<const std::pair<SplitCut, SplitOrder>> splits{};  ///< the splits that are known
  std::string_view epilogue;  ///< the operations after the sum, in order
  Standing standing = Standing::assumed;
  std::string_view source;  ///< with the details of what is known
};

std::span<const LibraryCall> library_calls();

/// The call named `name`. Throws `Error` that lists the names.
const LibraryCall& find_library_call(std::string_view name);

/// The registered instruction that has the accumulator of `model` and reads these operands. Throws
/// `Error` that names `caller` and lists the operands.
std::string_view model_reading(std::string_view model, std::string_view caller, FormatId a,
                               FormatId b);

/// The registered instruction that has the call's accumulator and reads these operands. Float A
/// and B have the formats that `recipe` gives them; without one those of the call's own
/// instruction. Throws `Error` that lists the instructions.
std::string_view model_of(const LibraryCall& call, ElementType a, ElementType b,
                          std::string_view recipe = {});

/// Throws `Error` where a call whose scales are tiles gets none for an operand. Calls with one
/// scale, or one per row, take a scale of 1 where none is given.
void require_scales(const LibraryCall& call, bool of_a, bool of_b);

/// `spec` with the model, promotion, scale order and split tile of a call, for these operands.
/// Output, C and epilogue do not change. Throws `Error` for a split that the call does not use.
GemmSpec with_call(const LibraryCall& call, const GemmOperands& operands, GemmSpec spec);

}  // namespace fp8lab
