#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/gemm/gemm.hpp"
#include "message_of.hpp"

using namespace fp8lab;

namespace {

const AccumulatorModel& hopper() { return find_instruction_model("sm90.wgmma.e4m3").accumulator; }

std::vector<std::uint8_t> finite_codes(std::string_view stream, std::size_t count) {
  const RandomStream random(3, stream);
  std::vector<std::uint8_t> codes(count);
  for (std::size_t i = 0; i < count; ++i) {
    // Exponents around 1, so that sums neither vanish nor overflow.
    const std::uint32_t draw = random.bits32(i);
    codes[i] = static_cast<std::uint8_t>((draw & 0x87) | ((5 + (draw >> 8) % 4) << 3));
  }
  return codes;
}

std::vector<Unpacked> unpack_all(std::span<const std::uint8_t> codes) {
  std::vector<Unpacked> values;
  for (const std::uint8_t code : codes) values.push_back(unpack(format(FormatId::e4m3fn), code));
  return values;
}

/// A one-element product over `k` random terms.
struct OneElement {
  explicit OneElement(std::size_t k)
      : a_codes(finite_codes("a", k)),
        b_codes(finite_codes("b", k)),
        a(unpack_all(a_codes)),
        b(unpack_all(b_codes)) {
    const auto length = static_cast<std::int64_t>(k);
    problem.model = hopper();
    problem.a = CodeMatrix::row_major(FormatId::e4m3fn, a_codes, 1, length);
    problem.b = CodeMatrix::row_major(FormatId::e4m3fn, b_codes, 1, length);
  }
  float result() const {
    float d = 0.0F;
    gemm_reference(problem, {&d, 1});
    return d;
  }
  float partial(std::size_t from, std::size_t count) const {
    return dot_product(hopper(), std::span(a).subspan(from, count),
                       std::span(b).subspan(from, count));
  }
  std::vector<std::uint8_t> a_codes, b_codes;
  std::vector<Unpacked> a, b;
  GemmProblem problem;
};

std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }

}  // namespace

TEST_CASE("promotion adds partial sums of fresh accumulators in FP32", "[gemm]") {
  OneElement one(300);
  one.problem.promotion_interval = 128;
  float expected = one.partial(0, 128);
  expected += one.partial(128, 128);
  expected += one.partial(256, 44);
  CHECK(bits(one.result()) == bits(expected));
}

TEST_CASE("all ones: 16384 without promotion, 32768 with 128", "[gemm]") {
  const std::vector<std::uint8_t> ones(32768, 0x38);
  GemmProblem problem;
  problem.model = hopper();
  problem.a = problem.b = CodeMatrix::row_major(FormatId::e4m3fn, ones, 1, 32768);
  float d = 0.0F;
  gemm(problem, {&d, 1});
  CHECK(d == 16384.0F);
  problem.promotion_interval = 128;
  gemm(problem, {&d, 1});
  CHECK(d == 32768.0F);
}

TEST_CASE("the scale orders, block by block", "[gemm]") {
  OneElement one(256);
  const std::vector<float> s_a{0.3F, 0.7F};
  const std::vector<float> s_b{1.1F, 0.9F};
  const float c = 0.1F;
  one.problem.c = &c;
  one.problem.c_enters = CPlacement::promoted_sum;
  one.problem.scale_a = {s_a, 1, 128};
  one.problem.scale_b = {s_b, 128, 128};
  one.problem.promotion_interval = 128;
  const float p0 = one.partial(0, 128);
  const float p1 = one.partial(128, 128);

  one.problem.scale_order = ScaleOrder::product_then_fma;
  CHECK(bits(one.result()) ==
        bits(std::fma(s_a[1] * s_b[1], p1, std::fma(s_a[0] * s_b[0], p0, c))));
  one.problem.scale_order = ScaleOrder::a_then_fma_b;
  CHECK(bits(one.result()) ==
        bits(std::fma(p1 * s_a[1], s_b[1], std::fma(p0 * s_a[0], s_b[0], c))));
  one.problem.scale_order = ScaleOrder::product_then_add;
  CHECK(bits(one.result()) == bits((c + (s_a[0] * s_b[0]) * p0) + (s_a[1] * s_b[1]) * p1));
  one.problem.scale_order = ScaleOrder::b_then_fma_a;
  CHECK(bits(one.result()) ==
        bits(std::fma(p1 * s_b[1], s_a[1], std::fma(p0 * s_b[0], s_a[0], c))));
  one.problem.scale_order = ScaleOrder::a_then_b_then_add;
  CHECK(bits(one.result()) == bits((c + (p0 * s_a[0]) * s_b[0]) + (p1 * s_a[1]) * s_b[1]));
  CHECK(find_scale_order("a_then_b_then_add") == ScaleOrder::a_then_b_then_add);
  CHECK_THROWS_WITH(find_scale_order("b_then_a"), contains("b_then_fma_a, a_then_b_then_add"));
}

