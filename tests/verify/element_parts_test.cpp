// What is said of one element of unlike formats, all wrong outputs of an expectation, and bounds
// behind an epilogue by formulas of their own.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/product/epilogue.hpp"
#include "fp8lab/product/scale_variants.hpp"
#include "fp8lab/product/term_variants.hpp"
#include "fp8lab/product/variants.hpp"
#include "fp8lab/scaling/presets.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/budget.hpp"
#include "fp8lab/verify/element.hpp"
#include "fp8lab/verify/epilogue_budget.hpp"
#include "fp8lab/verify/expect.hpp"
#include "fp8lab/verify/k_blocks.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

/// The wrong outputs of a product that a test expects, in the order in which they are tried.
class WantedOutputs {
 public:
  explicit WantedOutputs(const Product& product) : p_(product), right_(compute(product)) {}

  std::vector<WrongOutput> all;

  void values(const std::string& name, const std::string& text, const std::vector<float>& d) {
    all.push_back({name, text, cast_output(d, p_.output, 1)});
  }
  template <typename Value>
  void edited(const std::string& name, const std::string& text, const Value& value) {
    std::vector<float> d = right_;
    for (std::int64_t i = 0; i < p_.rows(); ++i)
      for (std::int64_t j = 0; j < p_.columns(); ++j)
        d[static_cast<std::size_t>(i * p_.columns() + j)] = value(i, j, right(i, j));
    values(name, text, d);
  }
  void product(const std::string& name, const std::string& text,
               const std::optional<Product>& wrong) {
    REQUIRE(wrong);
    values(name, text, compute(*wrong));
  }
  [[nodiscard]] float right(std::int64_t i, std::int64_t j) const {
    return right_[static_cast<std::size_t>(i * p_.columns() + j)];
  }

  void stores() {
    for (const auto& [name, text, side] :
         {std::tuple{"zero_element", "one output is zero", 1},
          {"zero_tile_8x8", "a tile of 8 x 8 outputs is zero", 8},
          {"zero_tile_64x64", "a tile of 64 x 64 outputs is zero", 64}})
      edited(name, text, [side = side](std::int64_t i, std::int64_t j, float x) {
        return i < side && j < side ? 0.0F : x;
      });
    edited("sign_of_element", "one output has the wrong sign",
           [](std::int64_t i, std::int64_t j, float x) { return i + j == 0 ? -x : x; });
    edited("exchanged_columns", "two neighbouring columns are exchanged",
           [&](std::int64_t i, std::int64_t j, float x) {
             return p_.columns() > 1 && j < 2 ? right(i, 1 - j) : x;
           });
    for (const auto& [gain, number] :
         {std::pair{"0.72", 0.72F}, {"0.99", 0.99F}, {"0.999", 0.999F}})
      edited(fmt::format("gain_{}", gain), fmt::format("the output times {}", gain),
             [by = number](std::int64_t, std::int64_t, float x) { return x * by; });
  }

  void casts() {
    const auto through = [&](FormatId id, const std::string& name) {
      values("output_through_" + name, "the output rounded to " + name + " first",
             decode_codes(id, cast_output(right_, default_output(id), 1)));
    };
    if (p_.output.format == FormatId::f32) {
      through(FormatId::bf16, "bf16");
      through(FormatId::f16, "f16");
      return;
    }
    OutputCast truncated = p_.output;
    truncated.policy.rounding = RoundingMode::toward_zero;
    all.push_back({"truncated_output", "the output truncated, not rounded to nearest",
                   cast_output(right_, truncated, 1)});
    if (p_.output.format != FormatId::bf16) through(FormatId::bf16, "bf16");
  }

  void scales() {
    for (const auto& [side, letter] : {std::pair{Side::a, 'a'}, {Side::b, 'b'}}) {
      product(fmt::format("missing_scale_{}", letter), "a scale not applied",
              without_scales(p_, side));
      product(fmt::format("bf16_scale_{}", letter), "scales rounded to BF16",
              with_rounded_scales(p_, side, FormatId::bf16));
      product(fmt::format("e8m0_scale_{}", letter), "scales rounded up to powers of two",
              with_power_of_two_scales(p_, side));
      product(fmt::format("stale_scale_{}", letter), "the scale of the tile of K before",
              with_scales_moved_along_k(p_, side, -1));
      product(fmt::format("scale_{}_of_next_row", letter), "the scale of the next row of tiles",
              with_scales_moved_along_rows(p_, side, 1));
    }
  }

