// Kernels of AMD's and of block-scaled units and of short steps against gemm_reference, on every
// target: where their arithmetic has edges.

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "catch.hpp"
#include "fp8lab/accumulate/definition.hpp"
#include "fp8lab/accumulate/unit.hpp"
#include "gemm/problems.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

/// One model of each kernel that this file is about.
constexpr std::string_view kModels[] = {
    "gfx908.mfma.f16",  "gfx908.mfma.bf16",    "gfx90a.mfma.f32",     "gfx90a.mfma.f16",
    "gfx90a.mfma.bf16", "gfx90a.mfma.bf16_1k", "gfx942.mfma.f16",     "gfx942.mfma.bf16",
    "gfx942.mfma.xf32", "gfx942.mfma.fp8",     "gfx942.mfma.bf8.fp8", "sm70.mma.f16",
    "sm80.mma.f16",     "sm70.mma.f16.f16",    "sm80.mma.f16.f16",    "sm80.mma.bf16",
    "sm80.mma.tf32",    "sm90.mma.tf32",       "x86.vdpbf16ps",       "x86.tdpbf16ps",
    "x86.tmmultf32ps",  "x86.tdphbf8ps",       "x86.top2bf16ps",      "arm.bfdot",
    "arm.bfdot.ebf16",  "arm.fdot.f16",        "arm.fdot.e5m2.f16",   "arm.fmmla.e4m3.f16"};

/// Codes of a format from values, exactly.
std::vector<std::uint16_t> bf16_codes(const std::vector<float>& values) {
  std::vector<std::uint16_t> codes;
  for (const float x : values)
    codes.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16));
  return codes;
}

/// The scales of a block-scaled problem, as values of their format.
std::vector<float> random_scales(FormatId id, std::int64_t count, const RandomStream& stream,
                                 bool wide) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t word = stream.bits32(static_cast<std::uint64_t>(i));
    std::uint32_t code = id == FormatId::e8m0fnu ? 120 + word % 14 : word % 0x7f;
    if (wide) code = id == FormatId::e8m0fnu ? word % 255 : word % 0x7f;
    if (wide && word % 211 == 0) code = id == FormatId::e8m0fnu ? 255 : 0x7f;
    values.push_back(static_cast<float>(decode(format(id), code)));
  }
  return values;
}

struct ScaleForm {
  FormatId format;
  std::int64_t block;
};

std::uint16_t half_code(float x) {
  return static_cast<std::uint16_t>(encode(format(FormatId::f16), kNvidiaSatfinite, x));
}

}  // namespace

TEST_CASE("units: every registered instruction runs on a kernel", "[gemm]") {
  for (const InstructionModel& model : instruction_models()) {
    INFO(model.name);
    CHECK_FALSE(gemm_method(problem_of(model)) == "reference");
  }
}

