#pragma once
// Random products for the tests of verify/.

#include <cmath>
#include <string>
#include <vector>

#include "fp8lab/core/random.hpp"
#include "fp8lab/product/product.hpp"
#include "gemm/problems.hpp"

namespace fp8lab::test {

/// A product that owns the bytes of random codes and, if wished, scales and C.
struct RandomProduct {
  std::vector<std::uint8_t> a;
  std::vector<std::uint8_t> b;
  std::vector<float> scale_a;
  std::vector<float> scale_b;
  std::vector<float> c;
  Product product;

  struct Shape {
    std::int64_t m = 24;
    std::int64_t n = 20;
    std::int64_t k = 512;
  };
  struct Options {
    Shape shape{};
    Data data = Data::normal;
    std::vector<std::int64_t> tiles_a{};  ///< shape of the scales; empty: none
    std::vector<std::int64_t> tiles_b{};
    bool with_c = false;
    std::uint64_t seed = 1;
  };

  /// A spec without a model is one of Hopper's E4M3.
  RandomProduct(const GemmSpec& given, const Options& o) {
    GemmSpec spec = given;
    if (spec.model.empty()) spec.model = "sm90.wgmma.e4m3";
    const InstructionModel& model = find_instruction_model(spec.model);
    const auto fill = [&](std::vector<std::uint8_t>& codes, FormatId id, std::int64_t count,
                          const std::string& name) {
      const Format& f = format(id);
      const RandomStream stream(o.seed, name);
      for (std::int64_t i = 0; i < count; ++i) {
        std::uint32_t code = random_code(f, o.data, stream, static_cast<std::uint64_t>(i));
        if (f.storage_bits == 32) code <<= 23 - f.mantissa_bits;
        for (int bit = 0; bit < f.storage_bits; bit += 8)
          codes.push_back(static_cast<std::uint8_t>(code >> bit));
      }
    };
    fill(a, model.a_format, o.shape.m * o.shape.k, "a");
    fill(b, model.b_format, o.shape.n * o.shape.k, "b");
    GemmOperands operands;
    operands.a.codes = view_of(element_type_of(model.a_format), {o.shape.m, o.shape.k},
                               std::span<const std::uint8_t>(a));
    operands.b.codes = view_of(element_type_of(model.b_format), {o.shape.n, o.shape.k},
                               std::span<const std::uint8_t>(b));
    operands.a.scales = scales(o.tiles_a, scale_a, o.seed, "scale_a");
    operands.b.scales = scales(o.tiles_b, scale_b, o.seed, "scale_b");
    if (o.with_c) {
      c = random_c(Start::normal, o.shape.m * o.shape.n, RandomStream(o.seed, "c"));
      operands.c = view_of(ElementType::f32, {o.shape.m, o.shape.n}, std::span<const float>(c));
    }
    if (o.with_c && spec.c_enters == CPlacement::unnamed) spec.c_enters = place_of_c(spec, o);
    product = make_product(operands, spec);
  }

 private:
  /// Where the kernels take C along.
  static CPlacement place_of_c(const GemmSpec& spec, const Options& o) {
    const auto along_k = [](const std::vector<std::int64_t>& tiles) {
      return tiles.size() == 2 && tiles[1] > 1;
    };
    const bool scaled = !o.tiles_a.empty() || !o.tiles_b.empty();
    if (scaled && !along_k(o.tiles_a) && !along_k(o.tiles_b)) return CPlacement::epilogue;
    return spec.promotion_interval > 0 ? CPlacement::promoted_sum : CPlacement::accumulator;
  }
  static std::optional<TensorView> scales(const std::vector<std::int64_t>& shape,
                                          std::vector<float>& values, std::uint64_t seed,
                                          const std::string& name) {
    if (shape.empty()) return std::nullopt;
    const RandomStream stream(seed, name);
    const std::int64_t count = element_count(shape, "tiles");
    for (std::int64_t i = 0; i < count; ++i)
      values.push_back(static_cast<float>(std::exp2(stream.normal(static_cast<std::uint64_t>(i)))));
    return view_of(ElementType::f32, shape, std::span<const float>(values));
  }
};

}  // namespace fp8lab::test