  void terms(const std::vector<std::int64_t>& counts) {
    const std::int64_t k = p_.problem.a.k;
    for (const std::int64_t count : counts)
      product(fmt::format("dropped_{}_terms", count),
              fmt::format("the last {} term{} of K left out", count, count == 1 ? "" : "s"),
              without_terms(p_, k - count, k));
    product("fnuz_codes", "codes read with the other bias", with_fnuz_codes(p_));
  }

  void sums(std::int64_t interval, const std::vector<std::string>& accumulators) {
    if (p_.problem.promotion_interval > 0)
      values("missing_promotion", "the first promotion does not happen",
             *compute_missing_promotion(p_));
    values("bf16_accumulator", fmt::format("the sum rounded to BF16 every {} terms", interval),
           *compute_in_intervals(p_, {.interval = interval, .rounded = FormatId::bf16}));
    for (const std::string& name : accumulators)
      product("accumulator_" + name, "accumulated as " + name + " does",
              with_accumulator(p_, find_instruction_model(name).accumulator));
  }

  void check(const std::string& what) const {
    const std::vector<WrongOutput> got = wrong_outputs(p_, right_);
    INFO(what);
    REQUIRE(got.size() == all.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      INFO(all[i].name);
      CHECK(got[i].name == all[i].name);
      CHECK(got[i].text == all[i].text);
      CHECK((got[i].codes == all[i].codes));
    }
  }

 private:
  const Product& p_;
  std::vector<float> right_;
};

}  // namespace

TEST_CASE("expect: the wrong outputs that are tried, with their texts and codes", "[verify]") {
  for (const FormatId id : {FormatId::f32, FormatId::f16, FormatId::bf16, FormatId::e5m2}) {
    const RandomProduct random({.promotion_interval = 128, .output = default_output(id)},
                               {.shape = {11, 10, 300}, .tiles_a = {11, 3}, .tiles_b = {10, 3}});
    WantedOutputs wanted(random.product);
    wanted.stores();
    wanted.casts();
    wanted.scales();
    wanted.terms({1, 16, 128});
    wanted.sums(128, {"fp32"});
    wanted.check(std::string(format(id).name));
  }
  for (const auto& [model, k, terms, accumulators] :
       {std::tuple{"fp32", 16, std::vector<std::int64_t>{1},
                   std::vector<std::string>{"sm90.wgmma.e4m3"}},
        {"sm90.wgmma.e4m3", 17, {1, 16}, {"fp32"}},
        {"sm90.wgmma.e4m3", 128, {1, 16}, {"fp32"}},
        {"exact", 129, {1, 16, 128}, {"sm90.wgmma.e4m3", "fp32"}}})
    for (const std::int64_t columns : {1, 67}) {
      const RandomProduct random({.model = model}, {.shape = {66, columns, k}});
      WantedOutputs wanted(random.product);
      wanted.stores();
      wanted.casts();
      wanted.terms(terms);
      wanted.sums(128, accumulators);
      wanted.check(fmt::format("{}, {} terms, {} columns", model, k, columns));
    }
}

