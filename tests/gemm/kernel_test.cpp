// Every vector kernel against gemm_reference, bit for bit, on every target.

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <cfenv>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "gemm/problems.hpp"
#include "sweep_share.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

TEST_CASE("every registered model has the reference's bits on every target", "[gemm]") {
  std::uint64_t seed = 0;
  for (const InstructionModel& model : instruction_models()) {
    for (const Data data : kAllData) {
      for (const Start start : {Start::none, Start::normal, Start::wide, Start::extreme}) {
        ++seed;
        const Shape shape{static_cast<std::int64_t>(seed % 11),
                          1 + static_cast<std::int64_t>(seed * 7 % 70),
                          1 + static_cast<std::int64_t>(seed * 13 % 100)};
        INFO(model.name << " seed " << seed << " data " << static_cast<int>(data) << " start "
                        << static_cast<int>(start) << " shape " << shape.m << "x" << shape.n << "x"
                        << shape.k);
        const Operands operands(model, shape, data, start, seed);
        check_all_targets(operands.problem);
      }
    }
  }
}

TEST_CASE("formats of 8 bits and less in any pairing run on kernels", "[gemm]") {
  using enum FormatId;
  const auto formats = {e4m3fn, e5m2, e4m3fnuz, e5m2fnuz, e2m1, e2m3, e3m2};
  std::uint64_t seed = 1000;
  for (const FormatId a : formats) {
    for (const FormatId b : formats) {
      for (const std::string_view name :
           {"sm90.wgmma.e4m3", "sm89.mma.e4m3.f16", "sm100.tcgen05.e4m3", "sm100.mma.e4m3",
            "sm90.mma.e4m3.f16", "exact32", "sequential14.rne", "sequential14.rz",
            "seed.listing"}) {
        for (const Data data : {Data::finite, Data::codes, Data::sparse}) {
          ++seed;
          INFO(name << " on " << format(a).name << " x " << format(b).name << " seed " << seed);
          const Operands operands(with_formats(name, a, b), {5, 67, 65}, data, Start::wide, seed);
          CHECK(gemm_method(operands.problem) != "reference");
          check_all_targets(operands.problem);
        }
      }
    }
  }
}

TEST_CASE("16-bit formats run on the wide kernel, also at the ends of their range", "[gemm]") {
  using enum FormatId;
  std::uint64_t seed = 3000;
  for (const FormatId a : {f16, bf16, tf32}) {
    for (const FormatId b : {f16, bf16, tf32, e4m3fn, e5m2}) {
      for (const std::string_view name :
           {"sm70.mma.f16", "sm80.mma.f16", "sm90.mma.f16", "sm70.mma.f16.f16", "sm80.mma.f16.f16",
            "sm90.mma.f16.f16"}) {
        for (const Data data : {Data::normal, Data::finite, Data::sparse}) {
          ++seed;
          INFO(name << " on " << format(a).name << " x " << format(b).name << " seed " << seed);
          const Operands operands(with_formats(name, a, b), {5, 35, 33}, data, Start::wide, seed);
          CHECK(gemm_method(operands.problem) ==
                (operands.problem.model.alignment_fraction_bits <= 25 ? "fused words"
                                                                      : "fused double"));
          check_all_targets(operands.problem);
        }
      }
    }
  }
}

TEST_CASE("fused sums of products below binary32's normal numbers are aligned to these", "[gemm]") {
  constexpr std::int64_t kTerms = 40;
  for (const char* name : {"sm80.mma.bf16", "sm90.mma.bf16"}) {
    for (int exponent = -170; exponent < -120; ++exponent) {
      for (const float c : {0.0F, 0x1p-149F, -0x1.8p-130F}) {
        // 1.75 * 2^exponent each, of both signs: what one drops, several carry.
        const auto code = [](float x) {
          return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16);
        };
        std::vector<std::uint16_t> a(kTerms, code(std::ldexp(1.75F, exponent / 2)));
        std::vector<std::uint16_t> b(kTerms, code(std::ldexp(1.0F, exponent - exponent / 2)));
        for (std::size_t i = 32; i < b.size(); ++i) b[i] |= 0x8000;
        GemmProblem p;
        p.model = find_instruction_model(name).accumulator;
        p.a = {FormatId::bf16, a.data(), 1, kTerms, kTerms, 1};
        p.b = {FormatId::bf16, b.data(), 1, kTerms, kTerms, 1};
        if (c != 0.0F) p.c = &c;
        INFO(name << " products near 2^" << exponent << " c " << c);
        check_all_targets(p);
      }
    }
  }
}

