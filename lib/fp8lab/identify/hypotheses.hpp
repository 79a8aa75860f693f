#pragma once
// The hypotheses of `identify`: accumulators, promotion intervals, scale orders,
// split-K and output roundings that a kernel may have used.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/product/product.hpp"

namespace fp8lab {

/// An accumulator with all its registered names.
struct NamedAccumulator {
  AccumulatorModel accumulator;
  std::vector<std::string_view> names;
};

/// The accumulators of all registered models that read the operands of this problem, and of the
/// definitions, each once, in the registry's order. Block-scaled ones are included if they apply
/// the problem's scales. Then those of `more` that accept the operands. Without `zeros_show`,
/// accumulators count as one that differ in the sign of a sum that rounds to zero alone.
std::vector<NamedAccumulator> accumulators_for(const GemmProblem& problem,
                                               std::span<const std::string> more = {},
                                               bool zeros_show = true);

/// The cast of an FP32 result to the output: direct, or through another format.
struct OutputRounding {
  std::string_view name;  ///< `nearest_even`, `toward_zero`, `through_bf16` ...
  OutputCast cast;
  std::optional<FormatId> through{};
};

/// The roundings that are tried for an output format, the usual one first.
std::vector<OutputRounding> output_roundings(FormatId output);

/// FP32 results as codes of the output; every NaN becomes `nan_code` of the format.
std::vector<std::uint32_t> round_output(std::span<const float> d, const OutputRounding& rounding);

/// The code that represents every NaN of a format when outputs are compared.
std::uint32_t nan_code(FormatId id);
/// `code`, or `nan_code` if it is a NaN.
std::uint32_t canonical_code(FormatId id, std::uint32_t code);

/// One way to accumulate.
struct Accumulation {
  std::size_t accumulator = 0;  ///< index into `accumulators_for`
  std::int64_t promotion_interval = 0;
  ScaleOrder scale_order = ScaleOrder::product_then_fma;
  int split_k = 1;
  CPlacement c_enters = CPlacement::unnamed;  ///< if there is a C

  friend bool operator==(const Accumulation&, const Accumulation&) = default;
};

/// Every way to accumulate the problem's operands: no promotion, or promotion every 16, 32 ...
/// terms below K (for scales that change along K: divisors of their tiles); all scale orders
/// if there are scales; all places of C if there is a C; K whole or in 2, 4, 8 or 16 parts.
/// Those without a split come first.
std::vector<Accumulation> accumulations(const GemmProblem& problem,
                                        std::span<const NamedAccumulator> accumulators);

/// The product under one of them, with K whole.
Product product_under(const Product& product, const Accumulation& accumulation,
                      std::span<const NamedAccumulator> accumulators);

/// Whether two of them have the same sums over K: they differ only in the order in which scales of
/// the whole sum are applied to it.
bool share_sums(const Product& product, std::span<const NamedAccumulator> accumulators,
                const Accumulation& one, const Accumulation& other);

/// The FP32 sums over K of one of them, before scales of the whole sum and all later operations.
std::vector<float> sums_of(const Product& product, const Accumulation& accumulation,
                           std::span<const NamedAccumulator> accumulators, int threads);

/// The FP32 result of one of them, from its sums.
std::vector<float> result_of(const Product& product, const Accumulation& accumulation,
                             std::span<const NamedAccumulator> accumulators,
                             std::span<const float> sums);

}  // namespace fp8lab
