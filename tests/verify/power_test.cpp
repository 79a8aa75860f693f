// All faults on products of every kind, one by one: which apply, what they change, who sees them,
// and what is said of those that nobody sees.

#include "fp8lab/verify/power.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/product/variants.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/activation_reach.hpp"
#include "fp8lab/verify/budget.hpp"
#include "fp8lab/verify/gates.hpp"
#include "product/products.hpp"
#include "product/scaled_units.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

std::string line_of_fault(const FaultOutcome& fault) {
  std::string text = fmt::format("{} {} ({}): ", fault.name, to_string(fault.kind), fault.text);
  if (!fault.applies) return text + "does not apply: " + fault.reason + "\n";
  text += fmt::format("{:.9g}", fault.mismatch_rate);
  for (const bool seen : fault.detected) text += seen ? " seen" : " missed";
  return text + (fault.reason.empty() ? "\n" : ": " + fault.reason + "\n");
}

/// Every fault of a product, worked out from what its name says.
class ExpectedFaults {
 public:
  ExpectedFaults(const Product& product, const std::vector<Check>& checks)
      : ExpectedFaults(product, checks,
                       {spread(product.rows(), 64), spread(product.columns(), 512)}) {}
  ExpectedFaults(const Product& product, const std::vector<Check>& checks, Sample sample)
      : whole_(product),
        checks_(checks),
        sample_(std::move(sample)),
        part_(take(product, sample_)),
        finished_(compute_finished(part_, true, 1)),
        golden_(cast_output(finished_.values, product.output, 1)),
        right_(decode_codes(product.output.format, golden_)) {}

  std::string all() {
    outputs();
    places();
    operands();
    sums();
    return text_;
  }

 private:
  void one(FaultClass kind, const std::string& name, const std::string& text,
           const std::optional<std::vector<float>>& wrong, const std::string& reason = "") {
    FaultOutcome fault;
    fault.name = name;
    fault.text = text;
    fault.kind = kind;
    if (!wrong) {
      fault.applies = false;
      fault.reason = reason;
      text_ += line_of_fault(fault);
      return;
    }
    std::vector<std::byte> codes = cast_output(*wrong, whole_.output, 1);
    if (!finished_.reach.empty())
      codes = within_reach(whole_.output, finished_, golden_, codes).codes;
    const FormatId id = whole_.output.format;
    std::uint64_t differ = 0;
    for (std::size_t i = 0; i < right_.size(); ++i) {
      const double x = decode(format(id), code_at(id, golden_, i));
      const double y = decode(format(id), code_at(id, codes, i));
      if (std::isnan(x) && std::isnan(y)) continue;
      differ += code_at(id, golden_, i) != code_at(id, codes, i) ? 1U : 0U;
    }
    fault.mismatch_rate = static_cast<double>(differ) / static_cast<double>(right_.size());
    const CodeComparison compared = compare_codes(
        format(id), golden_, codes, {.tolerances = gate_tolerances(id), .threads = 1});
    for (const Check& check : checks_) {
      bool passes = differ == 0;
      if (check.kind == Check::Kind::gate) passes = gate_passes(check.gate, compared);
      if (check.kind == Check::Kind::budget) {
        passes = true;
        for (const std::int64_t at : spread(static_cast<std::int64_t>(part_.size()), 1024)) {
          const auto i = static_cast<std::size_t>(at);
          const ErrorBudget budget =
              error_budget(part_, at / part_.columns(), at % part_.columns());
          passes = passes &&
                   allowed(budget, whole_.output, code_at(id, golden_, i), code_at(id, codes, i));
        }
      }
      fault.detected.push_back(!passes);
    }
    if (std::ranges::count(fault.detected, false) > 0) fault.reason = why(fault);
    text_ += line_of_fault(fault);
  }