TEST_CASE("every parameter of a fused model keeps the reference's bits", "[gemm]") {
  const RandomStream random(5, "models");
  for (std::uint64_t i = 0; i < 400; ++i) {
    const auto draw = [&](std::uint64_t which, std::uint64_t bound) {
      return static_cast<int>(random.below(8 * i + which, bound));
    };
    InstructionModel model = find_instruction_model("sm90.wgmma.e4m3");
    model.a_format = draw(0, 2) == 0 ? FormatId::e4m3fn : FormatId::e5m2;
    model.b_format = draw(1, 2) == 0 ? FormatId::e4m3fn : FormatId::e5m2;
    model.accumulator.terms = 1 + draw(2, 36);
    model.accumulator.alignment_fraction_bits = 1 + draw(3, 64);
    model.accumulator.output_fraction_bits = 1 + draw(4, 23);
    if (draw(5, 4) == 0) model.accumulator.rounding = RoundingMode::nearest_even;
    const Data data = kAllData[static_cast<std::size_t>(draw(6, 7))];
    INFO("terms " << model.accumulator.terms << " F " << model.accumulator.alignment_fraction_bits
                  << " M " << model.accumulator.output_fraction_bits << " model " << i);
    const Operands operands(model, {3, 33, 100}, data, i % 2 == 0 ? Start::normal : Start::none, i);
    check_all_targets(operands.problem);
  }
}

TEST_CASE("promotion and all scales in all orders keep the reference's bits", "[gemm]") {
  struct Granularity {
    std::int64_t a_rows, b_rows, k_block;
  };
  const Shape shape{5, 66, 160};
  // Per tensor, rowwise, 1x128 by 128x128, MX.
  const Granularity granularities[] = {{5, 66, 0}, {1, 1, 0}, {1, 128, 128}, {1, 1, 32}};
  const SweepShare share;
  std::uint64_t seed = 5000;
  for (const std::string_view name :
       {"sm90.wgmma.e4m3", "sm100.tcgen05.e5m2", "sm100.mma.e4m3", "exact32", "exact", "fp32",
        "sm90.wgmma.e4m3.f16", "sm90.mma.e4m3.f16", "sm90.mma.e4m3.separate", "sequential14.rne",
        "sequential14.rz"}) {
    for (const auto& g : granularities) {
      for (const ScaleOrder order : scale_orders()) {
        for (const std::int64_t interval : {0, 32, 64, 128}) {
          if (g.k_block != 0 && (interval == 0 || g.k_block % interval != 0)) continue;
          for (const Data data : {Data::normal, Data::specials}) {
            if (!share.takes_one_in(3, "promotion and scales", ++seed)) continue;
            Operands operands(find_instruction_model(name), shape, data,
                              seed % 2 == 0 ? Start::extreme : Start::none, seed);
            GemmProblem& p = operands.problem;
            p.promotion_interval = interval;
            p.scale_order = order;
            const std::int64_t columns = g.k_block == 0 ? 1 : (shape.k + g.k_block - 1) / g.k_block;
            const auto scales = [&](std::int64_t rows, std::int64_t block,
                                    std::string_view stream) {
              std::vector<float> values(
                  static_cast<std::size_t>((rows + block - 1) / block * columns));
              for (std::size_t i = 0; i < values.size(); ++i)
                values[i] = std::exp2(static_cast<float>(RandomStream(seed, stream).normal(i)));
              return values;
            };
            const std::vector<float> scale_a = scales(shape.m, g.a_rows, "scale a");
            const std::vector<float> scale_b = scales(shape.n, g.b_rows, "scale b");
            p.scale_a = {scale_a, g.a_rows, g.k_block};
            if (seed % 5 != 0) p.scale_b = {scale_b, g.b_rows, g.k_block};
            INFO(name << " interval " << interval << " order " << to_string(order) << " k_block "
                      << g.k_block << " seed " << seed);
            check_all_targets(p);
          }
        }
      }
    }
  }
}

