#include "apps/bench/gemm_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "apps/bench/eigen_gemm.hpp"
#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/integer_list.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/core/target.hpp"
#include "fp8lab/core/threads.hpp"

namespace fp8lab::cli {
namespace {

/// Random codes of 8- or 16-bit formats (TF32 in binary32 words).
std::vector<unsigned char> random_codes(const Format& f, std::int64_t count, std::string_view data,
                                        const RandomStream& stream) {
  const auto width = static_cast<std::size_t>(f.bytes());
  std::vector<unsigned char> bytes(static_cast<std::size_t>(count) * width);
#pragma omp parallel for num_threads(team_size(0))
  for (std::int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<std::uint64_t>(i);
    std::uint32_t code = 0;
    if (data == "wide") {
      const std::uint32_t bits = stream.bits32(index);
      code = bits % (f.max_finite_code() + 1) | (bits >> 31 != 0 ? f.sign_mask() : 0);
    } else {
      code = encode(f, kNvidiaSatfinite,
                    static_cast<float>(data == "uniform" ? stream.uniform(index)
                                                         : 16.0 * stream.normal(index)));
    }
    if (f.storage_bits == 32) code <<= 23 - f.mantissa_bits;
    std::copy_n(reinterpret_cast<const unsigned char*>(&code), width,
                bytes.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(i) * width));
  }
  return bytes;
}

CodeMatrix view(FormatId id, const std::vector<unsigned char>& codes, std::int64_t rows,
                std::int64_t k) {
  return {id, codes.data(), rows, k, k, 1};
}

/// At most `most` of `size` indices, the first and the last among them.
std::vector<std::int64_t> sample(std::int64_t size, std::int64_t most) {
  std::vector<std::int64_t> picked;
  for (std::int64_t i = 0; i < std::min(size, most); ++i)
    picked.push_back(size <= most ? i : i * (size - 1) / (most - 1));
  return picked;
}

CodeMatrix row_of(const CodeMatrix& matrix, std::int64_t row) {
  CodeMatrix single = matrix;
  single.rows = 1;
  single.data = static_cast<const unsigned char*>(matrix.data) +
                row * matrix.row_stride * (format(matrix.format).bytes());
  return single;
}

/// Scales of a block-scaled instruction, one a row and block: four binades of them.
std::vector<float> random_scales(const AccumulatorModel& model, std::int64_t rows, std::int64_t k,
                                 std::int64_t block, const RandomStream& stream) {
  if (!traits_of(model).takes_scales) return {};
  std::vector<float> scales(static_cast<std::size_t>(rows * ceil_divide(k, block)));
  for (std::size_t i = 0; i < scales.size(); ++i)
    scales[i] = std::ldexp(1.0F, static_cast<int>(stream.bits32(i) % 4) - 5);
  return scales;
}

/// Those of groups may be a UE4M3 scale's, as NVFP4 has them, the others are UE8M0's.
std::int64_t scale_block(const InstructionModel& model) {
  return model.accumulator.kind == AccumulationKind::scaled_group_dot_product ? 16 : 32;
}

/// Those of `count` rows from `row` on.
InverseScales scales_of_rows(InverseScales scales, const CodeMatrix& matrix, std::int64_t row,
                             std::int64_t count) {
  if (scales.empty()) return scales;
  const auto blocks = static_cast<std::size_t>(ceil_divide(matrix.k, scales.k_block));
  scales.values = scales.values.subspan(static_cast<std::size_t>(row) * blocks,
                                        static_cast<std::size_t>(count) * blocks);
  return scales;
}

EigenGemm eigen_gemm() {
  switch (current_target()) {
    case Target::avx512:
      return eigen_gemm_avx512;
    case Target::avx2:
      return eigen_gemm_avx2;
    default:
      return eigen_gemm_baseline;
  }
}

}  // namespace

