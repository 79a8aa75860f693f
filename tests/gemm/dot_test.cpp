// Products of few rows, whose kernels do not transpose B, against gemm_reference.

#include <array>
#include <cmath>

#include "catch.hpp"
#include "fp8lab/gemm/methods/methods.hpp"
#include "gemm/problems.hpp"
#include "sweep_share.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

constexpr std::string_view kModels[] = {"sm90.wgmma.e4m3", "sm90.wgmma.e5m2",
                                        "sm90.wgmma.e4m3.e5m2", "sm90.wgmma.e5m2.e4m3",
                                        "sm89.mma.e4m3"};
constexpr std::string_view kHalfModels[] = {"sm90.wgmma.e4m3.f16", "sm90.wgmma.e5m2.f16",
                                            "sm89.mma.e5m2.f16"};

bool takes_dots(const GemmProblem& p) {
  using namespace gemm_detail;
  const MethodPtr method = plan_method(MethodRequest(p));
  return method && method->form().dots.used();
}

/// The most rows that dot kernels take of a problem.
std::int64_t most_rows(GemmProblem p) {
  p.a.rows = 1;
  while (takes_dots(p)) ++p.a.rows;
  return p.a.rows - 1;
}

/// E4M3 operands that a test writes by hand.
struct Codes {
  Shape shape;
  std::vector<std::uint8_t> a, b;
  std::vector<float> c;

  Codes(Shape s, std::uint8_t in_a, std::uint8_t in_b)
      : shape(s),
        a(static_cast<std::size_t>(s.m * s.k), in_a),
        b(static_cast<std::size_t>(s.n * s.k), in_b) {}
  std::uint8_t& at_a(std::int64_t row, std::int64_t k) {
    return a[static_cast<std::size_t>(row * shape.k + k)];
  }
  std::uint8_t& at_b(std::int64_t row, std::int64_t k) {
    return b[static_cast<std::size_t>(row * shape.k + k)];
  }
  [[nodiscard]] GemmProblem problem() const {
    GemmProblem p;
    p.model = find_instruction_model("sm90.wgmma.e4m3").accumulator;
    p.a = CodeMatrix::row_major(FormatId::e4m3fn, a, shape.m, shape.k);
    p.b = CodeMatrix::row_major(FormatId::e4m3fn, b, shape.n, shape.k);
    if (!c.empty()) p.c = c.data();
    return p;
  }
};

