#pragma once
// A block-scaled FP8 kernel in slow motion: every read of memory, every scale and every store is
// a function that a fault may replace. It shares the instruction with the library, and nothing
// else: loops, scales, promotion and stores are its own.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/gemm/gemm.hpp"
#include "fp8lab/product/product.hpp"

namespace fp8lab::test {

/// Codes with 1 x 128 scales for A and 128 x 128 scales for B, as the kernel finds them in memory.
struct Tensors {
  std::int64_t m = 192;
  std::int64_t n = 256;
  std::int64_t k = 1024;
  bool scaled = true;
  std::vector<std::uint8_t> a{}, b{};
  std::vector<float> scale_a{}, scale_b{};

  [[nodiscard]] std::int64_t blocks() const { return (k + 127) / 128; }

  void fill(std::uint64_t seed) {
    const auto codes = [&](std::vector<std::uint8_t>& to, std::int64_t count, const char* name) {
      const RandomStream stream(seed, name);
      for (std::int64_t i = 0; i < count; ++i)
        to.push_back(static_cast<std::uint8_t>(
            encode(format(FormatId::e4m3fn), kNvidiaSatfinite,
                   static_cast<float>(16.0 * stream.normal(static_cast<std::uint64_t>(i))))));
    };
    const auto scales = [&](std::vector<float>& to, std::int64_t count, const char* name) {
      const RandomStream stream(seed, name);
      for (std::int64_t i = 0; i < count; ++i)
        to.push_back(static_cast<float>(
            std::exp2(0.5 * stream.normal(static_cast<std::uint64_t>(i)) - 5.0)));
    };
    codes(a, m * k, "a");
    codes(b, n * k, "b");
    if (!scaled) return;
    scales(scale_a, m * blocks(), "scale_a");
    scales(scale_b, (n + 127) / 128 * blocks(), "scale_b");
  }

  [[nodiscard]] Product product(const GemmSpec& spec) const {
    GemmOperands operands;
    operands.a.codes = view_of(ElementType::e4m3fn, {m, k}, std::span(a));
    operands.b.codes = view_of(ElementType::e4m3fn, {n, k}, std::span(b));
    if (scaled) {
      operands.a.scales = view_of(ElementType::f32, {m, blocks()}, std::span(scale_a));
      operands.b.scales =
          view_of(ElementType::f32, {(n + 127) / 128, blocks()}, std::span(scale_b));
      operands.a.tiles = ScaleTiles{1, 128};
      operands.b.tiles = ScaleTiles{128, 128};
    }
    return make_product(operands, spec);
  }
};

/// One launch. Functions take (row, k) of an operand, k counted in terms.
struct Launch {
  std::int64_t m, n, k;
  std::string model = "sm90.wgmma.e4m3";
  std::function<std::uint8_t(std::int64_t, std::int64_t)> a, b;
  std::function<float(std::int64_t, std::int64_t)> scale_a, scale_b;  ///< null: 1
  FormatId format_a = FormatId::e4m3fn;
  FormatId format_b = FormatId::e4m3fn;
  std::int64_t block = 128;            ///< terms of a stage
  std::vector<std::int64_t> stages{};  ///< blocks of K in the order of the loop
  std::function<bool(std::size_t)> promotes = [](std::size_t) { return true; };  ///< after stage i
  std::function<float(float, float, float, float)> add =
      [](float partial, float sa, float sb, float sum) { return std::fma(sa * sb, partial, sum); };
  std::function<float(float)> hold = [](float x) { return x; };  ///< what holds the FP32 sum
  OutputCast output{};

  explicit Launch(const Tensors& t)
      : m(t.m),
        n(t.n),
        k(t.k),
        a([&t](std::int64_t row, std::int64_t at) {
          return t.a[static_cast<std::size_t>(row * t.k + at)];
        }),
        b([&t](std::int64_t row, std::int64_t at) {
          return t.b[static_cast<std::size_t>(row * t.k + at)];
        }) {
    if (t.scaled) {
      scale_a = [&t](std::int64_t row, std::int64_t at) {
        return t.scale_a[static_cast<std::size_t>(row * t.blocks() + at / 128)];
      };
      scale_b = [&t](std::int64_t row, std::int64_t at) {
        return t.scale_b[static_cast<std::size_t>(row / 128 * t.blocks() + at / 128)];
      };
    }
    set_block(128);
  }

  void set_block(std::int64_t terms) {
    block = terms;
    stages.clear();
    for (std::int64_t i = 0; i * block < k; ++i) stages.push_back(i);
  }

  /// The FP32 sums.
  [[nodiscard]] std::vector<float> sums() const {
    std::vector<float> sum(static_cast<std::size_t>(m * n), 0.0F);
    std::vector<float> accumulator(sum.size(), 0.0F);
    for (std::size_t s = 0; s < stages.size(); ++s) {
      const std::int64_t begin = stages[s] * block;
      multiply(begin, std::min(begin + block, k), accumulator);
      if (!promotes(s) && s + 1 < stages.size()) continue;
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
          const auto at = static_cast<std::size_t>(i * n + j);
          sum[at] = hold(add(accumulator[at], scale_a ? scale_a(i, begin) : 1.0F,
                             scale_b ? scale_b(j, begin) : 1.0F, sum[at]));
          accumulator[at] = 0.0F;
        }
    }
    return sum;
  }

  /// What the kernel stores.
  [[nodiscard]] std::vector<std::byte> run() const { return cast_output(sums(), output); }

 private:
  /// accumulator += A[:, begin:end] . B[:, begin:end]^T, as the instruction does.
  void multiply(std::int64_t begin, std::int64_t end, std::vector<float>& accumulator) const {
    const auto load = [&](std::int64_t rows, const auto& read) {
      std::vector<std::uint8_t> codes;
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t at = begin; at < end; ++at) codes.push_back(read(row, at));
      return codes;
    };
    const std::vector<std::uint8_t> x = load(m, a);
    const std::vector<std::uint8_t> y = load(n, b);
    GemmProblem problem;
    problem.model = find_instruction_model(model).accumulator;
    problem.a = CodeMatrix::row_major(format_a, x, m, end - begin);
    problem.b = CodeMatrix::row_major(format_b, y, n, end - begin);
    const std::vector<float> before = accumulator;
    problem.c = before.data();
    gemm(problem, accumulator);
  }
};

inline float rounded_to(FormatId id, float x) {
  return static_cast<float>(decode(format(id), encode(format(id), kNvidiaNosat, x)));
}

/// Stored codes of 2 or 4 bytes as a matrix that faults of stores change.
struct Stored {
  std::int64_t rows, columns;
  std::size_t width;
  std::vector<std::byte> bytes;

  [[nodiscard]] std::uint32_t get(std::int64_t row, std::int64_t column) const {
    std::uint32_t code = 0;
    std::memcpy(&code, &bytes[static_cast<std::size_t>(row * columns + column) * width], width);
    return code;
  }
  void set(std::int64_t row, std::int64_t column, std::uint32_t code) {
    std::memcpy(&bytes[static_cast<std::size_t>(row * columns + column) * width], &code, width);
  }
  /// Each element of a rectangle from a function of its place in the rectangle.
  template <typename Code>
  void fill(std::int64_t row, std::int64_t rows_of, std::int64_t column, std::int64_t columns_of,
            const Code& code) {
    for (std::int64_t i = 0; i < rows_of; ++i)
      for (std::int64_t j = 0; j < columns_of; ++j) set(row + i, column + j, code(i, j));
  }
};

}  // namespace fp8lab::test