TEST_CASE("units: special values in every place keep the reference's bits", "[gemm]") {
  // Two products of all codes that stand for a class, beside others that are -0, and every c.
  const auto places_of = [](const Format& f) {
    const auto one = static_cast<std::uint32_t>(f.bias) << f.mantissa_bits;
    std::vector<std::uint32_t> codes{0, 1, one, one | f.sign_mask()};
    if (f.has_infinity()) codes.push_back(f.infinity_code() | f.sign_mask());
    if (f.has_infinity()) codes.push_back(f.infinity_code());
    if (f.has_nan()) codes.push_back(f.magnitude_mask());
    codes.push_back(f.sign_mask());  // -0, or the NaN of FNUZ
    return codes;
  };
  const float infinity = std::numeric_limits<float>::infinity();
  const std::array starts{0.0F,  -0.0F,     infinity,   -infinity, std::nanf(""),
                          -1.0F, 0x1p-130F, -0x1p-149F, -0x1p-25F};
  std::set<std::string> seen;
  for (const InstructionModel& model : instruction_models()) {
    if (!seen.insert(definition_of(model.accumulator, model.a_format, model.b_format)).second)
      continue;
    const Format& fa = format(model.a_format);
    const Format& fb = format(model.b_format);
    const std::vector<std::uint32_t> of_a = places_of(fa);
    const std::vector<std::uint32_t> of_b = places_of(fb);
    const std::size_t terms = static_cast<std::size_t>(std::max(model.accumulator.terms, 2));
    const auto rows_of = [&](const Format& f, const std::vector<std::uint32_t>& codes,
                             std::uint32_t other, std::vector<unsigned char>& bytes) {
      const auto width = static_cast<std::size_t>(f.storage_bits / 8);
      for (const std::uint32_t first : codes)
        for (const std::uint32_t second : codes)
          for (std::size_t k = 0; k < terms; ++k) {
            std::uint32_t word = k == 0 ? first : k == 1 ? second : other;
            if (f.storage_bits == 32) word <<= 23 - f.mantissa_bits;
            const auto at = bytes.size();
            bytes.resize(at + width);
            std::memcpy(bytes.data() + at, &word, width);
          }
      const auto k = static_cast<std::int64_t>(terms);
      const auto rows = static_cast<std::int64_t>(codes.size() * codes.size());
      return CodeMatrix{f.id, bytes.data(), rows, k, k, 1};
    };
    std::vector<unsigned char> a;
    std::vector<unsigned char> b;
    GemmProblem p = problem_of(model);
    const auto one = static_cast<std::uint32_t>(fb.bias) << fb.mantissa_bits;
    p.a = rows_of(fa, of_a, 0, a);
    p.b = rows_of(fb, of_b, one | fb.sign_mask(), b);
    std::vector<float> c(static_cast<std::size_t>(p.a.rows * p.b.rows));
    // All nine c's beside each value of the first product.
    for (std::size_t i = 0; i < c.size(); ++i)
      c[i] = starts[(i + i / static_cast<std::size_t>(p.b.rows)) % starts.size()];
    p.c = c.data();
    p.c_enters = gemm_detail::passing_place(p);
    std::vector<float> expected(c.size());
    gemm_reference(p, expected);
    for (const Target target : available_targets()) {
      std::vector<float> got(c.size(), 42.0F);
      gemm_with_target(p, got, target, 1);
      INFO(model.name << " on " << to_string(target));
      CHECK(compare(p, expected, got) == "equal");
    }
  }
}

TEST_CASE("units: shapes across all block edges keep the reference's bits", "[gemm]") {
  std::uint64_t seed = 11000;
  for (const Shape shape : {Shape{5, 7, 0}, Shape{1, 200, 1}, Shape{3, 33, 3}, Shape{63, 65, 31},
                            Shape{65, 63, 33}, Shape{3, 600, 40}, Shape{2, 17, 1100}})
    for (const std::string_view name : kModels)
      for (const std::int64_t interval : {0, 128}) {
        ++seed;
        Operands operands(find_instruction_model(name), shape, Data::normal,
                          seed % 3 == 0 ? Start::none : Start::normal, seed);
        operands.problem.promotion_interval = interval;
        INFO(name << " " << shape.m << "x" << shape.n << "x" << shape.k << " interval " << interval
                  << " seed " << seed);
        check_all_targets(operands.problem);
      }
}

TEST_CASE("units: tiny, subnormal and extreme data and C keep the reference's bits", "[gemm]") {
  std::uint64_t seed = 12000;
  for (const std::string_view name : kModels)
    for (const Data data : {Data::tiny, Data::wide, Data::sparse, Data::codes, Data::specials})
      for (const Start start : {Start::none, Start::tiny, Start::extreme}) {
        ++seed;
        INFO(name << " data " << static_cast<int>(data) << " start " << static_cast<int>(start)
                  << " seed " << seed);
        const Operands operands(find_instruction_model(name), {7, 37, 67}, data, start, seed);
        check_all_targets(operands.problem);
      }
}

TEST_CASE("units: sums on ties with a rest far below keep the reference's bits", "[gemm]") {
  // Each of these decides a rounding: the first bit left out, all others, and their signs.
  std::uint64_t seed = 12500;
  for (const InstructionModel& model : instruction_models())
    for (const Shape shape : {Shape{7, 37, 67}, Shape{2, 130, 96}})
      for (const Start start : {Start::none, Start::ties}) {
        ++seed;
        INFO(model.name << " " << shape.m << "x" << shape.n << "x" << shape.k << " start "
                        << static_cast<int>(start) << " seed " << seed);
        check_all_targets(Operands(model, shape, Data::ties, start, seed).problem);
      }
}

