// Kernels of ACE's sums with block scales against gemm_reference, on every target: drawn
// parameters, operands, scales and c of all kinds, sums of more bits than binary64 has, and sums
// next to where results are flushed.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include "catch.hpp"
#include "fp8lab/accumulate/definition.hpp"
#include "fp8lab/gemm/run.hpp"
#include "gemm/problems.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

constexpr std::array<std::string_view, 4> kAceNames{"x86.top4mxhf8ps", "x86.top4mxbf8ps",
                                                    "x86.top4mxhbf8ps", "x86.top4mxbhf8ps"};
constexpr std::array kAceData{Data::normal, Data::wide,     Data::codes, Data::finite,
                              Data::sparse, Data::specials, Data::tiny,  Data::ends};
constexpr std::array kAceStarts{Start::none,    Start::normal, Start::wide,
                                Start::extreme, Start::tiny,   Start::scattered};
constexpr std::array kAceSubnormals{Subnormals::kept, Subnormals::flushed_results,
                                    Subnormals::flushed};
constexpr std::int64_t kAceBlock = 32;

/// Exponents of the scales of one operand: sums of any size, next to overflow, and next to 2^-126.
struct ScaleRange {
  int low;
  int high;
};
constexpr std::array kScaleRanges{ScaleRange{-3, 3}, ScaleRange{-127, 127}, ScaleRange{48, 62},
                                  ScaleRange{-72, -56}};

std::vector<float> powers_of_two(std::int64_t count, const RandomStream& stream, ScaleRange range,
                                 bool with_nan) {
  std::vector<float> scales;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t word = stream.bits32(static_cast<std::uint64_t>(i));
    const auto span = static_cast<std::uint32_t>(range.high - range.low + 1);
    const float scale = std::ldexp(1.0F, range.low + static_cast<int>(word % span));
    scales.push_back(with_nan && word / span % 301 == 0 ? std::nanf("") : scale);
  }
  return scales;
}

/// Parameters, operands, scales and c of one case.
class DrawnScaledSums {
 public:
  explicit DrawnScaledSums(std::uint64_t number)
      : random_(number, "scaled sums"),
        number_(number),
        model_(find_instruction_model(kAceNames[number % kAceNames.size()])) {
    AccumulatorModel& m = model_.accumulator;
    m.subnormals = kAceSubnormals[below(kAceSubnormals.size())];
    if (below(2) == 0) m.terms = 1 << below(6);
    if (below(3) == 0) m.zero_sign = ZeroSign::kept;
  }

  void check() {
    const Shape shape{1 + signed_below(9), 1 + signed_below(90), 1 + signed_below(150)};
    const Data data = kAceData[below(kAceData.size())];
    const Start start = kAceStarts[below(kAceStarts.size())];
    Operands operands(model_, shape, data, start, 3 * number_ + below(3));
    GemmProblem& p = operands.problem;
    const std::int64_t blocks = (shape.k + kAceBlock - 1) / kAceBlock;
    const ScaleRange range = kScaleRanges[below(kScaleRanges.size())];
    const bool with_nan = below(4) == 0;
    const auto a = powers_of_two(shape.m * blocks, RandomStream(number_, "sa"), range, with_nan);
    const auto b = powers_of_two(shape.n * blocks, RandomStream(number_, "sb"), range, with_nan);
    if (below(8) != 0) p.scale_a = {a, 1, kAceBlock, FormatId::e8m0fnu};
    if (below(8) != 0) p.scale_b = {b, 1, kAceBlock, FormatId::e8m0fnu};
    if (below(3) == 0) p.promotion_interval = kAceBlock * (1 + signed_below(3));
    INFO(definition_of(p.model, model_.a_format, model_.b_format)
         << " " << shape.m << "x" << shape.n << "x" << shape.k << " data " << static_cast<int>(data)
         << " start " << static_cast<int>(start) << " scales 2^" << range.low << ".. interval "
         << p.promotion_interval << " case " << number_);
    check_all_targets(p);
  }

 private:
  std::size_t below(std::uint64_t bound) {
    return static_cast<std::size_t>(random_.below(drawn_++, bound));
  }
  std::int64_t signed_below(std::uint64_t bound) { return static_cast<std::int64_t>(below(bound)); }

  RandomStream random_;
  std::uint64_t number_;
  std::uint64_t drawn_ = 0;
  InstructionModel model_;
};

/// One code in every place of both operands of a product of K = 4.
GemmProblem product_of_codes(std::string_view name, const std::vector<std::uint8_t>& a,
                             const std::vector<std::uint8_t>& b) {
  GemmProblem p = problem_of(find_instruction_model(name));
  constexpr std::int64_t kTerms = 4;
  p.a = {p.a.format, a.data(), std::ssize(a) / kTerms, kTerms, kTerms, 1};
  p.b = {p.b.format, b.data(), std::ssize(b) / kTerms, kTerms, kTerms, 1};
  return p;
}

}  // namespace