TEST_CASE("scales that do not change along K apply once, to the whole sum", "[gemm]") {
  OneElement one(96);
  const std::vector<float> s_a{0.3F};
  const float c = 0.25F;
  one.problem.scale_a = {s_a, 1, 0};
  CHECK(bits(one.result()) == bits(s_a[0] * one.partial(0, 96)));
  one.problem.c = &c;
  one.problem.c_enters = CPlacement::epilogue;
  CHECK(bits(one.result()) == bits(std::fma(s_a[0], one.partial(0, 96), c)));
}

TEST_CASE("strides read any layout; k = 0 gives C; empty outputs are fine", "[gemm]") {
  const auto codes = finite_codes("matrix", 6 * 40);
  const CodeMatrix rows = CodeMatrix::row_major(FormatId::e4m3fn, codes, 6, 40);
  std::vector<std::uint8_t> transposed(codes.size());
  for (std::size_t i = 0; i < 6; ++i)
    for (std::size_t k = 0; k < 40; ++k) transposed[k * 6 + i] = codes[i * 40 + k];
  const CodeMatrix columns{FormatId::e4m3fn, transposed.data(), 6, 40, 1, 6};
  GemmProblem problem;
  problem.model = hopper();
  problem.a = problem.b = rows;
  std::vector<float> expected(36);
  std::vector<float> got(36);
  gemm_reference(problem, expected);
  problem.a = problem.b = columns;
  gemm(problem, got, 2);
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(bits(got[i]) == bits(expected[i]));

  const std::vector<float> c(36, 2.5F);
  problem.a.k = problem.b.k = 0;
  problem.c = c.data();
  gemm(problem, got);
  CHECK(got == c);
  problem.a.rows = 0;
  problem.c = nullptr;
  CHECK_NOTHROW(gemm(problem, {}));
}

TEST_CASE("arguments that do not fit are named", "[gemm]") {
  OneElement one(256);
  const std::vector<float> scales{1.0F, 1.0F, 1.0F};
  one.problem.promotion_interval = 100;
  CHECK_THROWS_WITH(one.result(), contains("promotion_interval: expected 0 or a multiple"));
  one.problem.promotion_interval = 128;
  one.problem.scale_a = {scales, 1, 128};
  CHECK_THROWS_WITH(one.result(), contains("scale_a: expected") && contains("[1, 2]") &&
                                      contains("got 3 values"));
  one.problem.scale_a = {std::span(scales).first(2), 1, 128};
  one.problem.promotion_interval = 0;
  CHECK_THROWS_WITH(one.result(), contains("promotion_interval: expected a divisor"));
  one.problem.b.k = 255;
  CHECK_THROWS_WITH(one.result(), contains("b: expected [n, k] with k = 256"));
  CHECK_THROWS_WITH(CodeMatrix::row_major(FormatId::e4m3fn, one.a_codes, 2, 256),
                    contains("codes: expected rows * k"));
}