TEST_CASE("element: its terms, block and models where A and B have unlike formats and scales",
          "[verify]") {
  for (const char* model : {"sm90.wgmma.e4m3.e5m2", "gfx942.mfma.bf8.fp8"})
    for (const std::int64_t interval : {0, 64}) {
      const RandomProduct random({.model = model, .promotion_interval = interval},
                                 {.shape = {5, 7, 200}, .tiles_a = {5}, .tiles_b = {7}});
      const Product& product = random.product;
      const GemmProblem& p = product.problem;
      const std::int64_t block = interval > 0 ? interval : 128;
      for (const auto& [row, column] : {std::pair{1, 2}, {4, 6}, {2, 0}})
        for (std::int64_t lost = 0; lost < 200; lost += block) {
          const std::int64_t end = std::min<std::int64_t>(lost + block, 200);
          std::vector<std::pair<double, std::int64_t>> terms;
          double sum = 0.0;
          for (std::int64_t k = lost; k < end; ++k) {
            const double x = decode(format(p.a.format), code_at(p.a, row, k)) *
                             decode(format(p.b.format), code_at(p.b, column, k));
            terms.emplace_back(-std::abs(x), k);
            sum += x * double{random.scale_a[static_cast<std::size_t>(row)]} *
                   double{random.scale_b[static_cast<std::size_t>(column)]};
          }
          std::ranges::sort(terms);
          ElementReport element;
          element.row = row;
          element.column = column;
          const double right = error_budget(product, row, column).exact;
          const auto code = [](double x) {
            return std::bit_cast<std::uint32_t>(static_cast<float>(x));
          };
          element.mismatch.expected = code(right);
          element.mismatch.got = code(right - sum);
          explain_element(product, element);
          INFO(model << ", interval " << interval << ", [" << row << ", " << column << "], "
                     << lost);
          CHECK(element.k_begin == lost);
          CHECK(element.k_end == end);
          CHECK(std::abs(element.k_block_sum / sum - 1.0) < 1e-9);
          REQUIRE(element.terms.size() == 4);
          for (std::size_t i = 0; i < 4; ++i) {
            const TermReport& term = element.terms[i];
            const std::int64_t k = terms[i].second;
            CHECK(term.k == k);
            CHECK(term.a_code == code_at(p.a, row, k));
            CHECK(term.b_code == code_at(p.b, column, k));
            CHECK(std::abs(term.product) == -terms[i].first);
          }
          REQUIRE_FALSE(element.models.empty());
          for (const ModelAnswer& one : element.models)
            if (one.model == model)
              CHECK(one.code == code_at(FormatId::f32, golden_output(product),
                                        static_cast<std::size_t>(row * 7 + column)));
        }
    }
}

TEST_CASE("budget: the bound of an activation, by its formula", "[verify][budget]") {
  constexpr double kStep = 0x1p-24;
  constexpr double kLeast = 0x1p-149;
  const auto once = [&](double value, double error) {
    return error + (std::abs(value) + error) * kStep + kLeast;
  };
  for (const Activation activation : activations())
    for (const double value : {-3.0, -0.1, 0.0, 0.2, 40.0})
      for (const double error : {0.0, 0.01, 5.0})
        for (const float slope : {0.25F, -2.0F})
          for (const float scale : {1.0F, -3.5F}) {
            Epilogue e;
            e.activation = activation;
            e.slope = slope;
            e.activation_ulps = 3.0F;
            if (scale != 1.0F) e.output_scale = scale;
            const double w = activation_value(e, value);
            const bool curve = is_transcendental(activation);
            double off = error;
            if (curve) off *= 1.13;
            if (activation == Activation::leaky_relu) off *= std::abs(slope) > 1.0F ? 2.0 : 1.0;
            if (activation != Activation::none) off = once(w, off);
            if (curve)
              off +=
                  3.0 * 2.0 * kStep * std::max(std::abs(value) + error, std::abs(w) + off) + kLeast;
            for (const bool gated : {false, true}) {
              const BoundedSum up{-1.75, 0.5, false};
              double last = gated ? w * up.value : w;
              double bound = off;
              if (gated) bound = once(last, off * 2.25 + std::abs(w) * 0.5);
              if (e.output_scale) {
                last *= double{scale};
                bound = once(last, bound * 3.5);
              }
              const BoundedSum got =
                  bounded_activation(e, {value, error, false}, gated ? &up : nullptr);
              INFO(fmt::format("{} of {} +- {}, slope {}, scale {}, gated {}: got {} +- {}",
                               to_string(activation), value, error, slope, scale, gated, got.value,
                               got.error));
              CHECK(got.value == last);
              CHECK(std::abs(got.error - bound) <= 1e-12 * bound);
              CHECK_FALSE(got.overflows);
            }
          }
  Epilogue gate;
  gate.activation = Activation::swiglu;
  for (const bool first : {false, true})
    for (const bool second : {false, true}) {
      const BoundedSum up{1.0, 0.0, second};
      CHECK(bounded_activation(gate, {1.0, 0.0, first}, &up).overflows == (first || second));
    }
}

