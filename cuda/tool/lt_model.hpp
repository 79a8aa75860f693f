#pragma once
// How a library call made its output: promotion interval, parts of K and rounding, found by
// comparing the output with the library's product.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/product/product.hpp"

namespace fp8lab::cuda {

/// Where a sum is rounded on its way from FP32 to the output format.
enum class LtRounding : std::uint8_t {
  once,          ///< only the scaled FP32 sum
  sum_too,       ///< the sum before its scales, to the FP16 or BF16 output format
  parts_too,     ///< each part of a split K, to the FP16 or BF16 output format
  through_bf16,  ///< the scaled sum to BF16, and that to FP8
  through_f16,   ///< the scaled sum to FP16, and that to FP8
};
std::string_view to_string(LtRounding rounding);
/// The rounding called `name`. Throws `Error` that lists the names.
LtRounding find_lt_rounding(std::string_view name);

/// One candidate.
struct LtModel {
  std::int64_t interval = 0;  ///< terms between two promotions; 0: one chain
  SplitK split{};
  ScaleOrder scale_order = ScaleOrder::product_then_fma;
  LtRounding rounding = LtRounding::once;

  friend bool operator==(const LtModel&, const LtModel&) = default;
};
/// For people: `N_C 128, split 4 contiguous serial tile 128, b_then_fma_a, once`.
std::string to_string(const LtModel& model);

struct LtFinding {
  std::uint64_t outputs = 0;       ///< how many were compared
  std::uint64_t tried = 0;         ///< candidates
  std::vector<LtModel> fitting{};  ///< those that give every output; fewest parts first
  LtModel nearest{};               ///< what gives most of a sample of the outputs
  double nearest_share = 0.0;      ///< of that sample, 0 to 1
};

/// Finds the candidates that give `outputs`, row-major codes of `product.output` in little endian.
/// Of the product, operands, scales, instruction and output format count; its promotion, split and
/// scale order are what is searched. Candidates have one chain or intervals of 32 to 2048 terms,
/// 1 to 16 parts, or `stated_parts`, of tiles of 64 or 128 terms. What differs for no
/// data at all, such as an interval longer than K, is tried once. Throws `Error` for outputs of
/// another size, for C, for an epilogue and for scales that change along K.
LtFinding find_lt_model(const Product& product, std::span<const std::byte> outputs,
                        int stated_parts = 1);

/// What all fitting candidates have in common; without any, nothing is set.
struct LtKnown {
  std::optional<std::int64_t> interval{};
  std::optional<int> parts{};
  std::optional<std::int64_t> tile{};
  std::optional<SplitCut> cut{};
  std::optional<SplitOrder> order{};
  std::optional<ScaleOrder> scale_order{};
  std::optional<LtRounding> rounding{};

  friend bool operator==(const LtKnown&, const LtKnown&) = default;
};
LtKnown in_common(const std::vector<LtModel>& fitting);

/// For people: the candidate, how many more fit, or that none does.
std::string to_string(const LtFinding& finding);

}  // namespace fp8lab::cuda