TEST_CASE("arguments of A and of B that do not fit are named each", "[gemm]") {
  const OneElement one(256);
  const std::vector<float> scales(2, 1.0F);
  float d = 0.0F;
  for (const bool of_a : {true, false}) {
    const std::string name = of_a ? "a" : "b";
    const auto refused = [&](const auto& change, const std::string& says) {
      GemmProblem p = one.problem;
      p.promotion_interval = 128;
      change(p, of_a ? p.a : p.b, of_a ? p.scale_a : p.scale_b);
      INFO(says);
      CHECK_THROWS_WITH(validate(p, 1), contains(says));
    };
    refused([](GemmProblem&, CodeMatrix& m, InverseScales&) { m.rows = -1; },
            name + ": expected rows >= 0 and k >= 0, got [-1, 256]");
    refused([](GemmProblem&, CodeMatrix& m, InverseScales&) { m.k = -1; },
            name + ": expected rows >= 0 and k >= 0, got [1, -1]");
    refused([](GemmProblem&, CodeMatrix& m, InverseScales&) { m.data = nullptr; },
            name + ": expected data, got a null pointer");
    refused([](GemmProblem&, CodeMatrix& m, InverseScales&) { m.format = FormatId::f32; },
            name + ": expected a tensor-core input format, got f32");
    refused(
        [&](GemmProblem&, CodeMatrix&, InverseScales& s) {
          s = {scales, 0, 128};
        },
        "scale_" + name + ".row_block: expected a positive number, got 0");
    refused(
        [&](GemmProblem&, CodeMatrix&, InverseScales& s) {
          s = {scales, 1, -128};
        },
        "scale_" + name + ".k_block: expected a number >= 0, got -128");
    refused(
        [&](GemmProblem&, CodeMatrix&, InverseScales& s) {
          s = {scales, 1, 256};
        },
        "scale_" + name + ": expected [ceil(1/1), ceil(256/256)] = [1, 1], got 2 values");
    refused(
        [&](GemmProblem&, CodeMatrix&, InverseScales& s) {
          s = {scales, 1, 0};
        },
        "scale_" + name + ": expected [ceil(1/1), ceil(256/256)] = [1, 1], got 2 values");
    refused(
        [&](GemmProblem& p, CodeMatrix&, InverseScales& s) {
          p.promotion_interval = 0;
          s = {scales, 1, 128};
        },
        "promotion_interval: expected a divisor of scale_" + name + ".k_block = 128");
    refused(
        [&](GemmProblem& p, CodeMatrix&, InverseScales& s) {
          p.promotion_interval = 96;
          s = {scales, 1, 128};
        },
        "promotion_interval: expected a divisor of scale_" + name + ".k_block = 128");
  }
  CHECK_THROWS_WITH(gemm(one.problem, {}), contains("d: expected [m, n] = [1, 1], got 0 elements"));
  CHECK_NOTHROW(gemm(one.problem, {&d, 1}));
}

TEST_CASE("a NaN of C is canonical, also without products", "[gemm]") {
  OneElement one(64);
  const std::vector<float> scale{2.0F};
  for (const std::uint32_t nan : {0x7fc00000u, 0xffc00001u, 0x7f800001u}) {
    const auto c = std::bit_cast<float>(nan);
    for (const std::int64_t k : {0, 64})
      for (const std::int64_t interval : {0, 32})
        for (const bool scaled : {false, true})
          for (const CPlacement place :
               {CPlacement::accumulator, CPlacement::promoted_sum, CPlacement::epilogue}) {
            GemmProblem p = one.problem;
            p.a.k = p.b.k = k;
            p.c = &c;
            p.promotion_interval = interval;
            if (scaled) p.scale_a = {scale, 1, 0};
            p.c_enters = place;
            if (place == CPlacement::promoted_sum && (interval == 0 || scaled)) continue;
            INFO("k " << k << " interval " << interval << " scaled " << scaled << " "
                      << to_string(place));
            float d = 0.0F;
            gemm_reference(p, {&d, 1});
            CHECK(bits(d) == kCanonicalNan);
            gemm(p, {&d, 1});
            CHECK(bits(d) == kCanonicalNan);
          }
  }
}

TEST_CASE("a product of nothing is C, and its scales do not count", "[gemm]") {
  const std::vector<std::uint8_t> none;
  const std::vector<float> c{1.5F, -0.0F, -2.0F, 0.0F, 3.0F, -7.5F};
  const std::vector<float> scales{2.0F, 3.0F};
  GemmProblem p;
  p.model = hopper();
  p.a = CodeMatrix::row_major(FormatId::e4m3fn, none, 2, 0);
  p.b = CodeMatrix::row_major(FormatId::e4m3fn, none, 3, 0);
  std::vector<float> d(6, 42.0F);
  gemm(p, d);
  CHECK(d == std::vector<float>(6, 0.0F));
  p.c = c.data();
  for (const bool scaled : {false, true}) {
    if (scaled) p.scale_a = {scales, 1, 0};
    p.c_enters = CPlacement::epilogue;
    d.assign(6, 42.0F);
    gemm(p, d);
    for (std::size_t i = 0; i < d.size(); ++i) CHECK(bits(d[i]) == bits(c[i]));
  }
}