TEST_CASE("units: signs of zero are those of IEEE 754 at any length of K", "[gemm]") {
  for (const std::string_view name :
       {"gfx90a.mfma.f32", "gfx90a.mfma.bf16", "gfx90a.mfma.bf16_1k", "gfx908.mfma.bf16",
        "gfx942.mfma.bf16", "x86.vdpbf16ps", "x86.tdpbf16ps", "x86.top2bf16ps", "arm.bfdot",
        "arm.bfdot.ebf16"})
    for (std::int64_t k = 1; k < 38; ++k)
      for (const float c : {-0.0F, 0.0F, -0x1p-126F, -0x1p-149F}) {
        // Products of -0, and one that cancels c or becomes subnormal, at the end of K.
        std::vector<float> a(static_cast<std::size_t>(k), -0.0F);
        std::vector<float> b(static_cast<std::size_t>(k), 1.0F);
        if (k % 3 == 0) a.back() = 0x1p-120F;
        if (k % 3 == 0) b.back() = k % 2 == 0 ? 0x1p-6F : -0x1p-7F;
        const auto a_codes = bf16_codes(a);
        const auto b_codes = bf16_codes(b);
        const InstructionModel& model = find_instruction_model(name);
        GemmProblem p;
        p.model = model.accumulator;
        const bool wide = model.a_format == FormatId::f32;
        p.a = {model.a_format, a_codes.data(), 1, k, k, 1};
        p.b = {model.b_format, b_codes.data(), 1, k, k, 1};
        if (wide) p.a.data = a.data();
        if (wide) p.b.data = b.data();
        p.c = &c;
        INFO(name << " k " << k << " c " << c);
        check_all_targets(p);
      }
}

TEST_CASE("units: CDNA2 flushes what binary32 rounds to a subnormal number", "[gemm]") {
  // Sums and products next to 2^-126, of both signs.
  const std::vector<float> values{0x1p-63F,  -0x1p-63F,    0x1.02p-64F, 0x1.fep-64F,
                                  0x1p-126F, -0x1.8p-126F, 0x1p-70F,    -0x1.04p-60F};
  const RandomStream random(3, "flush");
  for (const std::string_view name : {"gfx90a.mfma.bf16", "gfx90a.mfma.bf16_1k"})
    for (std::uint64_t i = 0; i < 60; ++i) {
      constexpr std::int64_t kTerms = 23;
      std::vector<float> a;
      std::vector<float> b;
      for (std::uint64_t t = 0; t < kTerms; ++t) {
        a.push_back(values[random.below(2 * (i * kTerms + t), values.size())]);
        b.push_back(values[random.below(2 * (i * kTerms + t) + 1, values.size())]);
      }
      const auto a_codes = bf16_codes(a);
      const auto b_codes = bf16_codes(b);
      const float c = std::ldexp(static_cast<float>(i) - 30.0F, -130);
      GemmProblem p;
      p.model = find_instruction_model(name).accumulator;
      p.a = {FormatId::bf16, a_codes.data(), 1, kTerms, kTerms, 1};
      p.b = {FormatId::bf16, b_codes.data(), 1, kTerms, kTerms, 1};
      p.c = &c;
      INFO(name << " case " << i);
      check_all_targets(p);
    }
}

TEST_CASE("units: sums that leave binary64 are exact", "[gemm]") {
  // In each step a product near 2^26 and its negative, and between them two of subnormal numbers,
  // which binary64 drops beside the large ones.
  const auto set_codes = [](OwnedMatrix& matrix, bool negates) {
    auto* codes = reinterpret_cast<std::uint16_t*>(matrix.bytes.data());
    const CodeMatrix& m = matrix.view;
    const auto at = [&](std::int64_t r, std::int64_t k) -> std::uint16_t& {
      return codes[r * m.row_stride + k * m.k_stride];
    };
    for (std::int64_t r = 0; r < m.rows; ++r)
      for (std::int64_t k = 0; k < m.k; ++k) {
        at(r, k) &= 0x83ff;
        if (k % 4 == 0) at(r, k) |= 0x7000;
        if (k % 4 == 2)
          at(r, k) = static_cast<std::uint16_t>(at(r, k - 2) ^ (negates ? 0x8000 : 0));
      }
  };
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    Operands operands(find_instruction_model("gfx908.mfma.f16"), {3, 40, 64}, Data::wide,
                      seed % 2 == 0 ? Start::none : Start::tiny, 13000 + seed);
    set_codes(operands.a, true);
    set_codes(operands.b, false);
    INFO("seed " << seed);
    check_all_targets(operands.problem);
  }
}