TEST_CASE("scaled sums: drawn parameters, operands, scales and c keep the reference's bits",
          "[gemm]") {
  for (std::uint64_t number = 0; number < 600; ++number) DrawnScaledSums(number).check();
}

TEST_CASE("scaled sums: results next to 2^-126 are flushed as the unit says", "[gemm]") {
  // 1 + 2^-24 and its neighbours, of which the scales make numbers about 2^-126, and c on both
  // sides of it: E5M2's 2^12 and 2^-12 in one step.
  const std::vector<std::uint8_t> a{0x6c, 0x3c, 0x0c, 0x04, 0x6b, 0x3c, 0x0c, 0x84,
                                    0x6b, 0x6c, 0x8c, 0x04, 0xec, 0x3c, 0x8c, 0x04};
  const std::vector<std::uint8_t> b{0x3c, 0x00, 0x3c, 0x3c, 0x3c, 0x38, 0x3c, 0x38,
                                    0x3b, 0x3c, 0x0c, 0x0c, 0x44, 0xc0, 0x0c, 0x04};
  const std::vector<float> starts{
      0.0F,         -0.0F,     0x1p-126F,        -0x1p-126F,  0x1p-127F,
      -0x1.8p-127F, 0x1p-149F, 0x1.fffffcp-127F, 0x1.8p-126F, -0x1.000004p-126F};
  for (const std::string_view name : kAceNames)
    for (const Subnormals subnormals : kAceSubnormals)
      for (int exponent = -150; exponent <= -110; ++exponent)
        for (std::size_t first = 0; first < starts.size(); ++first) {
          GemmProblem p = product_of_codes(name, a, b);
          p.model.subnormals = subnormals;
          const std::vector<float> of_a(4, std::ldexp(1.0F, exponent / 2));
          const std::vector<float> of_b(4, std::ldexp(1.0F, exponent - exponent / 2));
          p.scale_a = {of_a, 1, kAceBlock, FormatId::e8m0fnu};
          p.scale_b = {of_b, 1, kAceBlock, FormatId::e8m0fnu};
          std::vector<float> c(16);
          for (std::size_t i = 0; i < c.size(); ++i) c[i] = starts[(first + i) % starts.size()];
          p.c = c.data();
          INFO(name << " " << to_string(subnormals) << " scales 2^" << exponent << " c from "
                    << first);
          check_all_targets(p);
        }
}

TEST_CASE("scaled sums: every code of FP8 is a number, those of NaN and Inf too", "[gemm]") {
  std::vector<std::uint8_t> all;
  for (int code = 0; code < 256; ++code)
    for (int term = 0; term < 4; ++term)
      all.push_back(static_cast<std::uint8_t>(term == code % 4 ? code : code * 37 + term));
  for (const std::string_view name : kAceNames) {
    const GemmProblem p = product_of_codes(name, all, all);
    INFO(name);
    CHECK(gemm_method(p) == "scaled sums");
    check_all_targets(p);
    std::vector<float> d(all.size() / 4 * (all.size() / 4));
    gemm(p, d);
    CHECK(std::ranges::none_of(d, [](float x) { return std::isnan(x) || std::isinf(x); }));
  }
}

TEST_CASE("scaled sums: only sums of more bits than binary64 has run in two words", "[gemm]") {
  const auto check = [](std::string_view name, int terms, std::uint8_t small,
                        std::string_view method) {
    // Beside E5M2's largest code, 1.75 2^16. Scales of two rows may differ by as much as they like.
    const std::vector<std::uint8_t> codes{0x7f, small, 0x00, 0x00, 0x7f, small, 0x00, 0x00};
    const std::vector<float> scales{0x1p-60F, 0x1p60F};
    GemmProblem p = product_of_codes(name, codes, codes);
    p.model.terms = terms;
    p.scale_a = p.scale_b = {scales, 1, kAceBlock, FormatId::e8m0fnu};
    for (const Target target : available_targets()) {
      if (target == Target::scalar) continue;
      std::vector<float> d(4);
      INFO(name << " " << to_string(target) << " beside code " << int{small});
      CHECK(run_gemm(p, d, target, 1) == method);
    }
  };
  // Multiples of 2^-16, 52 bits, and of 2^-18.
  check("x86.top4mxbf8ps", 4, 0x24, "scaled sums");
  check("x86.top4mxbf8ps", 4, 0x20, "rounded sums");
  check("x86.top4mxbf8ps", 4, 0x01, "rounded sums");
  // All codes of E4M3 with all of E5M2: 53 bits, and one more.
  check("x86.top4mxhbf8ps", 4, 0x01, "scaled sums");
  check("x86.top4mxhbf8ps", 8, 0x01, "rounded sums");
  check("x86.top4mxhf8ps", 32, 0x01, "scaled sums");
}
