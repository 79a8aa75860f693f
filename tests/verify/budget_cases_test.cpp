// Right outputs in Hopper's style pass the budget, wrong ones that leave it fail: 15 problems.

#include <fmt/format.h>

#include <cmath>

#include "catch.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/product/variants.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/verify.hpp"

using namespace fp8lab;

namespace {

enum class Numbers { normal, outliers, positive };

struct Case {
  std::int64_t m, n, k;
  Numbers numbers;
  const char* recipe;
  std::int64_t promotion;
  FormatId output;
};

constexpr Case kCases[] = {
    {32, 48, 512, Numbers::normal, "te-current", 0, FormatId::bf16},
    {33, 24, 1024, Numbers::outliers, "te-current", 128, FormatId::f32},
    {16, 32, 256, Numbers::positive, "te-current", 128, FormatId::f16},
    {48, 24, 256, Numbers::normal, "torchao-rowwise", 0, FormatId::bf16},
    {12, 20, 2048, Numbers::outliers, "torchao-rowwise", 128, FormatId::bf16},
    {24, 24, 384, Numbers::positive, "torchao-rowwise", 128, FormatId::f32},
    {32, 64, 512, Numbers::normal, "deepseek-v3", 128, FormatId::bf16},
    {130, 12, 640, Numbers::outliers, "deepseek-v3", 128, FormatId::bf16},
    {8, 130, 512, Numbers::positive, "deepseek-v3", 128, FormatId::f32},
    {32, 32, 512, Numbers::normal, "deepgemm", 128, FormatId::f32},
    {1, 64, 2048, Numbers::outliers, "deepgemm", 128, FormatId::bf16},
    {20, 36, 896, Numbers::positive, "deepgemm", 128, FormatId::bf16},
    {32, 32, 256, Numbers::normal, "mxfp8-floor", 32, FormatId::bf16},
    {16, 48, 512, Numbers::outliers, "mxfp8-floor", 32, FormatId::f32},
    {24, 24, 320, Numbers::positive, "mxfp8-floor", 32, FormatId::f16},
};

std::vector<float> numbers(std::int64_t count, Numbers kind, const char* name) {
  const RandomStream stream(3, name);
  std::vector<float> x;
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(count); ++i) {
    const auto normal = static_cast<float>(stream.normal(i));
    const bool outlier = kind == Numbers::outliers && stream.bits32(4 * i) % 251 == 0;
    x.push_back(kind == Numbers::positive ? std::abs(normal) : outlier ? 100.0F * normal : normal);
  }
  return x;
}

/// The floats and the product of their codes: what a kernel is given, after quantizing.
struct Problem {
  std::vector<float> a, b;
  Product product;

  explicit Problem(const Case& c)
      : a(numbers(c.m * c.k, c.numbers, "a")), b(numbers(c.n * c.k, c.numbers, "b")) {
    GemmOperands operands;
    operands.a.codes = view_of(ElementType::f32, {c.m, c.k}, std::span<const float>(a));
    operands.b.codes = view_of(ElementType::f32, {c.n, c.k}, std::span<const float>(b));
    operands.recipe = c.recipe;
    product = make_product(operands, {.model = "sm90.wgmma.e4m3",
                                      .promotion_interval = c.promotion,
                                      .output = default_output(c.output)});
    // The kernel's own inputs are the codes.
    product.a_original = product.b_original = nullptr;
  }

  [[nodiscard]] VerifyReport verify_budget(const std::vector<std::byte>& codes) const {
    return verify(
        product,
        {"got",
         {element_type_of(product.output.format), {product.rows(), product.columns()}, codes},
         nullptr},
        {.check = find_check("budget")});
  }

  /// Elements outside of their budgets, each one looked at.
  [[nodiscard]] std::uint64_t outside(const std::vector<std::byte>& codes) const {
    const std::vector<std::byte> golden = golden_output(product);
    std::uint64_t count = 0;
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(product.size()); ++i) {
      const auto at = static_cast<std::size_t>(i);
      const FormatId id = product.output.format;
      const ErrorBudget budget =
          error_budget(product, i / product.columns(), i % product.columns());
      count +=
          allowed(budget, product.output, code_at(id, golden, at), code_at(id, codes, at)) ? 0 : 1;
    }
    return count;
  }
};

}  // namespace

TEST_CASE("budget: right outputs of 15 problems in Hopper's style pass", "[verify][budget][long]") {
  int passed = 0;
  for (const Case& c : kCases) {
    const Problem problem(c);
    const Product better =
        with_accumulator(problem.product, find_instruction_model("sm100.tcgen05.e4m3").accumulator);
    bool all = true;
    for (const Product& right : {problem.product, better}) {
      const VerifyReport report = problem.verify_budget(golden_output(right));
      INFO(c.recipe << " [" << c.m << ", " << c.n << "], k = " << c.k << "\n" << describe(report));
      CHECK(report.verdict != Verdict::mismatch);
      all = all && report.verdict == Verdict::pass;
    }
    passed += all ? 1 : 0;
  }
  fmt::print("budget mode passes right outputs of {} of {} problems\n", passed, std::size(kCases));
  CHECK(passed >= 12);
}

TEST_CASE("budget: wrong outputs of 15 problems fail if they leave it", "[verify][budget][long]") {
  int left = 0;
  for (const Case& c : kCases) {
    const Problem problem(c);
    const Product& p = problem.product;
    std::vector<std::vector<std::byte>> wrong;
    wrong.push_back(golden_output(without_terms(p, c.k - 64, c.k)));
    wrong.push_back(golden_output(*without_scales(p, Side::a)));
    wrong.push_back(golden_output(*with_fnuz_codes(p)));
    std::vector<float> gain = compute(p);
    for (float& x : gain) x *= 1.0625F;
    wrong.push_back(cast_output(gain, p.output));
    wrong.push_back(golden_output(p));
    const auto width = static_cast<std::size_t>(format(c.output).storage_bits / 8);
    wrong.back().back() ^= std::byte{0x80};  // one sign, of the last element
    CHECK(wrong.back().size() == p.size() * width);
    for (const std::vector<std::byte>& codes : wrong) {
      const std::uint64_t outside = problem.outside(codes);
      const VerifyReport report = problem.verify_budget(codes);
      INFO(c.recipe << " [" << c.m << ", " << c.n << "], k = " << c.k << ": " << outside
                    << " outside\n"
                    << describe(report));
      CHECK((report.verdict == Verdict::mismatch) == (outside > 0));
      left += outside > 0 ? 1 : 0;
    }
  }
  CHECK(left >= 60);  // of 75
}
