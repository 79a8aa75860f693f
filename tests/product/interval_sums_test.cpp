// Sums in intervals, split sums and sums without a promotion, each put together from its parts; and
// the models that stand beside another one.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/product/term_variants.hpp"
#include "fp8lab/product/variants.hpp"
#include "product/products.hpp"
#include "product/scaled_units.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

constexpr std::int64_t kSumRows = 3;
constexpr std::int64_t kSumColumns = 4;
using SumValues = std::vector<float>;

/// One accumulator over the terms [begin, end), from C or from zero.
SumValues one_chain(const Product& product, std::int64_t begin, std::int64_t end, const float* c) {
  GemmProblem p = product.problem;
  for (CodeMatrix* m : {&p.a, &p.b}) {
    m->data = static_cast<const std::uint8_t*>(m->data) + begin;  // codes of a byte, one a place
    m->k = end - begin;
  }
  p.scale_a = p.scale_b = {};
  p.promotion_interval = 0;
  p.c = c;
  p.c_enters = c == nullptr ? CPlacement::unnamed : CPlacement::accumulator;
  SumValues d(kSumRows * kSumColumns);
  gemm_reference(p, d);
  return d;
}

float after_epilogue(const Product& product, float x, std::size_t column) {
  const Epilogue& e = product.epilogue;
  if (e.empty()) return x;
  x = std::fma(e.alpha, x, e.bias[column]);
  return std::max(x, 0.0F);
}

/// Products of one model with every place of C, scales and an epilogue, or none.
template <typename Look>
void each_summed_product(std::int64_t k, std::int64_t interval, const Look& look) {
  const SumValues bias{0.5F, -2.0F, 3.0F, 0.25F};
  for (const int scales : {0, 1, 2})
    for (const bool around : {false, true})
      for (const ScaleOrder order : scale_orders()) {
        if (scales == 0 && order != scale_orders().front()) continue;
        RandomProduct::Options options{
            .shape = {kSumRows, kSumColumns, k}, .data = Data::wide, .with_c = true};
        if (scales == 1) options.tiles_a = {kSumRows}, options.tiles_b = {kSumColumns};
        const std::int64_t tiles = (k + interval - 1) / interval;
        RandomProduct random({.model = "sm100.mma.e4m3", .promotion_interval = interval}, options);
        SumValues of_a, of_b;
        for (std::int64_t i = 0; i < kSumRows * tiles; ++i)
          of_a.push_back(1.0F + 0.3F * static_cast<float>(i % 5));
        for (std::int64_t i = 0; i < kSumColumns * tiles; ++i)
          of_b.push_back(0.7F + 0.2F * static_cast<float>(i % 7));
        GemmProblem& p = random.product.problem;
        if (scales == 2) p.scale_a = {of_a, 1, interval};
        if (scales == 2) p.scale_b = {of_b, 1, interval};
        p.scale_order = order;
        if (around) {
          random.product.epilogue.alpha = 0.75F;
          random.product.epilogue.bias = bias;
          random.product.epilogue.activation = Activation::relu;
        }
        Product product = random.product;
        product.problem.c = nullptr;
        product.problem.c_enters = CPlacement::unnamed;
        look(product, std::string("no C"));
        product.problem.c = random.product.problem.c;
        for (const CPlacement place : possible_c_placements(product.problem)) {
          product.problem.c_enters = place;
          look(product, "C in " + std::string(to_string(place)) + ", scales " +
                            std::to_string(scales) + ", around " + std::to_string(around) + ", " +
                            std::string(to_string(order)));
        }
      }
}

float c_at(const Product& product, CPlacement place, std::size_t i) {
  const GemmProblem& p = product.problem;
  return p.c != nullptr && p.c_enters == place ? p.c[i] : 0.0F;
}

/// What comes after the sums over K.
SumValues finished_sums(const Product& product, SumValues sums) {
  const GemmProblem& p = product.problem;
  const ScaleLookup a(p.scale_a, p.a);
  const ScaleLookup b(p.scale_b, p.b);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const float c = c_at(product, CPlacement::epilogue, i);
    if (scaled_as_a_whole(p))
      sums[i] =
          scale_into(p.scale_order, sums[i], a.at(static_cast<std::int64_t>(i) / kSumColumns, 0),
                     b.at(static_cast<std::int64_t>(i) % kSumColumns, 0), c);
    else
      sums[i] += c;
    sums[i] = after_epilogue(product, sums[i], i % kSumColumns);
  }
  return sums;
}

/// The sum of one interval under its scales, or as it is, added to `sum`.
float added(const Product& product, float part, std::size_t i, std::int64_t scale_at, float sum) {
  const GemmProblem& p = product.problem;
  if (!scaled_in_blocks(p)) return sum + part;
  const ScaleLookup a(p.scale_a, p.a);
  const ScaleLookup b(p.scale_b, p.b);
  return scale_into(p.scale_order, part, a.at(static_cast<std::int64_t>(i) / kSumColumns, scale_at),
                    b.at(static_cast<std::int64_t>(i) % kSumColumns, scale_at), sum);
}

std::vector<std::byte> sum_bits(const SumValues& x) { return cast_output(x, {}, 1); }

}  // namespace

