// Block-scaled steps with lanes along k, which few rows take: against gemm_reference, bit for bit,
// on every target.

#include <functional>

#include "catch.hpp"
#include "fp8lab/gemm/methods/methods.hpp"
#include "fp8lab/gemm/run.hpp"
#include "gemm/problems.hpp"
#include "sweep_share.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

/// What the codes of scales are.
enum class ScaleCodes {
  near,     ///< about 1
  all,      ///< all numbers, UE4M3's zero among them
  small,    ///< the smallest ones: products below every alignment
  special,  ///< about 1 with a rare NaN
  far,      ///< about 1 in one row, all in the next
};
constexpr ScaleCodes kAllScaleCodes[] = {ScaleCodes::near, ScaleCodes::all, ScaleCodes::small,
                                         ScaleCodes::special, ScaleCodes::far};

std::uint32_t scale_code(FormatId id, ScaleCodes codes, std::uint32_t word, std::int64_t row) {
  const Format& f = format(id);
  const std::uint32_t nan = f.magnitude_mask();
  const std::uint32_t one = static_cast<std::uint32_t>(f.bias) << f.mantissa_bits;
  const std::uint32_t near = one - 8 + word % 17;
  switch (codes) {
    case ScaleCodes::near:
      return near;
    case ScaleCodes::all:
      return word % nan;
    case ScaleCodes::small:
      return word % 3;
    case ScaleCodes::special:
      return word % 101 == 0 ? nan : near;
    case ScaleCodes::far:
      return row % 2 == 0 ? near : word % nan;
  }
  return one;
}

std::vector<float> scales_of(FormatId id, std::int64_t rows, std::int64_t blocks, ScaleCodes codes,
                             const RandomStream& stream) {
  std::vector<float> values;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t block = 0; block < blocks; ++block) {
      const auto at = static_cast<std::uint64_t>(row * blocks + block);
      values.push_back(decode_table(id)[scale_code(id, codes, stream.bits32(at), row)]);
    }
  return values;
}

struct Unit {
  std::string_view model;
  FormatId format;
  std::int64_t block;
};
/// All formats of operands, and all scales.
constexpr Unit kUnits[] = {
    {"sm100.tcgen05.mxf8f6f4.e4m3", FormatId::e8m0fnu, 32},
    {"sm120.mma.mxf8f6f4.e5m2", FormatId::e8m0fnu, 32},
    {"sm100.tcgen05.mxf8f6f4.e4m3.e5m2", FormatId::e8m0fnu, 32},
    {"sm120.mma.mxf8f6f4.e2m1.e4m3", FormatId::e8m0fnu, 32},
    {"sm100.tcgen05.mxf8f6f4.e2m3", FormatId::e8m0fnu, 32},
    {"sm120.mma.mxf8f6f4.e3m2", FormatId::e8m0fnu, 32},
    {"sm100.tcgen05.mxf4nvf4", FormatId::e4m3fn, 16},
    {"sm120.mma.mxf4nvf4", FormatId::e8m0fnu, 32},
    {"sm120.mma.mxf4nvf4", FormatId::e8m0fnu, 16},
};

/// The unit's product of random operands and scales of both or of one of them.
struct ScaledOperands : Operands {
  std::vector<float> a_values;
  std::vector<float> b_values;

  ScaledOperands(const Unit& unit, Shape shape, Data data, ScaleCodes codes, Start start,
                 std::uint64_t seed)
      : Operands(find_instruction_model(unit.model), shape, data, start, seed) {
    const std::int64_t blocks = (shape.k + unit.block - 1) / unit.block;
    a_values = scales_of(unit.format, shape.m, blocks, codes, RandomStream(seed, "a scales"));
    b_values = scales_of(unit.format, shape.n, blocks, codes, RandomStream(seed, "b scales"));
    const InverseScales of_a{a_values, 1, unit.block, unit.format};
    const InverseScales of_b{b_values, 1, unit.block, unit.format};
    if (seed % 5 != 1) problem.scale_a = of_a;
    if (seed % 5 != 2) problem.scale_b = of_b;
  }
};

bool runs_along_k(const GemmProblem& p) {
  using namespace gemm_detail;
  return plan_method(MethodRequest(p))->form().along_k();
}

}  // namespace

TEST_CASE("scaled dots: few rows of every block-scaled unit run along k", "[gemm][scaled_dots]") {
  int units = 0;
  for (const InstructionModel& model : instruction_models()) {
    if (!traits_of(model.accumulator).takes_scales) continue;
    if (model.accumulator.kind == AccumulationKind::scaled_rounded_sum) continue;  // ACE has panels
    ++units;
    for (const std::int64_t rows : {1, 8, 9}) {
      GemmProblem p = problem_of(model);
      p.a.rows = rows;
      p.b.rows = 64 * rows;
      INFO(model.name << " rows " << rows);
      CHECK(runs_along_k(p) == (rows <= 8));
      p.b.rows -= 1;
      CHECK(!runs_along_k(p));
    }
  }
  CHECK(units > 0);
}

