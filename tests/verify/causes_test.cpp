// Causes on products of every kind: none throws, none is named where nothing known is wrong.

#include "fp8lab/verify/causes.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/product/variants.hpp"
#include "fp8lab/verify/verify.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

/// Diagnoses `values` as the output of a product, all of whose elements count as wrong.
Diagnosis diagnosis_of(const Product& product, const std::vector<float>& values) {
  const std::vector<std::byte> golden = golden_output(product);
  const std::vector<std::byte> got = cast_output(values, product.output);
  std::vector<std::int64_t> mismatches(product.size());
  std::iota(mismatches.begin(), mismatches.end(), 0);
  return diagnose(product, got, mismatches, {.golden = golden});
}

}  // namespace

TEST_CASE("causes: every model, with scales, C and odd sizes, has none for noise", "[verify]") {
  const std::vector<RandomProduct::Options> kinds{
      {.shape = {5, 7, 72}},
      {.shape = {9, 6, 300}, .with_c = true},
      {.shape = {6, 5, 512}, .tiles_a = {6, 4}, .tiles_b = {5, 4}},
      {.shape = {6, 5, 448}, .tiles_a = {6, 4}, .tiles_b = {1, 4}, .with_c = true},
      {.shape = {6, 5, 256}, .tiles_a = {6}, .tiles_b = {1}, .with_c = true},
      {.shape = {1, 1, 32}}};
  std::uint64_t tried = 0;
  for (const InstructionModel& model : instruction_models()) {
    // Files have no type of E2M1.
    if (format(model.a_format).storage_bits != 8 || model.a_format == FormatId::e2m1) continue;
    for (const RandomProduct::Options& options : kinds) {
      const RandomProduct random({.model = std::string(model.name), .promotion_interval = 128},
                                 options);
      const RandomStream stream(17, "noise");
      std::vector<float> noise(random.product.size());
      for (std::size_t i = 0; i < noise.size(); ++i)
        noise[i] = 1000.0F + static_cast<float>(stream.normal(i));
      const Diagnosis diagnosis = diagnosis_of(random.product, noise);
      INFO(model.name << " k = " << options.shape.k << ": "
                      << (diagnosis.causes.empty() ? "" : diagnosis.causes.front().name));
      CHECK(diagnosis.causes.empty());
      tried += diagnosis.tried;
    }
  }
  CHECK(tried > 4000);
}

TEST_CASE("causes: they do not depend on threads", "[verify]") {
  const RandomProduct random({.promotion_interval = 128},
                             {.shape = {40, 60, 512}, .tiles_a = {40, 4}, .tiles_b = {60, 4}});
  Product wrong = random.product;
  wrong.problem.promotion_interval = 64;
  const std::vector<std::byte> got = golden_output(wrong);
  const std::vector<std::byte> golden = golden_output(random.product);
  const std::vector<std::int64_t> mismatches{0, 1, 2, 61, 700, 2000};
  const auto causes = [&](int threads) {
    return diagnose(random.product, got, mismatches, {.golden = golden, .threads = threads}).causes;
  };
  const std::vector<Cause> one = causes(1);
  REQUIRE_FALSE(one.empty());
  CHECK(one.front().name == "promotion_64");
  CHECK(one == causes(3));
}

TEST_CASE("causes: so many mistakes are tried of each kind of product, beside other accumulators",
          "[verify]") {
  std::string counts;
  const auto count = [&](const std::string& name, const Product& product) {
    // Other accumulators, each once, whose steps divide the promotion interval.
    std::vector<AccumulatorModel> seen{product.problem.model};
    std::uint64_t others = 0;
    for (const InstructionModel& model : instruction_models()) {
      if (std::ranges::find(seen, model.accumulator) != seen.end()) continue;
      if (!stands_beside(model, product)) continue;
      seen.push_back(model.accumulator);
      const std::int64_t interval = product.problem.promotion_interval;
      others += interval % model.accumulator.terms == 0 ? 1 : 0;
    }
    const std::vector<float> noise(product.size(), 1e9F);
    const Diagnosis found = diagnosis_of(product, noise);
    CHECK(found.causes.empty());
    counts += name + ": " + std::to_string(found.tried - others) + "\n";
  };
  const auto made = [](const GemmSpec& spec, const RandomProduct::Options& options) {
    return RandomProduct(spec, options);
  };
  const RandomProduct plain = made({}, {.shape = {3, 4, 256}});
  count("plain", plain.product);
  const RandomProduct promoted = made({.promotion_interval = 32}, {.shape = {3, 4, 256}});
  count("promoted", promoted.product);
  const RandomProduct sixteen =
      made({.model = "sm89.mma.e4m3", .promotion_interval = 16}, {.shape = {3, 4, 256}});
  count("promoted every 16", sixteen.product);
  const RandomProduct with_c =
      made({.promotion_interval = 32}, {.shape = {3, 4, 256}, .with_c = true});
  count("C", with_c.product);
  for (const bool of_a : {true, false})
    for (const bool tiles : {true, false}) {
      RandomProduct::Options options{.shape = {3, 4, 256}};
      (of_a ? options.tiles_a : options.tiles_b) = tiles
                                                       ? std::vector<std::int64_t>{of_a ? 3 : 4, 2}
                                                       : std::vector<std::int64_t>{of_a ? 3 : 4};
      const RandomProduct scaled = made({.promotion_interval = 128}, options);
      count(std::string(of_a ? "A" : "B") + (tiles ? " in tiles" : " in rows"), scaled.product);
    }
  const RandomProduct both = made({.promotion_interval = 64},
                                  {.shape = {3, 4, 256}, .tiles_a = {3, 2}, .tiles_b = {4, 2}});
  count("both in tiles", both.product);
  Product around = promoted.product;
  around.epilogue.activation = Activation::gelu;
  around.epilogue.alpha = 0.5F;
  count("around", around);
  Product split = promoted.product;
  split.split = {.parts = 2};
  count("split", split);
  const RandomProduct narrow =
      made({.output = default_output(FormatId::e4m3fn)}, {.shape = {3, 4, 200}});
  count("E4M3", narrow.product);
  CHECK(counts ==
        "plain: 58\n"
        "promoted: 59\n"
        "promoted every 16: 63\n"
        "C: 62\n"
        "A in tiles: 150\n"
        "A in rows: 100\n"
        "B in tiles: 146\n"
        "B in rows: 96\n"
        "both in tiles: 198\n"
        "around: 68\n"
        "split: 55\n"
        "E4M3: 79\n");
}
