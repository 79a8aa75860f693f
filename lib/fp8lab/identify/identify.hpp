#pragma once
// Finds the model that explains an output bit for bit. Each hypothesis (instruction,
// promotion interval, scale order, split-K, output rounding) computes the outputs
// again. Hypotheses are ranked by the number of outputs that they give exactly.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/io/operand.hpp"
#include "fp8lab/product/product.hpp"

namespace fp8lab {

/// One hypothesis about a kernel.
struct Explanation {
  std::vector<std::string_view> models;  ///< registered names of this accumulator, never empty
  std::int64_t promotion_interval = 0;
  ScaleOrder scale_order = ScaleOrder::product_then_fma;
  int split_k = 1;            ///< parts of K, summed separately and added in FP32 in order
  std::string_view rounding;  ///< of the output, see hypotheses.hpp
  CPlacement c_enters = CPlacement::unnamed;  ///< if there is a C

  friend bool operator==(const Explanation&, const Explanation&) = default;
};

/// Hypotheses with equal outputs on all compared elements: this data cannot
/// distinguish them.
struct ExplanationClass {
  std::vector<Explanation> members;  ///< hardware first, then without split-K, then as tried
  std::uint64_t matches = 0;         ///< elements that they give exactly
  std::uint64_t compared = 0;        ///< elements that they were compared on

  [[nodiscard]] double rate() const;
};

/// An element on which the two best classes differ; codes of the output format.
struct SeparatingElement {
  std::int64_t row = 0;
  std::int64_t column = 0;
  std::uint32_t got = 0;
  std::uint32_t first = 0;   ///< code that the best class gives
  std::uint32_t second = 0;  ///< code that the next class gives
};

struct Identification {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t k = 0;
  FormatId output = FormatId::f32;
  bool scaled = false;       ///< scale orders were tried
  std::uint64_t tried = 0;   ///< number of hypotheses
  std::uint64_t beyond = 0;  ///< hypotheses right on the sample, not computed on all outputs
  std::uint64_t sums = 0;    ///< sums over K that the search computed: its cost
  std::vector<ExplanationClass> ranking;      ///< best first, of the last stage only
  std::vector<SeparatingElement> separating;  ///< the first of them, at most kSeparatingShown
  std::uint64_t separating_count = 0;         ///< among `separating_compared` elements
  std::uint64_t separating_compared = 0;

  /// Whether the best class gives every element of the output.
  [[nodiscard]] bool explained() const {
    return !ranking.empty() && ranking.front().matches == ranking.front().compared &&
           ranking.front().compared == static_cast<std::uint64_t>(rows * columns);
  }
};

inline constexpr std::size_t kSeparatingShown = 8;

/// Identifies `got`, the codes of the whole output [m, n], row-major.
///
/// It uses the operands, scales, C and output format of `product`, and ignores its model,
/// promotion, scale order, place of C and output policy. It computes all hypotheses on a few
/// outputs; those that are right there, and the next best, on more; and at most 32 of those that
/// are right on a sample of at most 64 x 64 outputs on all outputs. Codes of NaN count as equal.
/// The result does not depend on `threads` (0: all). `models`: more models to try, usually
/// definitions (accumulate/definition.hpp).
Identification identify(const Product& product, std::span<const std::byte> got, int threads = 0,
                        std::span<const std::string> models = {});

/// The same for a tensor. Throws `Error` unless it is row-major [m, n] of the output's type.
Identification identify(const Product& product, const Operand& got, int threads = 0,
                        std::span<const std::string> models = {});

/// The options with which `fp8lab gemm` and `fp8lab verify` compute the hypothesis: `--model`, its
/// name, `--promotion` ... Nothing if there are none, for an output that is not rounded to
/// nearest in one step.
std::optional<std::vector<std::string>> command_options(const Explanation& explanation,
                                                        bool scaled);

/// A hypothesis as text: `sm90.mma.e4m3 (= sm100.mma.e4m3), promotion 128 ...`.
std::string describe(const Explanation& explanation, bool scaled);

/// The ranking as text, with at most `most` classes.
std::string describe(const Identification& result, std::size_t most = 5);

}  // namespace fp8lab