TEST_CASE("units: every parameter of steps in 32-bit integers", "[gemm]") {
  const RandomStream random(8, "words");
  for (std::uint64_t i = 0; i < 200; ++i) {
    const auto draw = [&](std::uint64_t which, std::uint64_t bound) {
      return static_cast<int>(random.below(8 * i + which, bound));
    };
    InstructionModel model = find_instruction_model(i % 3 == 0   ? "gfx942.mfma.f16"
                                                    : i % 3 == 1 ? "gfx942.mfma.fp8"
                                                                 : "sm80.mma.f16");
    AccumulatorModel& m = model.accumulator;
    m.terms = 1 + draw(0, 32);
    m.alignment_fraction_bits = 1 + draw(1, 27);
    if (i % 3 == 2) m.output_fraction_bits = 1 + draw(2, 23);
    if (i % 3 != 2) m.second_stage_fraction_bits = 1 + draw(3, 33);
    const Data data = kAllData[static_cast<std::size_t>(draw(4, 7))];
    INFO(model.name << " terms " << m.terms << " F " << m.alignment_fraction_bits << " second "
                    << m.second_stage_fraction_bits << " model " << i);
    const Operands operands(model, {3, 33, 90}, data, i % 2 == 0 ? Start::wide : Start::none, i);
    check_all_targets(operands.problem);
  }
}

TEST_CASE("units: CDNA3 adds a c of any exponent to the products of one step", "[gemm]") {
  // c from far below the products to far above them, and one that nearly cancels their sum: where
  // c is large the sum's lowest bits are dropped, or only say that there is more.
  std::uint64_t seed = 17000;
  for (const std::string_view name :
       {"gfx942.mfma.f16", "gfx942.mfma.bf16", "gfx942.mfma.xf32", "gfx942.mfma.fp8"})
    for (const bool cancels : {false, true})
      for (const std::int64_t rows : {1, 5}) {
        const InstructionModel& model = find_instruction_model(name);
        Operands operands(model, {rows, 640, model.accumulator.terms}, Data::normal, Start::normal,
                          3 * ++seed);
        GemmProblem p = operands.problem;
        p.c = nullptr;
        std::vector<float> sums(operands.c.size());
        gemm_reference(p, sums);
        const RandomStream random(seed, "exponents");
        for (std::size_t i = 0; i < sums.size(); ++i) {
          const auto step = static_cast<int>(random.below(i, 60)) - 25;
          float& c = operands.c[i];
          c = cancels ? -sums[i] * (1.0F + std::ldexp(c, -step)) : std::ldexp(c, step);
        }
        INFO(name << " rows " << rows << " cancels " << cancels << " seed " << seed);
        check_all_targets(operands.problem);
      }
}