TEST_CASE("scaled dots: what runs follows the scales", "[gemm][scaled_dots]") {
  const Unit mx{"sm120.mma.mxf8f6f4.e4m3", FormatId::e8m0fnu, 32};
  std::vector<float> d(64);
  for (const Target target : available_targets()) {
    if (target == Target::scalar) continue;
    const auto ran = [&](ScaleCodes codes) {
      const ScaledOperands operands(mx, {1, 64, 96}, Data::normal, codes, Start::none, 30);
      return run_gemm(operands.problem, d, target);
    };
    CHECK(ran(ScaleCodes::near) == "fused words");
    CHECK(ran(ScaleCodes::all) == "fused double");  // products from 2^-254 to 2^254
    CHECK(ran(ScaleCodes::small) == "fused double");
  }
}

TEST_CASE("scaled dots: what runs follows the scales of either operand", "[gemm][scaled_dots]") {
  const Unit mx{"sm120.mma.mxf8f6f4.e4m3", FormatId::e8m0fnu, 32};
  std::vector<float> d(64);
  for (const Target target : available_targets()) {
    if (target == Target::scalar) continue;
    for (const bool of_a : {true, false})
      for (const float far : {0x1p-100F, 0x1p100F}) {
        ScaledOperands operands(mx, {1, 64, 96}, Data::normal, ScaleCodes::near, Start::none, 30);
        std::vector<float>& values = of_a ? operands.a_values : operands.b_values;
        for (const std::size_t at : {std::size_t{0}, values.size() - 1}) {
          const float before = values[at];
          values[at] = far;
          INFO(to_string(target) << " of a " << of_a << " at " << at << " scale " << far);
          CHECK(run_gemm(operands.problem, d, target) == "fused double");
          check_all_targets(operands.problem);
          values[at] = before;
        }
        CHECK(run_gemm(operands.problem, d, target) == "fused words");
      }
  }
}

TEST_CASE("scaled dots: all data, scales, C and shapes keep the reference's bits",
          "[gemm][scaled_dots]") {
  const SweepShare share;
  std::uint64_t seed = 51000;
  for (const Unit& unit : kUnits)
    for (const Data data : {Data::normal, Data::wide, Data::codes, Data::sparse, Data::specials})
      for (const ScaleCodes codes : kAllScaleCodes)
        for (const Start start : {Start::none, Start::wide, Start::extreme, Start::tiny}) {
          if (!share.takes_one_in(4, "scaled dots", ++seed)) continue;
          const auto draw = static_cast<std::int64_t>(seed);
          const Shape shape{1 + draw % 2, 128 + draw * 7 % 90, 1 + draw * 13 % 200};
          INFO(unit.model << " scales of " << format(unit.format).name << " seed " << seed
                          << " data " << static_cast<int>(data) << " codes "
                          << static_cast<int>(codes) << " start " << static_cast<int>(start)
                          << " shape " << shape.m << "x" << shape.n << "x" << shape.k);
          const ScaledOperands operands(unit, shape, data, codes, start, seed);
          check_all_targets(operands.problem);
        }
}

TEST_CASE("scaled dots: rows, slabs and promotion keep the reference's bits",
          "[gemm][scaled_dots]") {
  const SweepShare share;
  std::uint64_t seed = 53000;
  for (const Unit& unit : kUnits)
    for (const std::int64_t interval : {0, 128})
      for (const std::int64_t rows : {1, 3, 8}) {
        if (!share.takes_one_in(4, "rows of scaled dots", ++seed)) continue;
        // Longer than what is read at a time, and not whole steps.
        const Shape shape{rows, rows * 64 + 5, 1100 - 7 * rows};
        INFO(unit.model << " rows " << rows << " interval " << interval << " seed " << seed);
        ScaledOperands operands(unit, shape, Data::normal, ScaleCodes::near,
                                seed % 2 == 0 ? Start::none : Start::normal, seed);
        operands.problem.promotion_interval = interval;
        check_all_targets(operands.problem);
      }
}

TEST_CASE("scaled dots: scales of zeros do not align c", "[gemm][scaled_dots]") {
  // The other factor is the smallest number, and both scales are 2^53: with any product but zero, c
  // would lose bits.
  const std::vector<std::uint8_t> a(32, 0x00);
  const std::vector<std::uint8_t> b(32 * 64, 0x01);
  const std::vector<float> scale_a(1, 0x1p53F);
  const std::vector<float> scale_b(64, 0x1p53F);
  const std::vector<float> c(64, 0x1.fffffep-60F);
  GemmProblem p;
  p.model = find_instruction_model("sm100.tcgen05.mxf8f6f4.e5m2").accumulator;
  p.a = CodeMatrix::row_major(FormatId::e5m2, a, 1, 32);
  p.b = CodeMatrix::row_major(FormatId::e5m2, b, 64, 32);
  p.scale_a = {scale_a, 1, 32};
  p.scale_b = {scale_b, 1, 32};
  p.c = c.data();
  p.c_enters = CPlacement::accumulator;
  for (const Target target : available_targets()) {
    std::vector<float> d(64);
    const std::string_view method = run_gemm(p, d, target);
    CHECK(method == (target == Target::scalar ? "reference" : "fused words"));
    INFO(to_string(target));
    CHECK(compare(p, c, d) == "equal");
  }
}