/// Shapes across all block edges, all kinds of data and of C.
void check_shapes(std::span<const std::string_view> models, std::uint64_t seed) {
  const SweepShare share;
  for (const std::string_view name : models) {
    for (std::int64_t m = 1; m <= 6; ++m) {
      for (const std::int64_t n : {64 * m - 1, 64 * m, 64 * m + 33}) {
        for (const std::int64_t k : {1, 32, 33, 90, 512, 545}) {
          if (!share.takes_one_in(4, "few rows", ++seed)) continue;
          const Data data = kAllData[seed % 7];
          const Start start = static_cast<Start>(seed / 7 % 4);
          INFO(name << " " << m << "x" << n << "x" << k << " data " << static_cast<int>(data)
                    << " start " << static_cast<int>(start) << " seed " << seed);
          Operands operands(find_instruction_model(name), {m, n, k}, data, start, seed);
          if (seed % 5 == 0) operands.problem.promotion_interval = 64;
          check_all_targets(operands.problem);
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("few rows are multiplied without transposing B", "[gemm]") {
  const auto rows_of = [](std::string_view name) {
    GemmProblem p = problem_of(find_instruction_model(name));
    p.b.rows = 1000;
    return most_rows(p);
  };
  CHECK(rows_of("sm90.wgmma.e4m3") == 5);
  // NEON leaves FP16 output to the reference.
  const InstructionModel& half = find_instruction_model("sm90.wgmma.e5m2.f16");
  CHECK(rows_of(half.name) == (gemm_method(problem_of(half)) == "reference" ? 0 : 5));
  CHECK(rows_of("sm89.mma.e4m3") == 1);
  CHECK(rows_of("sm100.tcgen05.e4m3") == 0);
  CHECK(rows_of("exact") == 0);
  CHECK(takes_dots(Codes({5, 1, 32}, 0, 0).problem()));
  CHECK(takes_dots(Codes({32, 8, 32}, 0, 0).problem()));
  CHECK(!takes_dots(Codes({33, 8, 32}, 0, 0).problem()));
  CHECK(!takes_dots(Codes({6, 9, 32}, 0, 0).problem()));
  // A is packed by tables where FP16 has no room for its codes' fields.
  const auto of_fnuz = [](Shape shape) {
    GemmProblem p = Codes(shape, 0, 0).problem();
    p.a.format = FormatId::e4m3fnuz;
    return takes_dots(p);
  };
  CHECK(!of_fnuz({1, 63, 32}));
  CHECK(of_fnuz({1, 64, 32}));
  CHECK(!of_fnuz({5, 319, 32}));
  CHECK(of_fnuz({5, 320, 32}));
}

TEST_CASE("few columns of any shape keep the reference's bits", "[gemm]") {
  const SweepShare share;
  std::uint64_t seed = 26000;
  for (const std::string_view name :
       {"sm90.wgmma.e4m3", "sm90.wgmma.e5m2.e4m3.f16", "sm90.wgmma.e5m2", "sm89.mma.e4m3"})
    for (const std::int64_t n : {1, 3, 8, 9, 16})
      for (const std::int64_t m : {1, 4, 7, 33, 64})
        for (const std::int64_t k : {1, 31, 64, 545}) {
          if (!share.takes_one_in(4, "few columns", ++seed)) continue;
          const Data data = kAllData[seed % 7];
          const auto start = static_cast<Start>(seed / 7 % 5);
          INFO(name << " " << m << "x" << n << "x" << k << " data " << static_cast<int>(data)
                    << " start " << static_cast<int>(start) << " seed " << seed);
          Operands operands(find_instruction_model(name), {m, n, k}, data, start, seed);
          if (seed % 5 == 0) operands.problem.promotion_interval = 64;
          check_all_targets(operands.problem);
        }
}

TEST_CASE("few rows of any shape keep the reference's bits", "[gemm]") {
  check_shapes(kModels, 20000);
}

TEST_CASE("FP16 output of few rows keeps the reference's bits", "[gemm]") {
  check_shapes(kHalfModels, 23000);
}

TEST_CASE("few rows keep the reference's bits with promotion and scales", "[gemm]") {
  struct Granularity {
    std::int64_t a_rows, b_rows, k_block;
  };
  const Granularity granularities[] = {
      {0, 0, 0}, {4, 258, 0}, {1, 1, 0}, {1, 128, 128}, {1, 1, 32}};
  const SweepShare share;
  std::uint64_t seed = 21000;
  for (const std::string_view name : {"sm90.wgmma.e4m3", "sm90.wgmma.e5m2", "sm89.mma.e4m3"}) {
    for (const std::int64_t m : {1, 3, 4}) {
      for (const auto& g : granularities) {
        for (const std::int64_t interval : {0, 32, 64, 128}) {
          if (g.k_block != 0 && (interval == 0 || g.k_block % interval != 0)) continue;
          if (!share.takes_one_in(3, "promoted few rows", ++seed)) continue;
          const Shape shape{m, 64 * m + 2, 160 + static_cast<std::int64_t>(seed % 2) * 5};
          Operands operands(find_instruction_model(name), shape, Data::specials,
                            seed % 3 == 0 ? Start::none : Start::extreme, seed);
          GemmProblem& p = operands.problem;
          p.promotion_interval = interval;
          p.scale_order = scale_orders()[seed % scale_orders().size()];
          const std::int64_t columns = g.k_block == 0 ? 1 : (shape.k + g.k_block - 1) / g.k_block;
          const auto scales = [&](std::int64_t rows, std::int64_t block, std::string_view stream) {
            const std::int64_t blocks = block == 0 ? 0 : (rows + block - 1) / block;
            std::vector<float> values(static_cast<std::size_t>(blocks * columns));
            for (std::size_t i = 0; i < values.size(); ++i)
              values[i] = std::exp2(static_cast<float>(RandomStream(seed, stream).normal(i)));
            return values;
          };
          const std::vector<float> scale_a = scales(shape.m, g.a_rows, "scale a");
          const std::vector<float> scale_b = scales(shape.n, g.b_rows, "scale b");
          if (g.a_rows != 0) p.scale_a = {scale_a, g.a_rows, g.k_block};
          if (g.b_rows != 0) p.scale_b = {scale_b, g.b_rows, g.k_block};
          INFO(name << " m " << m << " interval " << interval << " order "
                    << to_string(p.scale_order) << " k_block " << g.k_block << " seed " << seed);
          check_all_targets(p);
        }
      }
    }
  }
}

TEST_CASE("few rows keep the reference's bits for every parameter of a model", "[gemm]") {
  const RandomStream random(6, "models of few rows");
  const SweepShare share;
  for (std::uint64_t i = 0; i < 300; ++i) {
    if (!share.takes_one_in(3, "models of few rows", i)) continue;
    const auto draw = [&](std::uint64_t which, std::uint64_t bound) {
      return static_cast<int>(random.below(8 * i + which, bound));
    };
    InstructionModel model = find_instruction_model("sm90.wgmma.e4m3");
    model.a_format = draw(0, 2) == 0 ? FormatId::e4m3fn : FormatId::e5m2;
    model.b_format = draw(1, 2) == 0 ? FormatId::e4m3fn : FormatId::e5m2;
    model.accumulator.terms = i % 2 == 0 ? 32 : 16 + draw(2, 16);
    model.accumulator.alignment_fraction_bits = 1 + draw(3, 15);
    model.accumulator.output_fraction_bits = 1 + draw(4, 22);
    const std::int64_t m = i % 2 == 0 ? 1 + draw(5, 4) : 1;
    INFO("terms " << model.accumulator.terms << " F " << model.accumulator.alignment_fraction_bits
                  << " M " << model.accumulator.output_fraction_bits << " m " << m << " model "
                  << i);
    const Operands operands(model, {m, 64 * m + 8, 132},
                            kAllData[static_cast<std::size_t>(draw(6, 7))],
                            static_cast<Start>(i % 4), i);
    if (model.accumulator.alignment_fraction_bits <= 13) CHECK(takes_dots(operands.problem));
    check_all_targets(operands.problem);
  }
}

TEST_CASE("formats of A and B in any pairing take few rows", "[gemm]") {
  using enum FormatId;
  std::uint64_t seed = 22000;
  for (const FormatId a : {e4m3fn, e5m2, e4m3fnuz, e5m2fnuz, e2m1, e2m3, e3m2}) {
    for (const FormatId b : {e4m3fn, e5m2, e4m3fnuz, e5m2fnuz, e2m1}) {
      for (const Data data : {Data::finite, Data::codes, Data::sparse}) {
        ++seed;
        INFO(format(a).name << " x " << format(b).name << " seed " << seed);
        const Operands operands(with_formats("sm90.wgmma.e4m3", a, b), {2, 131, 96}, data,
                                Start::wide, seed);
        CHECK(takes_dots(operands.problem) == (b == e4m3fn || b == e5m2));
        check_all_targets(operands.problem);
      }
    }
  }
}

TEST_CASE("few rows: cancellation, zero steps and counts of negative products", "[gemm]") {
  const Shape shape{4, 264, 128};
  Codes codes(shape, 0x38, 0x38);  // all ones
  for (std::int64_t t = 0; t < shape.k; ++t) {
    if (t % 2 == 1) codes.at_a(0, t) = 0xb8;       // pairs cancel
    codes.at_a(1, t) = 0xb8;                       // every product is negative
    if (t / 32 % 2 == 0) codes.at_a(2, t) = 0x80;  // whole steps of -0
    codes.at_a(3, t) = t % 32 == 7 ? 0xfe : 0x01;  // -448 hides 2^-9
    for (std::int64_t j = 0; j < shape.n; ++j) {
      if (j % 4 == 1 && t % 3 == 0) codes.at_b(j, t) = 0x80;
      if (j % 4 == 2) codes.at_b(j, t) = static_cast<std::uint8_t>(1 + t % 7);  // subnormals
      if (j % 4 == 3) codes.at_b(j, t) = static_cast<std::uint8_t>((j * 37 + t * 11) & 0xf7);
    }
  }
  check_all_targets(codes.problem());
  codes.c.assign(static_cast<std::size_t>(shape.m * shape.n), -0.0F);
  for (std::size_t i = 0; i < codes.c.size(); i += 2) codes.c[i] = -0x1.fffffep-12F;
  check_all_targets(codes.problem());
}

TEST_CASE("few rows: one NaN or Inf reaches its own outputs alone", "[gemm]") {
  for (const std::int64_t terms : {16, 32}) {
    for (const std::uint8_t special :
         std::array<std::uint8_t, 3>{0x7c, 0xfc, 0x7e}) {  // of E5M2: both Inf, NaN
      for (const std::int64_t k : {100, 128, 544}) {
        const Shape shape{1, 70, k};
        Codes codes(shape, 0x3c, 0x3c);
        for (std::int64_t j = 0; j < shape.n; j += 3) codes.at_b(j, (j * 29 + 15) % k) = special;
        GemmProblem p = codes.problem();
        p.model.terms = static_cast<int>(terms);
        p.a.format = p.b.format = FormatId::e5m2;
        INFO(terms << " terms, code " << int{special} << ", k " << k);
        check_all_targets(p);
        codes.at_a(0, k - 1) = special;
        check_all_targets(p);
      }
    }
  }
}

TEST_CASE("c of any size keeps the reference's bits, at every F", "[gemm]") {
  for (const std::int64_t m : {1, 5}) {  // both kinds of kernels
    for (const int f : {1, 4, 10, 11, 12, 13, 14}) {
      Operands operands(find_instruction_model("sm90.wgmma.e4m3"), {m, 175, 64}, Data::wide,
                        Start::normal, static_cast<std::uint64_t>(f));
      for (std::size_t i = 0; i < operands.c.size(); ++i)
        operands.c[i] =
            std::ldexp(i % 2 == 0 ? 1.0F + 0x1p-12F : -1.9999999F, static_cast<int>(i % 175) - 47);
      operands.problem.model.alignment_fraction_bits = f;
      INFO("m " << m << " F " << f);
      check_all_targets(operands.problem);
    }
  }
}

TEST_CASE("few rows: a NaN, an infinity or an extreme at any place of a row of B is seen",
          "[gemm]") {
  // Longer than what is read at a time, and not whole steps.
  constexpr std::int64_t kLength = 1699;
  constexpr std::int64_t kColumns = 134;
  struct Unit {
    std::string_view model;
    FormatId format;
  };
  using enum FormatId;
  std::uint64_t seed = 25000;
  for (const Unit& unit :
       {Unit{"exact", e4m3fn}, Unit{"exact", f16}, Unit{"exact32", e5m2}, Unit{"exact", bf16},
        Unit{"sm90.wgmma.e4m3", e4m3fn}, Unit{"sm90.wgmma.e4m3", e5m2},
        Unit{"sm100.tcgen05.e4m3", e4m3fn}, Unit{"sm90.mma.f16", f16}, Unit{"sm80.mma.bf16", bf16}})
    for (const std::int64_t rows : {1, 2}) {
      const Format& f = format(unit.format);
      Operands operands(with_formats(unit.model, unit.format, unit.format),
                        {rows, kColumns, kLength}, Data::normal, Start::none, ++seed);
      const std::uint32_t inf = f.has_infinity() ? f.infinity_code() : f.magnitude_mask();
      const std::uint32_t codes[] = {f.magnitude_mask(), inf, f.max_finite_code(), 1};
      const std::int64_t width = f.storage_bits / 8;
      // One in each column, over all of K and in its last steps.
      for (std::int64_t j = 0; j < kColumns; ++j) {
        const std::int64_t k = j % 2 == 0 ? j * 13 % kLength : kLength - 1 - j / 2;
        const std::uint32_t code = codes[j / 2 % 4];
        std::memcpy(operands.b.bytes.data() +
                        (j * operands.b.view.row_stride + k * operands.b.view.k_stride) * width,
                    &code, static_cast<std::size_t>(width));
      }
      INFO(unit.model << " on " << f.name << ", " << rows << " rows, seed " << seed);
      check_all_targets(operands.problem);
    }
}