TEST_CASE("units: CDNA3's sums next to ties, where its second stage has 31 bits or 32", "[gemm]") {
  // c and three products of powers of two: one that may take the sum to c's neighbouring binade,
  // one that may make a tie, and one far below it. They come first and last in a step of zeros.
  struct Unit {
    const char* name;
    int of_c;     // c is about 2^of_c
    int of_a[3];  // exponents of a; b has the rest
  };
  const auto signed_powers = [](std::initializer_list<int> exponents) {
    std::vector<float> values{0.0F};
    for (const int e : exponents)
      for (const float sign : {1.0F, -1.0F}) values.push_back(sign * std::ldexp(1.0F, e));
    return values;
  };
  const std::vector<float> crossing = signed_powers({-8, -9, -22, -23});
  const std::vector<float> tying = signed_powers({-24, -25, -26});
  const std::vector<float> far = signed_powers({-29, -30, -31, -32, -33});
  constexpr std::array kStarts{1.0F,          0x1.000002p0F, 0x1.000004p0F,
                               0x1.fffffep0F, 0x1.fffffcp0F, 1.5F};
  for (const Unit& unit :
       {Unit{"gfx942.mfma.f16", 0, {-4, -12, -16}}, Unit{"gfx942.mfma.bf16", 5, {-4, -12, -16}},
        Unit{"gfx942.mfma.xf32", -3, {-4, -12, -16}}, Unit{"gfx942.mfma.fp8", 13, {0, -4, -10}},
        Unit{"gfx942.mfma.bf8", 13, {0, -4, -10}}}) {
    const InstructionModel& model = find_instruction_model(unit.name);
    const Format& f = format(model.a_format);
    const std::size_t terms = static_cast<std::size_t>(model.accumulator.terms);
    const std::array<std::size_t, 3> places{0, 1, terms - 1};
    std::vector<std::uint32_t> a(terms, 0);
    std::vector<std::uint32_t> b;
    const auto code = [&](float x) { return encode(f, kNvidiaNosat, x); };
    for (std::size_t i = 0; i < 3; ++i) a[places[i]] = code(std::ldexp(1.0F, unit.of_a[i]));
    for (const float x : crossing)
      for (const float y : tying)
        for (const float z : far) {
          std::vector<std::uint32_t> column(terms, 0);
          const std::array values{x, y, z};
          for (std::size_t i = 0; i < 3; ++i)
            column[places[i]] = code(std::ldexp(values[i], unit.of_c - unit.of_a[i]));
          b.insert(b.end(), column.begin(), column.end());
        }
    const auto columns = static_cast<std::int64_t>(b.size() / terms);
    for (const std::int64_t rows : {1, 12}) {
      Operands operands(model, {rows, columns, static_cast<std::int64_t>(terms)}, Data::normal,
                        Start::normal, 3);
      const auto fill = [&](const OwnedMatrix& to, const auto& code_at_place) {
        const auto bytes = static_cast<std::size_t>(f.storage_bits / 8);
        for (std::int64_t r = 0; r < to.view.rows; ++r)
          for (std::int64_t k = 0; k < to.view.k; ++k) {
            std::uint32_t word = code_at_place(r, k);
            if (f.storage_bits == 32) word <<= 23 - f.mantissa_bits;
            std::memcpy(
                const_cast<unsigned char*>(to.bytes.data()) +
                    static_cast<std::size_t>(r * to.view.row_stride + k * to.view.k_stride) * bytes,
                &word, bytes);
          }
      };
      fill(operands.a,
           [&](std::int64_t, std::int64_t k) { return a[static_cast<std::size_t>(k)]; });
      fill(operands.b, [&](std::int64_t r, std::int64_t k) {
        return b[static_cast<std::size_t>(r) * terms + static_cast<std::size_t>(k)];
      });
      for (std::size_t i = 0; i < operands.c.size(); ++i) {
        const std::size_t which = i / static_cast<std::size_t>(columns);
        const float c = std::ldexp(kStarts[which % kStarts.size()], unit.of_c);
        operands.c[i] = which >= kStarts.size() ? -c : c;
      }
      std::vector<std::vector<float>> results;
      for (const int bits : {31, 32}) {
        operands.problem.model.second_stage_fraction_bits = bits;
        INFO(unit.name << ", " << rows << " rows, second stage of " << bits);
        CHECK(gemm_method(operands.problem) == "two stages");
        check_all_targets(operands.problem);
        results.emplace_back(operands.c.size());
        gemm_reference(operands.problem, results.back());
      }
      CHECK(results[0] != results[1]);
    }
  }
}