  [[nodiscard]] std::string why(const FaultOutcome& fault) const {
    if (std::ranges::all_of(right_, [](float x) { return x == 0.0F; }))
      return "the right output is all zeros";
    float largest = 0.0F;
    for (const float x : right_)
      if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
    if (fault.mismatch_rate > 0.0)
      return fmt::format(
          "it changes {:.3g} % of the outputs, but by less than a tolerance allows "
          "(largest output {:.3g})",
          100.0 * fault.mismatch_rate, static_cast<double>(largest));
    if (fault.kind != FaultClass::rounding) return "it changes no output of this data";
    const auto small = [](const CodeMatrix& m) {
      for (std::int64_t i = 0; i < m.rows; ++i)
        for (std::int64_t k = 0; k < m.k; ++k) {
          const double x = std::abs(decode(format(m.format), code_at(m, i, k)));
          if (x != 0.0 && x != 1.0) return false;
        }
      return true;
    };
    return small(part_.problem.a) && small(part_.problem.b)
               ? "all inputs are integers in {-1, 0, 1}: every accumulator gives the same sums"
               : "these sums are the same in every accumulator";
  }

  void outputs() {
    const auto each = [&](const auto& change) {
      std::vector<float> wrong;
      for (std::size_t i = 0; i < right_.size(); ++i) wrong.push_back(change(right_[i], i));
      return wrong;
    };
    one(FaultClass::output, "zeros", "the output is all zeros",
        each([](float, std::size_t) { return 0.0F; }));
    double squares = 0.0;
    double count = 0.0;
    for (const float x : right_)
      if (std::isfinite(x)) {
        squares += static_cast<double>(x) * static_cast<double>(x);
        count += 1.0;
      }
    const double rms = count == 0.0 ? 0.0 : std::sqrt(squares / count);
    const RandomStream normal(1, "power.random");
    one(FaultClass::output, "random", "normal numbers of the output's RMS",
        each([&](float, std::size_t i) { return static_cast<float>(rms * normal.normal(i)); }));
    one(FaultClass::output, "sign_flip", "every sign is wrong",
        each([](float x, std::size_t) { return -x; }));
    one(FaultClass::output, "gain_0.72", "the output times 0.72",
        each([](float x, std::size_t) { return 0.72F * x; }));
  }

  /// Right values in wrong places.
  void places() {
    const auto n = static_cast<std::size_t>(part_.columns());
    std::optional<std::vector<float>> rotated;
    if (part_.rows() > 1) {
      rotated = right_;
      std::rotate(rotated->begin(), rotated->begin() + static_cast<std::ptrdiff_t>(n),
                  rotated->end());
    }
    one(FaultClass::output, "exchanged_rows", "each row in the place of the next one", rotated,
        "the output has one row");
    const std::string text = "rows and columns exchanged";
    if (whole_.rows() != whole_.columns() || whole_.rows() < 2)
      return one(FaultClass::output, "transposed_output", text, std::nullopt,
                 "the output is not square");
    // Rows and columns of the same numbers, which the sample need not have.
    const std::vector<std::int64_t> some = spread(whole_.rows(), 64);
    ExpectedFaults square(whole_, checks_, {some, some});
    std::vector<float> transposed = square.right_;
    const std::size_t side = some.size();
    for (std::size_t i = 0; i < side; ++i)
      for (std::size_t j = 0; j < side; ++j) transposed[i * side + j] = square.right_[j * side + i];
    square.one(FaultClass::output, "transposed_output", text, transposed);
    text_ += square.text_;
  }

  void of_whole(const std::string& name, const std::string& text,
                const std::optional<Product>& wrong, const std::string& reason) {
    std::optional<std::vector<float>> output;
    if (wrong) output = compute(take(*wrong, sample_), 1);
    one(FaultClass::operands, name, text, output, reason);
  }

  void operands() {
    const GemmProblem& p = part_.problem;
    std::int64_t tile = p.promotion_interval;
    if (tile == 0) tile = p.a.k >= 256 ? 128 : std::max<std::int64_t>(p.a.k / 2, 1);
    // The last tile, which may be short.
    const std::int64_t left = p.a.k % tile == 0 ? tile : p.a.k % tile;
    const std::string dropped =
        fmt::format("the last {} term{} left out", tile, tile == 1 ? "" : "s");
    if (p.a.k < 2)
      one(FaultClass::operands, "dropped_k_tile", dropped, std::nullopt, "K has one term");
    else
      one(FaultClass::operands, "dropped_k_tile", dropped,
          compute(without_terms(part_, p.a.k - left, p.a.k), 1));
    of_whole("swapped_scales", "A's scales on B and B's on A", with_swapped_scales(whole_),
             "it needs scales of both operands with the same tile width along K, and more than one "
             "tile");
    of_whole("transposed_b", "B's memory read in the other order", with_transposed_b(whole_),
             "B is not one dense matrix with several rows and columns");
    of_whole("fnuz_as_fn", "FNUZ codes read as FN codes, or the reverse", with_fnuz_codes(whole_),
             "the operands are not E4M3 or E5M2");
  }