TEST_CASE("shapes across all block edges keep the reference's bits", "[gemm]") {
  const SweepShare share;
  std::uint64_t seed = 9000;
  for (const Shape shape :
       {Shape{0, 5, 7}, Shape{5, 0, 7}, Shape{5, 7, 0}, Shape{1, 1, 1}, Shape{1, 200, 1},
        Shape{4, 64, 32}, Shape{63, 65, 31}, Shape{65, 63, 33}, Shape{130, 129, 64},
        Shape{3, 600, 40}, Shape{200, 3, 700}, Shape{2, 2, 2100}}) {
    for (const std::string_view name :
         {"sm90.wgmma.e4m3", "sm90.mma.bf16", "sm90.mma.f16.f16", "sm100.mma.e4m3",
          "sm90.mma.e5m2.f16", "sm90.mma.e5m2.f16.separate", "exact", "fp32", "sequential14.rne",
          "sequential14.rz", "seed.listing"}) {
      for (const std::int64_t interval : {0, 128}) {
        if (!share.takes_one_in(2, "shapes across block edges", ++seed)) continue;
        Operands operands(find_instruction_model(name), shape, Data::normal,
                          seed % 3 == 0 ? Start::none : Start::normal, seed);
        operands.problem.promotion_interval = interval;
        INFO(name << " " << shape.m << "x" << shape.n << "x" << shape.k << " interval " << interval
                  << " seed " << seed);
        check_all_targets(operands.problem);
      }
    }
  }
}

TEST_CASE("special values and C in every block of rows keep the reference's bits", "[gemm]") {
  std::uint64_t seed = 5200;
  for (const std::string_view name :
       {"sm90.wgmma.e4m3", "sm90.wgmma.e5m2.f16", "sm100.tcgen05.e4m3", "sm80.mma.bf16", "exact32",
        "gfx942.mfma.fp8", "sequential14.rz"})
    for (const Data data : {Data::normal, Data::specials})
      for (const Start start : {Start::none, Start::extreme}) {
        ++seed;
        // Three blocks of 64 rows, the last one short.
        const Operands operands(find_instruction_model(name), {150, 39, 40}, data, start, seed);
        INFO(name << " data " << static_cast<int>(data) << " start " << static_cast<int>(start)
                  << " seed " << seed);
        check_all_targets(operands.problem);
      }
}

TEST_CASE("rows of a long K, some of which are packed at a time, have their bits alone", "[gemm]") {
  constexpr std::int64_t kRows = 71;
  constexpr std::int64_t kColumns = 18;
  constexpr std::int64_t kLength = (std::int64_t{1} << 17) + 5;
  // Finite E4M3, no two rows alike.
  const auto codes = [](std::int64_t rows, std::uint32_t state) {
    std::vector<unsigned char> bytes(static_cast<std::size_t>(rows * kLength));
    for (unsigned char& byte : bytes) {
      state = state * 1664525U + 1013904223U;
      byte = static_cast<unsigned char>((state >> 24) % 0x7f | (state >> 16 & 0x80U));
    }
    return bytes;
  };
  const std::vector<unsigned char> a = codes(kRows, 1);
  const std::vector<unsigned char> b = codes(kColumns, 2);
  GemmProblem p = problem_of(find_instruction_model("sm90.wgmma.e4m3"));
  p.a = {FormatId::e4m3fn, a.data(), kRows, kLength, kLength, 1};
  p.b = {FormatId::e4m3fn, b.data(), kColumns, kLength, kLength, 1};
  const Target target = available_targets().back();
  if (target == Target::scalar) return;  // packs nothing
  std::vector<float> all(kRows * kColumns);
  gemm_with_target(p, all, target, 1);
  for (const std::int64_t first : {0, 63, 64, 70}) {
    GemmProblem one = p;
    one.a.data = a.data() + first * kLength;
    one.a.rows = 1;
    std::vector<float> alone(kColumns);
    gemm_with_target(one, alone, target, 1);
    INFO("row " << first);
    CHECK(compare(one, alone,
                  {all.begin() + first * kColumns, all.begin() + (first + 1) * kColumns}) ==
          "equal");
  }
}

