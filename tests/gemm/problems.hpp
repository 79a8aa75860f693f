#pragma once
// Random products for the GEMM tests: data of many kinds, and a comparison that
// shows the first differing output.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/core/target.hpp"
#include "fp8lab/gemm/c_placement.hpp"
#include "fp8lab/gemm/gemm.hpp"

namespace fp8lab::test {

enum class Data {
  normal,    ///< N(0, 1)
  positive,  ///< U[0, 1)
  wide,      ///< signs and exponents uniform over the format
  codes,     ///< all codes, NaN and Inf among them
  finite,    ///< all finite codes, zeros of both signs and subnormals among them
  sparse,    ///< nine tenths zeros
  specials,  ///< N(0, 1) with a rare NaN or Inf
  tiny,      ///< products about where units stop to align: subnormals, of 8 exponent bits 2^-80 to
             ///< 2^-65
  ties,      ///< powers of two far apart: sums on a tie, with a rest of either sign far below it
  ends,      ///< the codes about zero, the smallest normal number, one and the largest number
  one_huge,  ///< subnormals and the smallest normal numbers, with a rare largest number
};
inline constexpr Data kAllData[] = {Data::normal, Data::positive, Data::wide,    Data::codes,
                                    Data::finite, Data::sparse,   Data::specials};

inline std::uint32_t random_code(const Format& f, Data data, const RandomStream& stream,
                                 std::uint64_t index) {
  const auto bits = static_cast<std::uint32_t>((std::uint64_t{1} << f.code_bits()) - 1);
  const std::uint32_t word = stream.bits32(4 * index);
  const std::uint32_t other = stream.bits32(4 * index + 1);
  const std::uint32_t finite = (word % (f.max_finite_code() + 1)) | (other & f.sign_mask());
  const bool negative_zero = f.specials == SpecialValues::fnuz && finite == f.sign_mask();
  switch (data) {
    case Data::normal:
      return encode(f, kNvidiaSatfinite, static_cast<float>(stream.normal(index)));
    case Data::positive:
      return encode(f, kNvidiaSatfinite, static_cast<float>(stream.uniform(index)));
    case Data::codes:
      return word & bits;
    case Data::sparse:
      return other % 10 != 0 || negative_zero ? 0 : finite;
    case Data::specials:
      if (other % 997 == 0) return f.magnitude_mask() & bits;
      if (other % 997 == 1) return f.infinity_code() & bits;
      return encode(f, kNvidiaSatfinite, static_cast<float>(stream.normal(index)));
    case Data::tiny: {
      const bool long_range = f.exponent_bits == 8;
      const std::uint32_t low =
          long_range ? static_cast<std::uint32_t>(f.bias - 80) << f.mantissa_bits : 0;
      const std::uint32_t binades = long_range ? 16 : 2;
      const std::uint32_t code = low + word % (binades << f.mantissa_bits);
      return code == 0 ? 0 : code | (other & f.sign_mask());
    }
    case Data::ties: {
      const int exponent = std::max(-12 * static_cast<int>(word % 4), f.min_exponent());
      return encode(f, kNvidiaSatfinite, std::ldexp(other % 2 == 0 ? 1.0F : -1.0F, exponent));
    }
    case Data::ends:
    case Data::one_huge: {
      const std::uint32_t normal = 1U << f.mantissa_bits;
      const std::uint32_t most = f.max_finite_code();
      const std::uint32_t one = static_cast<std::uint32_t>(f.bias) << f.mantissa_bits;
      const std::uint32_t ends[] = {0, 1, 2, normal - 1, normal, normal + 1, most - 1, most, one};
      std::uint32_t code = ends[word % std::size(ends)];
      if (data == Data::one_huge) code = word % 13 == 0 ? most : word / 13 % (2 * normal + 1);
      return code == 0 && f.specials == SpecialValues::fnuz ? 0 : code | (other & f.sign_mask());
    }
    case Data::wide:
    case Data::finite:
      return negative_zero ? 0 : finite;
  }
  return 0;
}

/// A matrix that owns its codes, row-major or column-major, with padded strides.
struct OwnedMatrix {
  CodeMatrix view;
  std::vector<unsigned char> bytes;

  OwnedMatrix(FormatId id, std::int64_t rows, std::int64_t k, Data data, const RandomStream& stream,
              bool column_major) {
    const Format& f = format(id);
    const auto width = static_cast<std::int64_t>(f.storage_bits / 8);
    const std::int64_t leading = (column_major ? rows : k) + 3;
    // What lies between rows is nobody's: NaN, where the format has one.
    bytes.assign(static_cast<std::size_t>(leading * (column_major ? k : rows) * width) + 1, 0xff);
    view = {id, bytes.data(), rows, k, column_major ? 1 : leading, column_major ? leading : 1};
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < k; ++c) {
        std::uint32_t code = random_code(f, data, stream, static_cast<std::uint64_t>(r * k + c));
        if (f.storage_bits == 32) code <<= 23 - f.mantissa_bits;
        std::memcpy(bytes.data() + (r * view.row_stride + c * view.k_stride) * width, &code,
                    static_cast<std::size_t>(width));
      }
  }
};