TEST_CASE("units: sums of 33 bits, whose halves fill 32-bit integers", "[gemm]") {
  // Significands of all ones, of one sign and of both, and c with the largest exponent or one that
  // leaves bits behind: 16 such products of FP16 in units of 2^-25 exceed 31 bits.
  std::uint64_t seed = 15000;
  for (const std::string_view name :
       {"sm90.mma.f16", "sm90.mma.f16.f16", "sm90.mma.bf16", "sm100.tcgen05.f16",
        "sm100.tcgen05.e4m3", "sm100.tcgen05.e5m2.f16", "sm120.mma.e4m3", "sm90.mma.e4m3",
        "sm90.mma.e5m2.f16.separate"})
    for (const int negatives : {0, 1, 2, 100})  // every so many terms
      for (const float c : {0.0F, 1.9999999F, -1.9999999F, 0x1.fffffep4F, -0x1.555554p-9F}) {
        Operands operands(find_instruction_model(name), {3, 35, 96}, Data::normal, Start::normal,
                          3 * ++seed);
        const Format& f = format(operands.a.view.format);
        const std::uint32_t ones =
            (static_cast<std::uint32_t>(f.bias) << f.mantissa_bits) | ((1u << f.mantissa_bits) - 1);
        const auto fill = [&](OwnedMatrix& matrix, bool signs) {
          const CodeMatrix& m = matrix.view;
          const auto bytes = static_cast<std::size_t>(f.storage_bits / 8);
          for (std::int64_t r = 0; r < m.rows; ++r)
            for (std::int64_t k = 0; k < m.k; ++k) {
              const bool rare = (r * 7 + k) % 23 == 0;  // other bits and exponents
              std::uint32_t code = rare ? ones - (1u << f.mantissa_bits) - 1 : ones;
              if (signs && negatives != 0 && k % negatives == 0) code |= f.sign_mask();
              std::memcpy(matrix.bytes.data() +
                              static_cast<std::size_t>(r * m.row_stride + k * m.k_stride) * bytes,
                          &code, bytes);
            }
        };
        fill(operands.a, true);
        fill(operands.b, false);
        for (float& x : operands.c) x = c;
        INFO(name << " negatives " << negatives << " c " << c << " seed " << seed);
        check_all_targets(operands.problem);
      }
}

TEST_CASE("units: block scales of all forms, with C, promotion and few columns", "[gemm]") {
  std::uint64_t seed = 14000;
  for (const std::string_view name :
       {"sm100.tcgen05.mxf8f6f4.e4m3", "sm120.mma.mxf8f6f4.e5m2.e4m3", "sm120.mma.mxf4nvf4"})
    for (const ScaleForm form : {ScaleForm{FormatId::e8m0fnu, 32}, ScaleForm{FormatId::e8m0fnu, 16},
                                 ScaleForm{FormatId::e4m3fn, 16}, ScaleForm{FormatId::e4m3fn, 32}})
      for (const Shape shape : {Shape{5, 67, 200}, Shape{70, 40, 100}, Shape{40, 3, 64}})
        for (const bool wide : {false, true})
          for (const std::int64_t interval : {0, 64}) {
            const InstructionModel& model = find_instruction_model(name);
            if (!unit_of(model.accumulator.kind)
                     .takes_scales(model.accumulator, form.format, static_cast<int>(form.block)))
              continue;
            ++seed;
            Operands operands(model, shape, wide ? Data::finite : Data::normal,
                              seed % 3 == 0 ? Start::none : Start::wide, seed);
            GemmProblem& p = operands.problem;
            p.promotion_interval = interval;
            const std::int64_t blocks = (shape.k + form.block - 1) / form.block;
            const auto a =
                random_scales(form.format, shape.m * blocks, RandomStream(seed, "sa"), wide);
            const auto b =
                random_scales(form.format, shape.n * blocks, RandomStream(seed, "sb"), wide);
            p.scale_a = {a, 1, form.block, form.format};
            if (seed % 4 != 0) p.scale_b = {b, 1, form.block, form.format};
            REQUIRE(applies_scales(p));
            if (seed % 5 == 0) p.c_enters = CPlacement::epilogue;
            if (seed % 7 == 0) p.c_enters = CPlacement::accumulator;
            INFO(name << " " << format(form.format).name << " per " << form.block << " " << shape.m
                      << "x" << shape.n << "x" << shape.k << " interval " << interval << " wide "
                      << wide << " seed " << seed);
            check_all_targets(p);
          }
}

TEST_CASE("FP16 sums of every kind share a row", "[gemm]") {
  // Zeros of both signs, subnormal and normal numbers, and those that overflow on the way.
  constexpr std::array kStarts{0.0F, -0.0F, 0x1p-24F, -0x1.8p-15F, 1.0F, 65504.0F, -65504.0F};
  std::uint64_t seed = 33000;
  for (const std::string_view name : {"sm70.mma.f16.f16", "sm80.mma.f16.f16", "sm90.mma.f16.f16"})
    for (const std::int64_t rows : {3, 20, 70})
      for (const Data data : {Data::normal, Data::wide, Data::sparse, Data::tiny}) {
        ++seed;
        const InstructionModel& model = find_instruction_model(name);
        Operands operands(model, {rows, 70, 52}, data, Start::normal, seed);
        const RandomStream random(seed, "starts");
        // Some rows have normal sums alone.
        for (std::size_t i = 0; i < operands.c.size(); ++i)
          if (i / 70 % 3 != 0)
            operands.c[i] = kStarts[static_cast<std::size_t>(random.below(i, kStarts.size()))];
        INFO(name << ", " << rows << " rows, seed " << seed);
        check_all_targets(operands.problem);
      }
}