TEST_CASE("what a product refuses is said word for word", "[gemm]") {
  const auto codes = finite_codes("matrix", 6 * 40);
  GemmProblem p;
  p.model = hopper();
  p.a = CodeMatrix::row_major(FormatId::e4m3fn, std::span(codes).first(80), 2, 40);
  p.b = CodeMatrix::row_major(FormatId::e4m3fn, std::span(codes).first(120), 3, 40);
  const auto reason = [](const GemmProblem& problem, std::size_t size) -> std::string {
    return test::message_of([&] { validate(problem, size); }, "nothing");
  };
  CHECK(reason(p, 6) == "nothing");
  CHECK(reason(p, 5) == "d: expected [m, n] = [2, 3], got 5 elements");
  CHECK(reason(p, 7) == "d: expected [m, n] = [2, 3], got 7 elements");
  GemmProblem other = p;
  other.b.k = 39;
  CHECK(reason(other, 6) == "b: expected [n, k] with k = 40, as a has, got [3, 39]");
  other = p;
  other.b.format = FormatId::e8m13;
  CHECK(reason(other, 6) == "b: expected a tensor-core input format, got e8m13");
  for (const int interval : {-32, 16, 48}) {
    other = p;
    other.promotion_interval = interval;
    CHECK(reason(other, 6) ==
          "promotion_interval: expected 0 or a multiple of the model's 32 terms, got " +
              std::to_string(interval));
  }
  const std::vector<float> scales(12, 1.0F);
  for (const bool of_a : {true, false}) {
    const std::string name = of_a ? "a" : "b";
    other = p;
    InverseScales& s = of_a ? other.scale_a : other.scale_b;
    other.promotion_interval = 32;
    s = {std::span(scales).first(5), 1, 32};
    CHECK(reason(other, 6) == (of_a ? "scale_a: expected [ceil(2/1), ceil(40/32)] = [2, 2], got 5 "
                                      "values"
                                    : "scale_b: expected [ceil(3/1), ceil(40/32)] = [3, 2], got 5 "
                                      "values"));
    s = {std::span(scales).first(4), of_a ? 1 : 2, 32};
    CHECK(reason(other, 6) == "nothing");
    s.k_block = 24;
    CHECK(reason(other, 6) == "promotion_interval: expected a divisor of scale_" + name +
                                  ".k_block = 24, since the scale changes along K, got 32");
    other.promotion_interval = 0;
    s.k_block = 32;
    CHECK(reason(other, 6) == "promotion_interval: expected a divisor of scale_" + name +
                                  ".k_block = 32, since the scale changes along K, got 0");
    // As long as K or longer: the scale does not change.
    s = {std::span(scales).first(of_a ? 2 : 3), 1, 40};
    CHECK(reason(other, 6) == "nothing");
    s.k_block = 41;
    CHECK(reason(other, 6) == "nothing");
    s = {};
    s.tensor_scale = 0.5F;
    CHECK(reason(other, 6) == "scale_" + name +
                                  ".tensor_scale: expected 1 if there are no scales of "
                                  "its tiles, got 0.5");
  }
  const std::vector<float> c(6, 1.0F);
  p.c = c.data();
  p.c_enters = CPlacement::promoted_sum;
  CHECK(reason(p, 6) ==
        "c_enters: expected accumulator or epilogue, without promotion, got promoted_sum");
  p.promotion_interval = 32;
  CHECK(reason(p, 6) == "nothing");
  p.scale_a = {std::span(scales).first(2), 1, 0};
  CHECK(reason(p, 6) ==
        "c_enters: expected accumulator or epilogue, since these scales are applied to the whole "
        "sum, got promoted_sum");
  p.c_enters = CPlacement::unnamed;
  CHECK(reason(p, 6) ==
        "c_enters: expected accumulator or epilogue (with promotion, the bits depend on where C "
        "enters), got nothing");
  p.scale_a = {};
  CHECK(
      reason(p, 6) ==
      "c_enters: expected accumulator or promoted_sum or epilogue (with promotion, the bits depend "
      "on where C enters), got nothing");
  p.promotion_interval = 0;
  CHECK(reason(p, 6) == "nothing");
  CHECK_THROWS_WITH(CodeMatrix::row_major(FormatId::bf16, codes, 6, 40),
                    contains("format: expected an 8-bit format, got bf16"));
  CHECK_THROWS_WITH(CodeMatrix::row_major(FormatId::tf32, codes, 6, 40),
                    contains("format: expected an 8-bit format, got tf32"));
  CHECK_THROWS_WITH(CodeMatrix::row_major(FormatId::e2m1, codes, 5, 40),
                    contains("codes: expected rows * k = 5 * 40 codes, got 240"));
}