/// What C holds.
enum class Start {
  none,
  normal,
  wide,
  extreme,
  tiny,
  ties,
  scattered,  ///< 1 to 24 significant bits, exponents of the whole range or near 0; special values
};

inline std::vector<float> random_c(Start start, std::int64_t size, const RandomStream& stream) {
  std::vector<float> c(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < c.size(); ++i) {
    const std::uint32_t word = stream.bits32(i);
    c[i] = static_cast<float>(stream.normal(i));
    if (start == Start::wide) c[i] = std::ldexp(c[i], static_cast<int>(word % 60) - 30);
    if (start == Start::extreme) c[i] = std::bit_cast<float>(word);
    if (start == Start::tiny)  // FP16's subnormals, zeros of both signs, and binary32's subnormals
      c[i] = word % 4 == 0   ? std::copysign(0.0F, c[i])
             : word % 4 == 1 ? std::ldexp(c[i], -140)
                             : std::ldexp(std::round(8.0F * c[i]), -24);
    if (start == Start::ties)  // whole units of the last place, few of them
      c[i] = std::copysign(1.0F + static_cast<float>(word % 4) * 0x1p-23F, c[i]);
    if (start == Start::scattered) {
      const std::uint32_t lowest = 1U << word % 24;
      const std::uint32_t significand = ((word >> 8 | 0x800000U) & ~(lowest - 1)) | lowest;
      const int any = static_cast<int>(word / 24 % 300) - 172;
      const int near = static_cast<int>(word / 24 % 60) - 50;
      const float magnitude =
          std::ldexp(static_cast<float>(significand), word % 2 == 0 ? any : near);
      c[i] = std::copysign(magnitude, c[i]);
      constexpr float kEnds[] = {0.0F,
                                 0x1p-149F,
                                 0x1p-126F,
                                 0x1.fffffep-127F,
                                 0x1.fffffep127F,
                                 std::numeric_limits<float>::infinity(),
                                 std::numeric_limits<float>::quiet_NaN()};
      if (word % 9 == 0) c[i] = std::copysign(kEnds[word / 24 % std::size(kEnds)], c[i]);
    }
    if (start == Start::extreme && word % 7 == 0)
      c[i] = word % 2 == 0 ? -0.0F : std::numeric_limits<float>::infinity();
  }
  return c;
}

/// "equal", or the first difference of two outputs of the problem.
inline std::string compare(const GemmProblem& p, const std::vector<float>& expected,
                           const std::vector<float>& got) {
  std::size_t differing = 0;
  std::string first;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto e = std::bit_cast<std::uint32_t>(expected[i]);
    const auto g = std::bit_cast<std::uint32_t>(got[i]);
    if (e == g) continue;
    if (differing++ == 0)
      first = fmt::format("row {} column {}: expected {:08x} ({}), got {:08x} ({})",
                          i / static_cast<std::size_t>(p.b.rows),
                          i % static_cast<std::size_t>(p.b.rows), e, expected[i], g, got[i]);
  }
  return differing == 0 ? "equal"
                        : fmt::format("{} of {} differ, {}", differing, expected.size(), first);
}

struct Shape {
  std::int64_t m, n, k;
};

/// Runs the problem on every target with one and three threads. A C whose place is not named
/// enters where the kernels take it along.
inline void check_all_targets(const GemmProblem& given) {
  GemmProblem p = given;
  if (p.c_enters == CPlacement::unnamed) p.c_enters = gemm_detail::passing_place(p);
  const auto size = static_cast<std::size_t>(p.a.rows * p.b.rows);
  std::vector<float> expected(size);
  gemm_reference(p, expected);
  for (const Target target : available_targets()) {
    for (const int threads : {1, 3}) {
      std::vector<float> got(size, 42.0F);
      gemm_with_target(p, got, target, threads);
      INFO(to_string(target) << ", " << threads << " threads, " << gemm_method(p));
      CHECK(compare(p, expected, got) == "equal");
    }
  }
}

struct Operands {
  OwnedMatrix a;
  OwnedMatrix b;
  std::vector<float> c;
  GemmProblem problem;

  Operands(const InstructionModel& model, Shape shape, Data data, Start start, std::uint64_t seed)
      : a(model.a_format, shape.m, shape.k, data, RandomStream(seed, "a"), seed % 3 == 1),
        b(model.b_format, shape.n, shape.k, data, RandomStream(seed, "b"), seed % 3 == 2),
        c(random_c(start, shape.m * shape.n, RandomStream(seed, "c"))) {
    problem.model = model.accumulator;
    problem.a = a.view;
    problem.b = b.view;
    if (start != Start::none) problem.c = c.data();
  }
};

/// A problem of a model's formats without data, for what depends on neither: methods and plans.
inline GemmProblem problem_of(const InstructionModel& model) {
  GemmProblem problem;
  problem.model = model.accumulator;
  problem.a.format = model.a_format;
  problem.b.format = model.b_format;
  return problem;
}

inline InstructionModel with_formats(std::string_view name, FormatId a, FormatId b) {
  InstructionModel model = find_instruction_model(name);
  model.a_format = a;
  model.b_format = b;
  return model;
}

}  // namespace fp8lab::test