  void sums() {
    one(FaultClass::rounding, "missing_promotion", "the first promotion does not happen",
        compute_missing_promotion(part_), "the product has no promotion inside K");
    const AccumulatorModel& own = whole_.problem.model;
    const bool narrow = traits_of(own).rounds_sums && own.output_fraction_bits < 23;
    const AccumulatorModel& other =
        find_instruction_model(narrow ? "fp32" : "sm90.wgmma.e4m3").accumulator;
    const std::string text =
        narrow ? "an FP32 accumulator" : "an accumulator of 14 bits, as Hopper's";
    const GemmProblem& p = part_.problem;
    std::string reason;
    if (applies_scales(p))
      reason = "the instruction applies the scales itself";
    else if (!takes_formats(other, p.a.format, p.b.format))
      reason = "it does not read these operands";
    else if (p.promotion_interval % other.terms != 0)
      reason = "its terms do not divide the promotion interval";
    std::optional<std::vector<float>> wrong;
    if (reason.empty()) {
      Product changed = part_;
      changed.problem.model = other;
      wrong = compute(changed, 1);
    }
    one(FaultClass::rounding, "accumulator", text, wrong, reason);
  }

  const Product& whole_;
  const std::vector<Check>& checks_;
  Sample sample_;
  Product part_;
  Finished finished_;
  std::vector<std::byte> golden_;
  std::vector<float> right_;
  std::string text_;
};

void compare_faults(const std::string& name, const Product& product) {
  const std::vector<Check> checks = all_checks();
  const PowerReport report = power(product, checks, 1);
  std::string got;
  for (const FaultOutcome& fault : report.faults) got += line_of_fault(fault);
  INFO(name);
  CHECK(got == ExpectedFaults(product, checks).all());
  CHECK(report.rows == std::min<std::int64_t>(product.rows(), 64));
  CHECK(report.columns == std::min<std::int64_t>(product.columns(), 512));
}

}  // namespace

TEST_CASE("power: every fault of products of every kind", "[verify]") {
  for (const char* model : {"sm90.wgmma.e4m3", "sm100.mma.e4m3", "sm89.mma.e5m2", "fp32", "exact",
                            "gfx942.mfma.fp8", "sm90.mma.e4m3.f16", "sm80.mma.bf16"}) {
    if (format(find_instruction_model(model).a_format).storage_bits != 8) continue;
    for (const std::int64_t interval : {0, 64, 16})
      for (const std::int64_t k : {1, 2, 3, 127, 300}) {
        const int terms = find_instruction_model(model).accumulator.terms;
        if (interval % terms != 0) continue;
        const RandomProduct random({.model = model, .promotion_interval = interval},
                                   {.shape = {5, 4, k}});
        compare_faults(fmt::format("{}, promotion {}, k {}", model, interval, k), random.product);
      }
  }
  for (const FormatId output : {FormatId::bf16, FormatId::f16, FormatId::e4m3fn, FormatId::e5m2}) {
    const RandomProduct random({.promotion_interval = 32, .output = default_output(output)},
                               {.shape = {6, 7, 96}, .tiles_a = {6, 3}, .tiles_b = {7, 3}});
    compare_faults(fmt::format("output {}", format(output).name), random.product);
  }
  for (const auto& [m, n] : {std::pair<std::int64_t, std::int64_t>{70, 3}, {2, 600}, {1, 1}}) {
    const RandomProduct random({.promotion_interval = 32},
                               {.shape = {m, n, 64}, .tiles_a = {m}, .tiles_b = {n}});
    compare_faults(fmt::format("{} x {}", m, n), random.product);
  }
}