std::vector<Shape> parse_shapes(const std::string& text) {
  std::vector<Shape> shapes;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, '+');) {
    constexpr std::string_view kForm = "MxNxK with positive numbers, or several joined by +";
    const std::vector<std::int64_t> sides = parse_integers("--shape", part, 'x', 3, kForm);
    require(std::ranges::min(sides) > 0, "--shape", kForm, "'" + part + "'");
    shapes.push_back({sides[0], sides[1], sides[2]});
  }
  require(!shapes.empty(), "--shape", "MxNxK", "nothing");
  return shapes;
}

GemmCase::GemmCase(const InstructionModel& model, const Shape& s, std::string_view data,
                   std::int64_t promotion_interval)
    : a_(random_codes(format(model.a_format), s.m * s.k, data, {1, "a"})),
      b_(random_codes(format(model.b_format), s.n * s.k, data, {1, "b"})),
      a_scales_(random_scales(model.accumulator, s.m, s.k, scale_block(model), {1, "scales of a"})),
      b_scales_(random_scales(model.accumulator, s.n, s.k, scale_block(model), {1, "scales of b"})),
      d_(static_cast<std::size_t>(s.m * s.n)) {
  problem_.scale_a = {a_scales_, 1, scale_block(model)};
  problem_.scale_b = {b_scales_, 1, scale_block(model)};
  problem_.model = model.accumulator;
  problem_.a = view(model.a_format, a_, s.m, s.k);
  problem_.b = view(model.b_format, b_, s.n, s.k);
  problem_.promotion_interval = promotion_interval;
}

std::int64_t GemmCase::mismatches() const {
  constexpr std::int64_t kMost = 24;
  std::int64_t mismatches = 0;
  for (const std::int64_t row : sample(problem_.a.rows, kMost)) {
    for (const std::int64_t column : sample(problem_.b.rows, kMost)) {
      GemmProblem one = problem_;
      one.a = row_of(problem_.a, row);
      one.b = row_of(problem_.b, column);
      one.scale_a = scales_of_rows(problem_.scale_a, problem_.a, row, 1);
      one.scale_b = scales_of_rows(problem_.scale_b, problem_.b, column, 1);
      float expected = 0.0F;
      gemm_reference(one, {&expected, 1});
      const float got = d_[static_cast<std::size_t>(row * problem_.b.rows + column)];
      mismatches += std::bit_cast<std::uint32_t>(expected) != std::bit_cast<std::uint32_t>(got);
    }
  }
  return mismatches;
}

double GemmCase::reference_rate() const {
  constexpr std::int64_t kProducts = 500'000;
  GemmProblem part = problem_;
  part.b.rows =
      std::clamp<std::int64_t>(kProducts / part.b.k, 1, std::min<std::int64_t>(32, part.b.rows));
  part.a.rows = std::clamp<std::int64_t>(kProducts / (part.b.k * part.b.rows), 1, part.a.rows);
  part.scale_a = scales_of_rows(problem_.scale_a, part.a, 0, part.a.rows);
  part.scale_b = scales_of_rows(problem_.scale_b, part.b, 0, part.b.rows);
  std::vector<float> d(static_cast<std::size_t>(part.a.rows * part.b.rows));
  const auto start = std::chrono::steady_clock::now();
  gemm_reference(part, d, 1);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return Shape{part.a.rows, part.b.rows, part.a.k}.products() / seconds.count();
}

EigenCase::EigenCase(const Shape& s)
    : shape_(s),
      a_(static_cast<std::size_t>(s.m * s.k), 0.5F),
      b_(static_cast<std::size_t>(s.n * s.k), 2.0F),
      d_(static_cast<std::size_t>(s.m * s.n)) {}

void EigenCase::run(int threads) {
  static const EigenGemm kMultiply = eigen_gemm();
  kMultiply(a_.data(), b_.data(), d_.data(), shape_.m, shape_.n, shape_.k, threads);
}

void EigenCase::check() const {
  require(d_.back() == static_cast<float>(shape_.k), "Eigen", "k ones",
          fmt::format("{}", d_.back()));
}

}  // namespace fp8lab::cli
