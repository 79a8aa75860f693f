#pragma once
// Checks whether an output is right: bit by bit, then by how much and where it
// differs, whether it is within the error budget, which known mistake explains it,
// and whether the test could have failed.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/core/progress.hpp"
#include "fp8lab/io/operand.hpp"
#include "fp8lab/metrics/code_comparison.hpp"
#include "fp8lab/product/non_finite.hpp"
#include "fp8lab/product/product.hpp"
#include "fp8lab/scaling/quantize.hpp"
#include "fp8lab/verify/budget.hpp"
#include "fp8lab/verify/budget_check.hpp"
#include "fp8lab/verify/causes.hpp"
#include "fp8lab/verify/power.hpp"
#include "fp8lab/verify/regions.hpp"

namespace fp8lab {

enum class Verdict : std::uint8_t {
  pass,      ///< the check passed, and it has power (power.hpp)
  mismatch,  ///< the check failed
  no_power,  ///< the check passed, but wrong outputs that it must detect would pass too
};
std::string_view to_string(Verdict verdict);

/// One operand pair of a sum.
struct TermReport {
  std::int64_t k = 0;
  std::uint32_t a_code = 0;
  std::uint32_t b_code = 0;
  double product = 0.0;
};

/// The output code that a model gives for one element.
struct ModelAnswer {
  std::string_view model;
  std::uint32_t code = 0;
};

/// One wrong element and its causes.
struct ElementReport {
  std::string_view which;  ///< "first" or "worst"
  CodeMismatch mismatch;
  std::int64_t row = 0;
  std::int64_t column = 0;
  // Only if the inputs are given:
  std::optional<ErrorBudget> budget;
  /// The K-block whose sum is nearest to expected - got; empty if there is an epilogue.
  std::int64_t k_begin = 0;
  std::int64_t k_end = 0;
  double k_block_sum = 0.0;
  std::vector<TermReport> terms;    ///< its largest products, at most 4
  std::vector<ModelAnswer> models;  ///< the codes of every registered model of these formats
};

/// The scales of a quantizer, compared with those of its recipe.
struct ScaleComparison {
  std::uint64_t compared = 0;
  std::uint64_t wrong = 0;
  std::vector<std::string> lines{};  ///< what is wrong with them, for a reader
};

struct VerifyReport {
  Verdict verdict = Verdict::pass;
  Check check;
  std::string subject;  ///< what the output was compared with
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  FormatId output = FormatId::f32;
  CodeComparison comparison;
  MismatchMap map;
  std::vector<Region> regions;  ///< if the inputs are given: where it is wrong (regions.hpp)
  std::vector<ElementReport> elements;
  /// Codes that differ from the golden ones within the allowed distance of their activation
  /// (epilogue.hpp). All other figures count them as golden.
  std::uint64_t within_activation = 0;
  std::optional<BudgetSummary> budget;
  std::vector<bool> gates;  ///< for each of `gates()`: whether it would have passed
  std::optional<PowerReport> power;
  NonFiniteReport non_finite;      ///< of inputs, golden output and checked output
  std::size_t power_of_check = 0;  ///< index of `check` in `power->checks`
  std::optional<Diagnosis> diagnosis;
  std::optional<ScaleComparison> scales{};  ///< of a quantizer
};

struct VerifyOptions {
  Check check{};              ///< the check that decides
  bool fault_matrix = false;  ///< every fault against every check, also after a failure
  int threads = 0;
  std::optional<ScaleTiles> scale_tiles{};  ///< tiles of a cast's scales; unset: `tiles_of_shape`
  /// More mistakes to try (causes.hpp). Called only if they are needed.
  std::function<std::vector<WrongProduct>()> more{};
  bool judge_power = true;  ///< false: no fault is tried, and a right output passes
  Progress progress{};      ///< receives the steps of the check of a product
};

/// Checks `got` [m, n] against the golden output of a product. Throws `Error` if its
/// shape or type is not that of the product's output.
VerifyReport verify(const Product& product, const Operand& got, const VerifyOptions& options = {});

/// Checks `got` against a golden output of the same shape and type. It reads both part
/// by part, so that they need not fit in memory. Throws `Error` for a `budget` check.
VerifyReport verify(const Operand& golden, const Operand& got, const VerifyOptions& options = {});

/// Checks a cast: got[i] must be the code of x[i] * scale. It reads part by part. `scale`
/// multiplies values before the cast: one value, one per row, or a grid of tiles over x as
/// a matrix [rows, last dimension], see `tiles_of_shape`; null means 1.
VerifyReport verify_cast(const CastSpec& spec, const Operand& x, const Operand* scale,
                         const Operand& got, const VerifyOptions& options = {});

/// Checks a quantizer: codes and scales must be those that `recipe` gives for x as a matrix [rows,
/// last dimension]. `scales` are the stored ones, one a tile: they multiply codes, or, if
/// `multipliers`, values before the cast; null: only codes are checked. `tensor_scale` is the
/// stored second level. `label` names the recipe. Throws `Error` for other shapes and types, and
/// for a recipe whose scale depends on earlier tensors.
VerifyReport verify_quantizer(const Recipe& recipe, const std::string& label, const Operand& x,
                              const Operand* scales, const Operand& got,
                              const VerifyOptions& options = {},
                              std::optional<float> tensor_scale = {}, bool multipliers = false);

/// The report as text with all that it has: verdict, regions, causes, then figures, as `fp8lab
/// verify --details` prints it.
std::string describe(const VerifyReport& report);

/// The same in at most 25 lines of 80 characters, but for the command: verdict, where, why and what
/// to try next. `command`: how the check was called; empty: it is not told what to try next.
std::string summary(const VerifyReport& report, const std::string& command = {});

/// A table of faults and checks: which check detects which fault.
std::string describe_faults(const PowerReport& power);

}  // namespace fp8lab
