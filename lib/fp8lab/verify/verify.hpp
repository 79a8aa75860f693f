#pragma once
// Is this output right? Bitwise first; then how far it is off, where, whether that
// lies within the error budget, which known mistake explains it, and whether the
// test could have failed at all.

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
#include "fp8lab/verify/budget.hpp"
#include "fp8lab/verify/budget_check.hpp"
#include "fp8lab/verify/causes.hpp"
#include "fp8lab/verify/power.hpp"
#include "fp8lab/verify/regions.hpp"

namespace fp8lab {

enum class Verdict : std::uint8_t {
  pass,      ///< the check passed, and could have failed: see power.hpp
  mismatch,  ///< the check failed
  no_power,  ///< the check passed, but so would outputs that it must see as wrong
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

/// One wrong element, with what is known about it.
struct ElementReport {
  std::string_view which;  ///< "first" or "worst"
  CodeMismatch mismatch;
  std::int64_t row = 0;
  std::int64_t column = 0;
  // With inputs only:
  std::optional<ErrorBudget> budget;
  /// The K-block whose sum is nearest to expected - got; empty behind an epilogue.
  std::int64_t k_begin = 0;
  std::int64_t k_end = 0;
  double k_block_sum = 0.0;
  std::vector<TermReport> terms;    ///< its largest products, at most 4
  std::vector<ModelAnswer> models;  ///< every registered model of these input formats
};

struct VerifyReport {
  Verdict verdict = Verdict::pass;
  Check check;
  std::string subject;  ///< what the output was checked against
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  FormatId output = FormatId::f32;
  CodeComparison comparison;
  MismatchMap map;
  std::vector<Region> regions;  ///< with a product's inputs: where it is wrong, see regions.hpp
  std::vector<ElementReport> elements;
  /// Other codes than the golden ones, but in reach of their activation (see epilogue.hpp): they
  /// count as golden in all that follows.
  std::uint64_t within_activation = 0;
  std::optional<BudgetSummary> budget;
  std::vector<bool> gates;  ///< one a gate of `gates()`: whether it would have passed
  std::optional<PowerReport> power;
  NonFiniteReport non_finite;  ///< of the inputs, the golden output and the one that was checked
  std::size_t power_of_check = 0;  ///< index of `check` in `power->checks`
  std::optional<Diagnosis> diagnosis;
};

struct VerifyOptions {
  Check check{};              ///< what decides
  bool fault_matrix = false;  ///< every fault against every check, also after a failure
  int threads = 0;
  std::optional<ScaleTiles> scale_tiles{};  ///< of a cast's scales; unnamed: `tiles_of_shape`
  /// More mistakes to try, see causes.hpp; asked for where they are needed.
  std::function<std::vector<WrongProduct>()> more{};
  bool judge_power = true;  ///< false: a check that passes is not questioned
  Progress progress{};      ///< told of a product's steps
};

/// Checks `got` [m, n] against the golden output of a product. Throws `Error` for
/// another shape or type than the product's output.
VerifyReport verify(const Product& product, const Operand& got, const VerifyOptions& options = {});

/// Checks `got` against a golden output of the same shape and type, part by part:
/// neither needs to fit in memory. A `budget` check throws `Error`.
VerifyReport verify(const Operand& golden, const Operand& got, const VerifyOptions& options = {});

/// Checks a quantized dump: got[i] must be cast(x[i] * scale), part by part. `scale`
/// multiplies into the format: one value, one a row, or a grid of tiles over x as
/// a matrix [rows, last dimension], see `tiles_of_shape`; null for 1.
VerifyReport verify_cast(const CastSpec& spec, const Operand& x, const Operand* scale,
                         const Operand& got, const VerifyOptions& options = {});

/// The report for people, as the command prints it and a test shows it.
std::string describe(const VerifyReport& report);

/// `fault` against `check`: detected or missed, as an aligned table.
std::string describe_faults(const PowerReport& power);

}  // namespace fp8lab