TEST_CASE("power: faults on data that shows little", "[verify]") {
  // Zeros, integers, one NaN, infinities and tiny numbers.
  for (const std::string kind : {"zeros", "integers", "ones", "nan", "nans", "tiny", "large"})
    for (const FormatId output : {FormatId::f32, FormatId::f16, FormatId::e4m3fn}) {
      RandomProduct random({.promotion_interval = 32, .output = default_output(output)},
                           {.shape = {4, 5, 96}});
      const std::vector<std::uint8_t> given = random.a;
      for (std::vector<std::uint8_t>* codes : {&random.a, &random.b})
        for (std::uint8_t& code : *codes) {
          if (kind == "zeros") code = 0;
          if (kind == "integers") code = (code & 3U) == 0 ? 0 : (code & 0x80U) | 0x38U;
          if (kind == "ones") code = 0x38;
          if (kind == "tiny") code = 1;
          if (kind == "nans") code = 0x7f;
          if (kind == "large" && codes == &random.a) code = (code & 0x80U) | 0x7eU;
        }
      if (kind == "nan") random.a[5] = 0x7f;
      if (kind == "ones") random.b[7] = 0x40;  // a 2
      compare_faults(fmt::format("{} to {}", kind, format(output).name), random.product);
    }
}

TEST_CASE("power: faults behind an epilogue, and of units that apply scales", "[verify]") {
  const std::vector<float> bias{0.5F, -1.0F, 2.0F, 0.0F, 1.5F, -0.25F};
  for (const Activation activation : activations()) {
    RandomProduct random({.promotion_interval = 32}, {.shape = {5, 6, 96}});
    random.product.epilogue.alpha = 0.125F;
    random.product.epilogue.bias = bias;
    random.product.epilogue.activation = activation;
    compare_faults(std::string(to_string(activation)), random.product);
  }
  const std::vector<float> values = [] {
    std::vector<float> made;
    const RandomStream draws(3, "power");
    for (std::uint64_t i = 0; i < 4 * 128; ++i) made.push_back(static_cast<float>(draws.normal(i)));
    return made;
  }();
  for (const ScaledUnit& unit : kScaledUnits)
    compare_faults(unit.preset, product_of(unit, {values, 4, 128}));
}

TEST_CASE("power: of nothing there is none", "[verify]") {
  const RandomProduct random({}, {.shape = {4, 5, 64}});
  for (const bool rows : {true, false}) {
    Product none = random.product;
    (rows ? none.problem.a : none.problem.b).rows = 0;
    const PowerReport report = power(none, all_checks(), 1);
    CHECK(report.faults.empty());
    CHECK(report.checks.size() == all_checks().size());
    CHECK((report.rows == (rows ? 0 : 4) && report.columns == (rows ? 5 : 0)));
    CHECK_FALSE(report.has_power(0));
  }
  std::vector<Check> checks = all_checks();
  std::erase_if(checks, [](const Check& one) { return one.kind == Check::Kind::budget; });
  CHECK(power({}, std::span<const std::byte>{}, checks, 1).faults.empty());
  CHECK(power_of_cast(default_output(FormatId::e4m3fn), {}, checks, 1).faults.empty());
}

TEST_CASE("power of a cast: what only some values show, and formats without a FNUZ form",
          "[verify]") {
  const std::vector<Check> checks{find_check("bitwise")};
  for (const FormatId id : {FormatId::e4m3fn, FormatId::e5m2, FormatId::f16})
    for (const bool inexact : {false, true}) {
      const float last = inexact ? 1.7F : 1.5F;  // the other number is exact in all of them
      const PowerReport report =
          power_of_cast(default_output(id), std::vector{1.0F, -2.0F, last}, checks, 1);
      const auto fault = [&](std::string_view name) -> const FaultOutcome& {
        return *std::ranges::find(report.faults, name, &FaultOutcome::name);
      };
      INFO(format(id).name << (inexact ? ", inexact" : ", exact"));
      REQUIRE(report.faults.size() > 2);
      const FaultOutcome& truncated = fault("rtz_cast");
      CHECK(truncated.applies);
      CHECK(truncated.detected == std::vector{inexact});
      CHECK(truncated.mismatch_rate == (inexact ? 1.0 / 3.0 : 0.0));
      const bool has_other = id != FormatId::f16;
      const FaultOutcome& other = fault("fnuz_as_fn");
      CHECK(other.applies == has_other);
      if (has_other)
        CHECK(other.detected == std::vector{true});
      else
        CHECK(other.reason == "the format has no FNUZ form");
    }
}
