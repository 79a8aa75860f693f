// Outputs of kernels that quantized with the cast of Triton's interpreter, and which operand.

#include <cmath>
#include <vector>

#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/verify.hpp"

using namespace fp8lab;

namespace {

constexpr std::int64_t kM = 48;
constexpr std::int64_t kN = 40;
constexpr std::int64_t kK = 512;

/// E4M3 of a number that is neither below 2^-6 nor above 448: to nearest, half away from zero, and
/// where that carries into the next binade the exponent's lowest bit is set, not counted up.
std::uint8_t cast_with_lost_carry(float x) {
  const float magnitude = std::abs(x);
  int exponent = std::ilogb(magnitude);
  auto eighths = static_cast<int>(std::floor(std::ldexp(magnitude, 3 - exponent) + 0.5F));
  if (eighths == 16) {
    eighths = 8;
    exponent += (exponent + 7) % 2 == 0 ? 1 : 0;
  }
  const int code = (exponent + 7) * 8 + eighths - 8;
  return static_cast<std::uint8_t>(code + (std::signbit(x) ? 128 : 0));
}

/// Numbers of a few magnitudes: none of a tile of them becomes subnormal.
std::vector<float> numbers(std::int64_t count, std::uint64_t seed) {
  const RandomStream stream(seed, "triton cast");
  std::vector<float> x;
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(count); ++i)
    x.push_back(static_cast<float>(std::exp2(8.0 * stream.uniform(2 * i) - 4.0)) *
                (stream.below(2 * i + 1, 2) == 0 ? 1.0F : -1.0F));
  return x;
}

struct Inputs {
  std::vector<float> a = numbers(kM * kK, 1);
  std::vector<float> b = numbers(kN * kK, 2);

  [[nodiscard]] Product product(const std::string& recipe) const {
    GemmOperands operands;
    operands.a.codes = view_of(ElementType::f32, {kM, kK}, std::span<const float>(a));
    operands.b.codes = view_of(ElementType::f32, {kN, kK}, std::span<const float>(b));
    operands.recipe = recipe;
    return make_product(operands, {.model = "sm90.wgmma.e4m3",
                                   .promotion_interval = 128,
                                   .output = default_output(FormatId::bf16)});
  }
};

/// The codes of an operand whose recipe divides by the stored scale, or multiplies by its inverse,
/// which is the same for powers of two.
std::vector<std::uint8_t> quantized(const std::vector<float>& x, std::int64_t rows,
                                    const InverseScales& scales) {
  const std::int64_t tiles = scales.k_block == 0 ? 1 : (kK + scales.k_block - 1) / scales.k_block;
  std::vector<std::uint8_t> codes;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t k = 0; k < kK; ++k) {
      const std::int64_t tile =
          row / scales.row_block * tiles + (scales.k_block == 0 ? 0 : k / scales.k_block);
      codes.push_back(cast_with_lost_carry(x[static_cast<std::size_t>(row * kK + k)] /
                                           scales.values[static_cast<std::size_t>(tile)]));
    }
  return codes;
}

std::string first_cause(const std::optional<Diagnosis>& diagnosis) {
  if (!diagnosis || diagnosis->causes.empty()) return "none";
  return diagnosis->causes.front().name;
}

Operand stored(const Product& product, const std::vector<std::byte>& codes) {
  return {"got",
          {element_type_of(product.output.format), {product.rows(), product.columns()}, codes},
          nullptr};
}

}  // namespace

TEST_CASE("causes: operands quantized with the cast of Triton's interpreter", "[verify]") {
  const Inputs inputs;
  for (const char* recipe : {"deepseek-v3", "deepgemm-ue8m0"}) {
    const Product right = inputs.product(recipe);
    const std::vector<std::uint8_t> a = quantized(inputs.a, kM, right.problem.scale_a);
    const std::vector<std::uint8_t> b = quantized(inputs.b, kN, right.problem.scale_b);
    const auto named = [&](bool wrong_a, bool wrong_b) {
      Product wrong = right;
      if (wrong_a) wrong.problem.a = CodeMatrix::row_major(FormatId::e4m3fn, a, kM, kK);
      if (wrong_b) wrong.problem.b = CodeMatrix::row_major(FormatId::e4m3fn, b, kN, kK);
      const VerifyReport report = verify(right, stored(right, golden_output(wrong)));
      INFO(recipe << "\n" << describe(report));
      CHECK(report.verdict == Verdict::mismatch);
      return first_cause(report.diagnosis);
    };
    CHECK(named(true, true) == "triton_interpreter_cast_a_and_b");
    CHECK(named(true, false) == "triton_interpreter_cast_a");
    CHECK(named(false, true) == "triton_interpreter_cast_b");
  }
}

TEST_CASE("causes: an output cast as Triton's interpreter does", "[verify]") {
  const Inputs inputs;
  Product right = inputs.product("deepseek-v3");
  right.output = default_output(FormatId::e4m3fn);
  std::vector<float> d = compute(right);
  // Into the range of normal numbers, so that the rule above says all.
  float least = 1e30F;
  float most = 0.0F;
  for (const float x : d) {
    least = std::min(least, std::abs(x));
    most = std::max(most, std::abs(x));
  }
  right.epilogue.alpha = 440.0F / most;
  d = compute(right);
  std::vector<std::byte> codes = golden_output(right);
  for (std::size_t i = 0; i < d.size(); ++i)
    if (std::abs(d[i]) >= 0x1p-6F) codes[i] = std::byte{cast_with_lost_carry(d[i])};
  const VerifyReport report = verify(right, stored(right, codes));
  INFO(describe(report));
  CHECK(report.verdict == Verdict::mismatch);
  CHECK(first_cause(report.diagnosis) == "triton_interpreter_cast");
}

TEST_CASE("causes: a dump cast as Triton's interpreter does", "[verify]") {
  const std::vector<float> x = numbers(4096, 3);
  const float scale = 3.0F;
  std::vector<std::byte> codes;
  codes.reserve(x.size());
  for (const float value : x) codes.push_back(std::byte{cast_with_lost_carry(value * scale)});
  const Diagnosis diagnosis = diagnose_cast({}, x, {&scale, 1}, codes);
  REQUIRE(diagnosis.mismatches > 40);
  REQUIRE_FALSE(diagnosis.causes.empty());
  CHECK(diagnosis.causes.front().name == "triton_interpreter_cast");
  CHECK(diagnosis.causes.front().explained == diagnosis.mismatches);
  CHECK(diagnosis.causes.front().contradicted == 0);
}