TEST_CASE("budget: what quantizing can move beyond the largest number is special",
          "[verify][budget]") {
  std::vector<float> x(4 * 64);
  const RandomStream stream(7, "moved far");
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(stream.normal(i));
  GemmOperands operands;
  operands.a.codes = operands.b.codes =
      view_of(ElementType::f32, {4, 64}, std::span<const float>(x));
  operands.recipe = "te-current";
  Product product = make_product(operands, {.model = "sm90.wgmma.e4m3"});
  const ErrorBudget one = error_budget(product, 1, 1);
  const double own = std::abs(one.exact) + one.accumulation;
  REQUIRE(one.quantization > 0.01 * own);
  const double largest = 3.4028234663852886e38;
  for (const auto& [part, special] : {std::pair{-0.5, false}, {0.5, true}, {1.5, true}}) {
    product.epilogue.alpha = static_cast<float>(largest / (own + (1.0 - part) * one.quantization));
    if (part > 1.0) product.epilogue.alpha = static_cast<float>(largest / own * 1.001);
    if (part < 0.0)
      product.epilogue.alpha = static_cast<float>(largest / (own + 1.01 * one.quantization));
    INFO("part of the movement beyond: " << part);
    CHECK(error_budget(product, 1, 1).special == special);
    Product codes = product;
    codes.a_original = codes.b_original = nullptr;
    CHECK(error_budget(codes, 1, 1).special == (part > 1.0));
  }
}

TEST_CASE("causes: blocks of K are told where every block and row has a scale of its own",
          "[verify]") {
  const RandomProduct random({.promotion_interval = 32},
                             {.shape = {5, 3, 168}, .tiles_a = {5, 6}, .tiles_b = {3, 6}});
  const Product& p = random.product;
  const std::vector<float> golden = compute(p);
  const std::vector<std::int64_t> all = all_k_blocks(168, 32);
  REQUIRE(all.size() == 6);
  const auto range = [](std::int64_t block) {
    return fmt::format("[{}, {})", block * 32, std::min<std::int64_t>(block * 32 + 32, 168));
  };
  const auto expect = [&](const std::string& name, const std::string& text,
                          const BlockSources& sources) {
    std::string found;
    for (const BlockMistake& one :
         likely_block_mistakes(p, golden, compute(with_k_blocks(p, 32, sources)), 32))
      if (one.name == name) {
        found += one.text;
        CHECK((one.sources.a == sources.a && one.sources.b == sources.b &&
               one.sources.scales == sources.scales));
      }
    INFO(name);
    CHECK(found == text);
  };
  for (std::int64_t at = 0; at < 6; ++at) {
    BlockSources sources{all, all, all};
    for (std::vector<std::int64_t>* list : {&sources.a, &sources.b, &sources.scales})
      list->erase(list->begin() + at);
    expect("dropped_k_block", fmt::format("block {} of K left out", range(at)), sources);
    if (at == 5) continue;
    sources = {all, all, all};
    for (std::vector<std::int64_t>* list : {&sources.a, &sources.b, &sources.scales})
      list->insert(list->begin() + at, at);
    expect("doubled_k_block", fmt::format("block {} of K counted twice", range(at)), sources);
    for (const std::int64_t older : {1, -1, 2, 3, 4}) {
      const std::int64_t from = at - older;
      if (from < 0 || from > 4) continue;
      const auto place = static_cast<std::size_t>(at);
      const std::string text =
          fmt::format("block {} of K still held {}, of ", range(at), range(from));
      sources = {all, all, all};
      sources.a[place] = from;
      expect("stale_k_block_a", text + "A", sources);
      sources.b[place] = from;
      expect("stale_k_block", text + "A and B", sources);
      sources.a[place] = at;
      expect("stale_k_block_b", text + "B", sources);
    }
  }
}
