#include "random_problem.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/gemm/c_placement.hpp"

namespace fp8lab::cuda {
namespace {

float draw(const RandomStream& random, Distribution distribution, std::uint64_t i) {
  switch (distribution) {
    case Distribution::normal:
      return static_cast<float>(random.normal(i));
    case Distribution::uniform_positive:
      return static_cast<float>(random.uniform(i));
    case Distribution::uniform_signed:
      return static_cast<float>(2.0 * random.uniform(i) - 1.0);
    default:
      return static_cast<float>(std::exp(random.normal(i)) * (random.bits32(i) % 2 == 0 ? 1 : -1));
  }
}

/// Codes of one or two bytes in memory.
class Codes {
 public:
  Codes(std::vector<std::uint8_t>& bytes, const Format& f)
      : bytes_(bytes.data()), width_(width(f)), size_(bytes.size() / width_) {}

  static std::size_t width(const Format& f) { return static_cast<std::size_t>(f.storage_bits) / 8; }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::uint32_t operator[](std::size_t i) const {
    if (width_ == 1) return bytes_[i];
    std::uint16_t code = 0;
    std::memcpy(&code, bytes_ + 2 * i, sizeof code);
    return code;
  }
  void set(std::size_t i, std::uint32_t code) const {
    const auto word = static_cast<std::uint16_t>(code);
    if (width_ == 1)
      bytes_[i] = static_cast<std::uint8_t>(code);
    else
      std::memcpy(bytes_ + 2 * i, &word, sizeof word);
  }

 private:
  std::uint8_t* bytes_;
  std::size_t width_;
  std::size_t size_;
};

std::vector<std::uint8_t> draw_codes(const Format& f, std::size_t size, Distribution distribution,
                                     const RandomStream& random) {
  std::vector<std::uint8_t> bytes(size * Codes::width(f));
  const Codes codes(bytes, f);
  const std::uint64_t magnitudes = f.max_finite_code() + 1;
#pragma omp parallel for schedule(static)
  for (std::size_t i = 0; i < size; ++i) {
    std::uint32_t code = 0;
    if (distribution == Distribution::all_codes)
      code = static_cast<std::uint32_t>(random.below(2 * i, magnitudes)) |
             (random.bits32(4 * i + 2) % 2 == 0 ? 0 : f.sign_mask());
    else
      code = encode(f, kNvidiaSatfinite, draw(random, distribution, i));
    codes.set(i, code);
  }
  return bytes;
}

std::vector<float> draw_scales(std::int64_t size, const RandomStream& random) {
  std::vector<float> scales(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < scales.size(); ++i)
    scales[i] = static_cast<float>(0.01 + random.uniform(i));
  return scales;
}

std::int64_t blocks(std::int64_t size) { return (size + 127) / 128; }

}  // namespace

const char* to_string(Recipe recipe) {
  constexpr const char* kNames[] = {"unscaled", "per-tensor", "rowwise", "1x128/128x128"};
  return kNames[static_cast<int>(recipe)];
}

const char* to_string(Distribution distribution) {
  constexpr const char* kNames[] = {"N(0,1)", "U[0,1)", "U[-1,1)", "+-exp(N(0,1))", "all codes"};
  return kNames[static_cast<int>(distribution)];
}

RandomProblem::RandomProblem(const InstructionModel& model, std::int64_t m, std::int64_t n,
                             std::int64_t k, Distribution distribution, std::uint64_t seed)
    : seed_(seed),
      a_(draw_codes(format(model.a_format), static_cast<std::size_t>(m * k), distribution,
                    {seed, "gemm.a"})),
      b_(draw_codes(format(model.b_format), static_cast<std::size_t>(n * k), distribution,
                    {seed, "gemm.b"})) {
  problem_.model = model.accumulator;
  problem_.a = {model.a_format, a_.data(), m, k, k, 1};
  problem_.b = {model.b_format, b_.data(), n, k, k, 1};
}

void RandomProblem::set_recipe(Recipe recipe, std::int64_t promotion_interval, ScaleOrder order) {
  const std::int64_t m = problem_.a.rows;
  const std::int64_t n = problem_.b.rows;
  const std::int64_t k = problem_.a.k;
  const auto set = [&](InverseScales& scales, std::vector<float>& values, std::int64_t row_block,
                       std::int64_t k_block, std::int64_t count, const char* stream) {
    values = draw_scales(count, {seed_, stream});
    scales = {values, row_block, k_block};
  };
  problem_.promotion_interval = promotion_interval;
  problem_.scale_order = order;
  problem_.scale_a = {};
  problem_.scale_b = {};
  if (recipe == Recipe::per_tensor) {
    set(problem_.scale_a, a_scales_, m, 0, 1, "gemm.a_scales");
    set(problem_.scale_b, b_scales_, n, 0, 1, "gemm.b_scales");
  } else if (recipe == Recipe::rowwise) {
    set(problem_.scale_a, a_scales_, 1, 0, m, "gemm.a_scales");
    set(problem_.scale_b, b_scales_, 1, 0, n, "gemm.b_scales");
  } else if (recipe == Recipe::blockwise) {
    set(problem_.scale_a, a_scales_, 1, 128, m * blocks(k), "gemm.a_scales");
    set(problem_.scale_b, b_scales_, 128, 128, blocks(n) * blocks(k), "gemm.b_scales");
  }
  problem_.c_enters = gemm_detail::passing_place(problem_);
}

void RandomProblem::set_scales(float a, float b) {
  a_scales_ = {a};
  b_scales_ = {b};
  problem_.scale_a = {a_scales_, problem_.a.rows, 0};
  problem_.scale_b = {b_scales_, problem_.b.rows, 0};
}

void RandomProblem::cancel_along_k(std::int64_t group) {
  const auto width = static_cast<std::size_t>(group);
  const auto k = static_cast<std::size_t>(problem_.a.k);
  const RandomStream random(seed_, "gemm.cancelled");
  std::vector<std::size_t> order(k / width);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i, i)]);
  const auto repeat = [&](const Codes& codes, std::uint32_t flipped) {
    for (std::size_t pair = 0; pair + 1 < order.size(); pair += 2)
      for (std::size_t row = 0; row < codes.size(); row += k)
        for (std::size_t i = 0; i < width; ++i)
          codes.set(row + order[pair + 1] * width + i,
                    codes[row + order[pair] * width + i] ^ flipped);
  };
  const Format& f = format(problem_.a.format);
  repeat(Codes(a_, f), f.sign_mask());
  repeat(Codes(b_, format(problem_.b.format)), 0);
}