TEST_CASE("variants: sums in intervals are what their parts add up to", "[product]") {
  for (const std::int64_t k : {96, 150}) {
    each_summed_product(k, 32, [&](const Product& product, const std::string& name) {
      for (const std::int64_t interval : {64, 160})
        for (const bool first : {true, false})
          for (const int rounding : {0, first ? 1 : 2}) {
            IntervalSums how{.interval = interval, .first_scale = first};
            if (rounding > 0) how.rounded = rounding == 1 ? FormatId::bf16 : FormatId::f16;
            SumValues sums(kSumRows * kSumColumns);
            for (std::size_t i = 0; i < sums.size(); ++i)
              sums[i] = c_at(product, CPlacement::promoted_sum, i);
            for (std::int64_t begin = 0; begin < k; begin += interval) {
              const std::int64_t end = std::min(begin + interval, k);
              const bool from_c = begin == 0 && product.problem.c_enters == CPlacement::accumulator;
              const SumValues part =
                  one_chain(product, begin, end, from_c ? product.problem.c : nullptr);
              for (std::size_t i = 0; i < sums.size(); ++i) {
                sums[i] = added(product, part[i], i, first ? begin : end - 1, sums[i]);
                if (how.rounded)
                  sums[i] = static_cast<float>(decode(
                      format(*how.rounded), encode(format(*how.rounded), kNvidiaNosat, sums[i])));
              }
            }
            const SumValues expected = finished_sums(product, std::move(sums));
            const auto got = compute_in_intervals(product, how);
            REQUIRE(got);
            INFO(name << ", k " << k << ", interval " << interval << ", first " << first
                      << ", rounding " << rounding);
            CHECK(sum_bits(*got) == sum_bits(expected));
          }
      for (const std::int64_t interval : {0, -32, 16, 48})
        CHECK_FALSE(compute_in_intervals(product, {.interval = interval}).has_value());
      Product split = product;
      split.split = {.parts = 2, .tile = 32};
      CHECK_FALSE(compute_in_intervals(split, {.interval = 32}).has_value());
      CHECK_FALSE(compute_missing_promotion(split).has_value());
      CHECK_FALSE(compute_split_k(split, 2).has_value());
    });
  }
}

TEST_CASE("variants: without the first promotion two intervals are one chain", "[product]") {
  for (const std::int64_t k : {32, 33, 64, 96, 150})
    each_summed_product(k, 32, [&](const Product& product, const std::string& name) {
      const auto got = compute_missing_promotion(product);
      INFO(name << ", k " << k);
      CHECK(got.has_value() == (k > 32));
      if (!got) return;
      SumValues sums(kSumRows * kSumColumns);
      for (std::size_t i = 0; i < sums.size(); ++i)
        sums[i] = c_at(product, CPlacement::promoted_sum, i);
      for (std::int64_t begin = 0; begin < k;) {
        const std::int64_t end = std::min(begin + (begin == 0 ? 64 : 32), k);
        const bool from_c = begin == 0 && product.problem.c_enters == CPlacement::accumulator;
        const SumValues part = one_chain(product, begin, end, from_c ? product.problem.c : nullptr);
        for (std::size_t i = 0; i < sums.size(); ++i)
          sums[i] = added(product, part[i], i, end - 1, sums[i]);
        begin = end;
      }
      CHECK(sum_bits(*got) == sum_bits(finished_sums(product, std::move(sums))));
    });
}

TEST_CASE("variants: as many parts as there are tiles of K, and no more", "[product]") {
  for (const std::int64_t interval : {0, 64})
    for (const std::int64_t k : {32, 64, 96, 128, 160, 200}) {
      const RandomProduct random({.model = "sm100.mma.e4m3", .promotion_interval = interval},
                                 {.shape = {2, 3, k}});
      const std::int64_t tile = interval > 0 ? interval : 32;
      const std::int64_t tiles = (k + tile - 1) / tile;
      for (const int parts : {-1, 0, 1, 2, 3, 4, 5, 6, 7, 8}) {
        INFO("k " << k << ", interval " << interval << ", " << parts << " parts");
        const auto got = compute_split_k(random.product, parts);
        CHECK(got.has_value() == (parts >= 2 && parts <= tiles));
        if (!got) continue;
        Product split = random.product;
        split.split = {.parts = parts, .tile = tile};
        CHECK(*got == compute(split));
      }
    }
}

TEST_CASE("variants: beside a model stand those that read the same operands", "[product]") {
  const std::vector<std::byte> zeros(4 * 64 * 4);
  int beside = 0;
  for (const InstructionModel& own : instruction_models()) {
    Product product;
    product.model = own.name;
    GemmProblem& p = product.problem;
    p.model = own.accumulator;
    p.a = {own.a_format, zeros.data(), 4, 64, 64, 1};
    p.b = {own.b_format, zeros.data(), 4, 64, 64, 1};
    std::string expected;
    std::string got;
    for (const InstructionModel& other : instruction_models()) {
      const bool reads = other.a_format == own.a_format && other.b_format == own.b_format;
      const bool can = (reads || other.standing == Standing::definition) &&
                       takes_formats(other.accumulator, own.a_format, own.b_format);
      const bool scales = traits_of(other.accumulator).takes_scales;
      if (can && (!scales || &other == &own)) expected += std::string(other.name) + " ";
      if (stands_beside(other, product)) got += std::string(other.name) + " ";
      beside += can ? 1 : 0;
    }
    INFO(own.name);
    CHECK(got == expected);
  }
  CHECK(beside > 500);
  // With scales inside, those alone that apply them too.
  const std::vector<float> values(4 * 128, 0.75F);
  for (const ScaledUnit& unit : kScaledUnits) {
    const Product product = product_of(unit, {values, 4, 128});
    const InverseScales& scales = product.problem.scale_b;
    const InstructionModel& own = find_instruction_model(unit.model);
    for (const InstructionModel& other : instruction_models()) {
      const bool reads = other.a_format == own.a_format && other.b_format == own.b_format;
      const bool inside =
          traits_of(other.accumulator).takes_scales &&
          unit_of(other.accumulator.kind)
              .takes_scales(other.accumulator, scales.format, static_cast<int>(scales.k_block));
      INFO(unit.model << " and " << other.name);
      CHECK(stands_beside(other, product) == (reads && inside));
    }
  }
}