TEST_CASE("the caller's floating-point environment neither matters nor changes", "[gemm]") {
  const Operands operands(find_instruction_model("sm90.mma.bf16"), {5, 40, 64}, Data::finite,
                          Start::wide, 77);
  const GemmProblem& p = operands.problem;
  std::vector<float> expected(200);
  gemm_reference(p, expected);
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO, FE_TONEAREST}) {
    for (const Target target : available_targets()) {
      std::vector<float> got(200);
      std::fesetround(mode);
#if defined(__x86_64__)
      constexpr unsigned kFlushes = 0x8040;  // FTZ and DAZ
      const unsigned before = _mm_getcsr() | kFlushes;
      _mm_setcsr(before);
#endif
      gemm_with_target(p, got, target, 2);
      const int mode_after = std::fegetround();
#if defined(__x86_64__)
      const unsigned after = _mm_getcsr();
      _mm_setcsr(0x1f80);
      CHECK((after & 0xffc0) == (before & 0xffc0));
#endif
      std::fesetround(FE_TONEAREST);
      CHECK(mode_after == mode);
      INFO(to_string(target) << " mode " << mode);
      CHECK(compare(p, expected, got) == "equal");
    }
  }
}

TEST_CASE("kernels are used where they are promised", "[gemm]") {
  const auto method = [](std::string_view name) {
    GemmProblem p = problem_of(find_instruction_model(name));
    p.a.rows = p.b.rows = 64;
    return gemm_method(p);
  };
  CHECK(method("sm90.wgmma.e4m3") == "fused float");
  CHECK(method("sm89.mma.e5m2") == "fused float");
  CHECK(method("sm90.wgmma.e4m3.f16") == "fused float");
  CHECK(method("sm100.tcgen05.e4m3") == "fused words");
  CHECK(method("sm70.mma.f16") == "fused words");
  CHECK(method("sm90.mma.bf16") == "fused words");
  CHECK(method("sm80.mma.tf32") == "fused words");
  CHECK(method("sm80.mma.f16.f16") == "fused words");
  CHECK(method("gfx908.mfma.f16") == "exact steps");
  CHECK(method("gfx90a.mfma.bf16") == "flushed pairs");
  CHECK(method("gfx942.mfma.xf32") == "two stages");
  CHECK(method("gfx942.mfma.fp8") == "two stages");
  CHECK(method("gfx942.mfma.f32") == "multiply-adds");
  CHECK(method("sm120.mma.mxf8f6f4.e5m2") == "fused double");
  CHECK(method("sm120.mma.mxf4nvf4") == "scaled groups");
  CHECK(method("sm90.mma.f16.f16") == "fused words");
  CHECK(method("sm90.mma.f16:F=36") == "fused double");
  CHECK(method("sm100.mma.e5m2") == "fp16 halves");
  CHECK(method("sm90.mma.e5m2.f16") == "fp16 halves");
  CHECK(method("sm90.mma.e5m2.f16.separate") == "fp16 halves");
  CHECK(method("exact32") == "exact steps");
  CHECK(method("exact") == "exact");
  CHECK(method("fp32") == "float32");
  CHECK(method("sequential14.rne") == "sequential");
  CHECK(method("sequential14.rz") == "sequential");
  CHECK(method("seed.listing") == "sequential");
}

TEST_CASE("a target that this machine lacks is refused", "[gemm]") {
  GemmProblem p;
  p.model = find_instruction_model("exact").accumulator;
  for (const Target target : {Target::avx2, Target::avx512, Target::neon}) {
    if (std::ranges::find(available_targets(), target) != available_targets().end()) continue;
    CHECK_THROWS_WITH(gemm_with_target(p, {}, target), contains("target"));
  }
  CHECK_THROWS_WITH(gemm_with_target(p, {}, Target::scalar, -1), contains("threads"));
}