void RandomProblem::thin_along_k(std::int64_t group) {
  const RandomStream random(seed_, "gemm.kept");
  const std::int64_t k = problem_.a.k;
  for (const Codes& codes :
       {Codes(a_, format(problem_.a.format)), Codes(b_, format(problem_.b.format))})
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const std::int64_t column = static_cast<std::int64_t>(i) % k;
      const auto number = static_cast<std::uint64_t>(column / group);
      if (column % group !=
          static_cast<std::int64_t>(random.below(number, static_cast<std::uint64_t>(group))))
        codes.set(i, 0);
    }
}

void RandomProblem::vary_along_k(std::int64_t group, int least, int count) {
  const RandomStream random(seed_, "gemm.magnitudes");
  const auto vary = [&](std::vector<std::uint8_t>& bytes, const CodeMatrix& m) {
    const Format& f = format(m.format);
    const Codes codes(bytes, f);
#pragma omp parallel for schedule(static)
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const auto number = static_cast<std::uint64_t>(static_cast<std::int64_t>(i) % m.k / group);
      const auto value = static_cast<float>(decode(f, codes[i]));
      const auto shift =
          least + static_cast<int>(random.below(number, static_cast<std::uint64_t>(count)));
      codes.set(i, encode(f, kNvidiaSatfinite, std::ldexp(value, -shift)));
    }
  };
  vary(a_, problem_.a);
  vary(b_, problem_.b);
}

void RandomProblem::add_c() {
  const RandomStream random(seed_, "gemm.c");
  c_.resize(outputs());
  for (std::size_t i = 0; i < c_.size(); ++i) c_[i] = static_cast<float>(random.normal(i) * 1000.0);
  problem_.c = c_.data();
  problem_.c_enters = gemm_detail::passing_place(problem_);
}

std::size_t RandomProblem::outputs() const {
  return static_cast<std::size_t>(problem_.a.rows * problem_.b.rows);
}

std::size_t count_differing(const std::vector<float>& x, const std::vector<float>& y) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (std::bit_cast<std::uint32_t>(x[i]) != std::bit_cast<std::uint32_t>(y[i])) ++count;
  return count;
}

}  // namespace fp8lab::cuda