TEST_CASE(
    "FP16 sums about the middle of two numbers round to the nearer one, however little nearer",
    "[gemm]") {
  constexpr std::int64_t kTerms = 4;
  constexpr std::int64_t kColumns = 67;
  // +-(1 or 1 + 2^-10, + 2^-11, +- a rest of 2^-12 to 2^-38).
  std::vector<std::uint16_t> a;
  for (const float sign : {1.0F, -1.0F})
    for (const float odd : {0.0F, 1.0F})
      for (const float rest : {0x1p-12F, -0x1p-12F, 0x1p-14F, -0x1p-14F, 0x1p-24F, -0x1p-24F})
        for (const float x : {sign, sign * odd, sign * 0x1p-5F, sign * rest})
          a.push_back(half_code(x));
  std::vector<std::uint16_t> b;
  for (int j = 0; j < kColumns; ++j)
    for (const float x : {1.0F, 0x1p-10F, 0x1p-6F, std::ldexp(1.0F, -(j % 15))})
      b.push_back(half_code(x));
  const auto all_rows = static_cast<std::int64_t>(a.size()) / kTerms;
  for (const std::string_view name : {"sm70.mma.f16.f16", "sm80.mma.f16.f16", "sm90.mma.f16.f16"})
    for (const int fraction : {13, 24, 25, 26, 30, 36})
      for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{2}, all_rows}) {
        GemmProblem p = problem_of(find_instruction_model(name));
        p.model.alignment_fraction_bits = fraction;
        p.a = {FormatId::f16, a.data(), rows, kTerms, kTerms, 1};
        p.b = {FormatId::f16, b.data(), kColumns, kTerms, kTerms, 1};
        INFO(name << " F " << fraction << ", " << rows << " rows, " << gemm_method(p));
        CHECK(gemm_method(p) == (fraction <= 25 ? "fused words" : "fused double"));
        check_all_targets(p);
      }
}

TEST_CASE("FP16 sums between subnormal numbers round to the nearer one, whatever c is", "[gemm]") {
  // +-2^-25, the middle between two numbers, and a rest of 2^-14 to 2^-48 of either sign. A c of
  // zero has no exponent, a subnormal one that of the smallest normal number.
  constexpr std::int64_t kTerms = 4;
  constexpr std::int64_t kColumns = 67;
  std::vector<std::uint16_t> a;
  for (const float sign : {1.0F, -1.0F})
    for (const float rest : {0x1p-14F, -0x1p-14F, 0x1p-19F, -0x1p-24F, 0x1p-24F})
      for (const float x : {sign * 0x1p-13F, rest, 0.0F, sign * 0x1p-24F})
        a.push_back(half_code(x));
  std::vector<std::uint16_t> b;
  for (int j = 0; j < kColumns; ++j)
    for (const float x : {0x1p-12F, std::ldexp(1.0F, -(j % 25)), 1.0F, j % 3 == 0 ? 1.0F : 0.0F})
      b.push_back(half_code(x));
  const auto rows = static_cast<std::int64_t>(a.size()) / kTerms;
  for (const std::string_view name : {"sm70.mma.f16.f16", "sm80.mma.f16.f16", "sm90.mma.f16.f16"})
    for (const int fraction : {13, 23, 24, 25, 30, 36})
      for (const float start : {0.0F, -0.0F, 0x1p-24F, -0x1.8p-15F, 0x1p-14F, 0x1p-10F}) {
        const std::vector<float> c(static_cast<std::size_t>(rows * kColumns), start);
        GemmProblem p = problem_of(find_instruction_model(name));
        p.model.alignment_fraction_bits = fraction;
        p.a = {FormatId::f16, a.data(), rows, kTerms, kTerms, 1};
        p.b = {FormatId::f16, b.data(), kColumns, kTerms, kTerms, 1};
        p.c = c.data();
        INFO(name << " F " << fraction << ", c " << start << ", " << gemm_method(p));
        check_all_targets(p);
        p.a.rows = 1;
        check_all_targets(p);
      }
}