TEST_CASE("every number of rows and of columns has the reference's bits on every target",
          "[gemm]") {
  // Kernels take rows by twos, threes, fours and eights, and columns by whole vectors.
  struct Method {
    const char* model;
    FormatId format;
  };
  using enum FormatId;
  std::uint64_t seed = 64000;
  for (const Method& one : {Method{"sm90.wgmma.e4m3", e4m3fn},
                            Method{"sm90.wgmma.e5m2.f16", e5m2},
                            Method{"sm80.mma.f16", f16},
                            Method{"sm80.mma.f16.f16", f16},
                            Method{"sm90.mma.f16", f16},
                            Method{"sm90.mma.f16:F=36", f16},
                            Method{"sm90.mma.f16.f16", f16},
                            Method{"sm90.mma.e4m3", e4m3fn},
                            Method{"exact32", e4m3fn},
                            Method{"exact32", e5m2},
                            Method{"exact", e4m3fn},
                            Method{"exact", f16},
                            Method{"fp32", tf32},
                            Method{"sequential14.rz", e5m2},
                            Method{"sequential14.rz", bf16},
                            Method{"sequential14.rne", e4m3fn},
                            Method{"sequential14.rne", f16},
                            Method{"seed.listing", e4m3fn},
                            Method{"seed.listing", f16},
                            Method{"gfx908.mfma.f16", f16},
                            Method{"gfx90a.mfma.bf16", bf16},
                            Method{"gfx90a.mfma.f16", f16},
                            Method{"gfx942.mfma.f16", f16},
                            Method{"gfx942.mfma.fp8", e4m3fnuz},
                            Method{"gfx942.mfma.f32", f32},
                            Method{"sm100.tcgen05.mxf8f6f4.e4m3", e4m3fn},
                            Method{"sm100.tcgen05.mxf4nvf4", e2m1}}) {
    std::vector<Shape> shapes;
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 17, 63, 65})
      shapes.push_back({rows, rows < 18 ? 17 : 5, 0});
    for (const std::int64_t columns : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 31, 32, 33, 63, 64, 65})
      shapes.push_back({5, columns, 0});
    for (Shape& shape : shapes) {
      ++seed;
      const InstructionModel model = with_formats(one.model, one.format, one.format);
      shape.k = 1 + static_cast<std::int64_t>(seed % 37);
      const Operands operands(model, shape, seed % 2 == 0 ? Data::finite : Data::normal,
                              seed % 3 == 0 ? Start::normal : Start::none, seed);
      const GemmProblem& p = operands.problem;
      std::vector<float> expected(static_cast<std::size_t>(shape.m * shape.n));
      gemm_reference(p, expected);
      for (const Target target : available_targets()) {
        if (target == Target::scalar) continue;
        std::vector<float> got(expected.size(), 42.0F);
        gemm_with_target(p, got, target, 1);
        INFO(one.model << " on " << format(one.format).name << " " << shape.m << "x" << shape.n
                       << "x" << shape.k << " seed " << seed << " on " << to_string(target));
        CHECK(compare(p, expected, got) == "equal");
      }
    }
  }
}

TEST_CASE("many blocks of rows, some a thread, are those of one thread", "[gemm]") {
  std::uint64_t seed = 66000;
  for (const std::string_view name : {"sm90.wgmma.e4m3", "exact", "sm80.mma.f16"})
    for (const std::int64_t rows : {1000, 1100}) {
      const Operands operands(find_instruction_model(name), {rows, rows / 4 + 3, 7}, Data::normal,
                              Start::normal, ++seed);
      const GemmProblem& p = operands.problem;
      const auto size = static_cast<std::size_t>(p.a.rows * p.b.rows);
      for (const Target target : available_targets()) {
        if (target == Target::scalar) continue;
        std::vector<float> expected(size);
        gemm_with_target(p, expected, target, 1);
        for (const int threads : {2, 3, 8}) {
          std::vector<float> got(size, 42.0F);
          gemm_with_target(p, got, target, threads);
          INFO(name << ", " << rows << " rows, " << threads << " threads on " << to_string(target));
          CHECK(compare(p, expected, got) == "equal");
        }
      }
    }
}