TEST_CASE("scaled dots: groups of zeros of either sign take no part", "[gemm][scaled_dots]") {
  std::uint64_t seed = 53000;
  for (const Unit& unit : kUnits)
    for (const std::int64_t rows : {1, 2, 20})  // along K and not
      for (const ScaleCodes codes : {ScaleCodes::near, ScaleCodes::all}) {
        ++seed;
        ScaledOperands operands(unit, {rows, 130, 160}, Data::normal, codes, Start::normal, seed);
        const RandomStream signs(seed, "signs of zeros");
        const auto put_zeros = [&](OwnedMatrix& m, int part) {
          const Format& f = format(m.view.format);
          for (std::int64_t row = 0; row < m.view.rows; ++row)
            for (std::int64_t k = 0; k < m.view.k; ++k) {
              if ((row + k / 16) % 4 != part) continue;
              const std::int64_t at = row * m.view.row_stride + k * m.view.k_stride;
              const bool negative = signs.bits32(static_cast<std::uint64_t>(at)) % 2 == 0;
              m.bytes[static_cast<std::size_t>(at)] =
                  static_cast<unsigned char>(negative ? f.sign_mask() : 0);
            }
        };
        put_zeros(operands.a, 1);
        put_zeros(operands.b, 2);
        INFO(unit.model << " scales of " << format(unit.format).name << " per " << unit.block
                        << ", " << rows << " rows, codes " << static_cast<int>(codes) << ", seed "
                        << seed);
        check_all_targets(operands.problem);
      }
}

TEST_CASE("scaled dots: a c of any exponent decides which products it leaves",
          "[gemm][scaled_dots]") {
  // One product of -2^-x, just above, at and below the last place that c leaves. A subnormal c has
  // the smallest normal number's exponent.
  for (const Unit& unit : {Unit{"sm100.tcgen05.mxf4nvf4", FormatId::e8m0fnu, 16},
                           Unit{"sm100.tcgen05.mxf8f6f4.e4m3", FormatId::e8m0fnu, 32}})
    for (const std::int64_t rows : {1, 20})  // along K and not
      for (int exponent = -149; exponent < -110; exponent += exponent < -120 ? 1 : 5) {
        const InstructionModel& model = find_instruction_model(unit.model);
        const Format& f = format(model.a_format);
        const std::int64_t columns = rows == 1 ? 64 : 67;
        const std::int64_t k = 2 * unit.block;
        const auto one = static_cast<std::uint8_t>(encode(f, kNvidiaSatfinite, 1.0F));
        std::vector<std::uint8_t> a(static_cast<std::size_t>(rows * k), 0);
        std::vector<std::uint8_t> b(static_cast<std::size_t>(columns * k), 0);
        for (std::int64_t i = 0; i < rows; ++i) a[static_cast<std::size_t>(i * k + 3)] = one;
        for (std::int64_t j = 0; j < columns; ++j)
          b[static_cast<std::size_t>(j * k + 3)] =
              static_cast<std::uint8_t>(one | (j % 8 < 4 ? f.sign_mask() : 0U));
        const int alignment = std::max(exponent, -126) - model.accumulator.alignment_fraction_bits;
        std::vector<float> scale_a(static_cast<std::size_t>(rows * 2), 0x1p-80F);
        std::vector<float> scale_b;
        for (std::int64_t j = 0; j < columns; ++j)
          for (int block = 0; block < 2; ++block)
            scale_b.push_back(std::ldexp(1.0F, alignment + 80 + static_cast<int>(j % 4) - 2));
        std::vector<float> c;
        for (std::int64_t i = 0; i < rows * columns; ++i)
          c.push_back(std::ldexp(i % 3 == 0 ? -1.0F : 1.0F, exponent));
        GemmProblem p;
        p.model = model.accumulator;
        p.a = CodeMatrix::row_major(model.a_format, a, rows, k);
        p.b = CodeMatrix::row_major(model.b_format, b, columns, k);
        p.scale_a = {scale_a, 1, unit.block, unit.format};
        p.scale_b = {scale_b, 1, unit.block, unit.format};
        p.c = c.data();
        p.c_enters = CPlacement::accumulator;
        INFO(unit.model << ", " << rows << " rows, c of 2^" << exponent);
        check_all_targets(p);
      }
}
