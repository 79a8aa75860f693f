// What identification costs, counted: sums over K and threads, since seconds depend on the machine.

#include <omp.h>

#include <cstring>
#include <filesystem>
#include <thread>

#include "catch.hpp"
#include "fp8lab/identify/hypotheses.hpp"
#include "fp8lab/identify/identify.hpp"
#include "fp8lab/identify/shared_sums.hpp"
#include "gemm/problems.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

/// Under `sm90.wgmma.e4m3`, promoted every 128 terms.
Product promoted_product(const Operands& operands, FormatId output) {
  Product product;
  product.model = "sm90.wgmma.e4m3";
  product.problem = operands.problem;
  product.problem.promotion_interval = 128;
  product.output = default_output(output);
  return product;
}

Operands large_operands() {
  return {
      find_instruction_model("sm90.wgmma.e4m3"), {128, 128, 1024}, Data::normal, Start::none, 1};
}

}  // namespace

TEST_CASE("identify: a large output costs a few outputs' sums", "[verify][identify]") {
  const Operands operands = large_operands();
  const Product product = promoted_product(operands, FormatId::f32);
  const Identification result = identify(product, golden_output(product));
  REQUIRE(result.explained());
  INFO(result.sums << " sums over K, " << result.tried << " hypotheses");
  CHECK(result.tried > 1000);
  CHECK(result.sums < 12 * product.size());
}

TEST_CASE("identify: orders of scales of the whole sum share its sums", "[verify][identify]") {
  // All hypotheses are computed on all of such an output, and none again.
  const Operands operands(find_instruction_model("sm90.wgmma.e4m3"), {2, 2, 1024}, Data::normal,
                          Start::none, 1);
  Product product = promoted_product(operands, FormatId::f32);
  const Identification plain = identify(product, golden_output(product));
  product.problem.scale_a = {product.keep({1.37F, 0.7F}), 1, 0};
  product.problem.scale_b = {product.keep({3.1F, 0.9F}), 1, 0};
  const Identification scaled = identify(product, golden_output(product));
  REQUIRE(plain.explained());
  REQUIRE(scaled.explained());
  CHECK(scaled.tried == scale_orders().size() * plain.tried);
  CHECK(scaled.sums == plain.sums);
}

TEST_CASE("identify: scales applied to shared sums are those of the product",
          "[verify][identify]") {
  const Operands operands(find_instruction_model("sm90.wgmma.e4m3"), {9, 7, 256}, Data::wide,
                          Start::normal, 3);
  Product product = promoted_product(operands, FormatId::f32);
  std::vector<float> values{1.1F, 0.3F, 7.7F, 1e-3F, 2.9F, 0.7F, 1.0F, 5.3F, 3.1F};
  product.problem.scale_a = {product.keep(values), 1, 0};
  product.problem.scale_b = {product.keep({values.begin(), values.begin() + 7}), 1, 0};
  const std::vector<NamedAccumulator> accumulators = accumulators_for(product.problem);
  std::size_t shared = 0;
  const std::vector<Accumulation> all = accumulations(product.problem, accumulators);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Accumulation& first = all[i - i % scale_orders().size()];
    REQUIRE(share_sums(product, accumulators, first, all[i]));
    const std::vector<float> sums = sums_of(product, first, accumulators, 1);
    Product whole = product_under(product, all[i], accumulators);
    whole.split.parts = all[i].split_k;
    if (all[i].split_k > 1) whole.split.tile = split_tile(whole);
    INFO(accumulators[all[i].accumulator].names.front()
         << ", promotion " << all[i].promotion_interval << ", order "
         << to_string(all[i].scale_order) << ", C " << to_string(all[i].c_enters) << ", K in "
         << all[i].split_k);
    const std::vector<float> got = result_of(product, all[i], accumulators, sums);
    const std::vector<float> expected = compute(whole, 1);
    REQUIRE(got.size() == expected.size());
    CHECK(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)) == 0);
    ++shared;
  }
  CHECK(shared > 500);
}

TEST_CASE("identify: splits, orders of tiles' scales and places of C share partial sums",
          "[verify][identify]") {
  const Operands operands = large_operands();
  Product product = promoted_product(operands, FormatId::e4m3fn);
  std::vector<float> scales;
  for (int i = 0; i < 128 * 8; ++i) scales.push_back(0.25F + static_cast<float>(i % 13));
  product.problem.scale_a = {product.keep(scales), 1, 128};
  product.problem.scale_b = {product.keep({scales.begin(), scales.begin() + 8}), 128, 128};
  const Identification tiles = identify(product, golden_output(product));
  REQUIRE(tiles.explained());
  INFO(tiles.sums << " sums over K with scales of tiles, " << tiles.tried << " hypotheses");
  CHECK(tiles.tried > 5000);
  CHECK(tiles.sums < 40 * product.size());
  product.problem.scale_a = product.problem.scale_b = {};
  const std::vector<float> c = random_c(Start::normal, 128 * 128, RandomStream(3, "c"));
  product.problem.c = c.data();
  product.problem.c_enters = CPlacement::promoted_sum;
  const Identification with_c = identify(product, golden_output(product));
  REQUIRE(with_c.explained());
  INFO(with_c.sums << " with C, " << with_c.tried << " hypotheses");
  CHECK(with_c.tried > 5000);
  CHECK(with_c.sums < 65 * product.size());
}

TEST_CASE("identify: sums made of partial sums are those of the product", "[verify][identify]") {
  for (const std::string scales : {"no", "tiles'", "the whole sum's"})
    for (const Start start : {Start::none, Start::extreme}) {
      const Operands operands(find_instruction_model("sm90.wgmma.e4m3"), {9, 7, 240},
                              start == Start::none ? Data::wide : Data::sparse, start, 3);
      Product product = promoted_product(operands, FormatId::f32);
      const std::vector<float> values{1.1F, 0.3F, 7.7F, 1e-3F, 2.9F, 0.7F, 1.0F, 5.3F, 3.1F,
                                      2.2F, 0.9F, 1.7F, 4.4F,  0.1F, 3.3F, 6.1F, 1.3F, 8.8F};
      const auto first = [&](int count) {
        return product.keep({values.begin(), values.begin() + count});
      };
      if (scales == "tiles'") {
        product.problem.scale_a = {first(18), 1, 128};
        product.problem.scale_b = {first(2), 7, 128};
      } else if (scales == "the whole sum's") {
        product.problem.scale_a = {first(9), 1, 0};
        product.problem.scale_b = {first(7), 1, 0};
      }
      const std::vector<NamedAccumulator> accumulators = accumulators_for(product.problem);
      std::size_t compared = 0;
      for (const Accumulation& one : accumulations(product.problem, accumulators)) {
        if (!has_partial_sums(product, accumulators, one)) continue;
        INFO(accumulators[one.accumulator].names.front()
             << ", promotion " << one.promotion_interval << ", order " << to_string(one.scale_order)
             << ", C " << to_string(one.c_enters) << ", K in " << one.split_k << ", " << scales
             << " scales");
        const std::vector<float> got = PartialSums(product, accumulators, one).sums_of(one);
        const std::vector<float> expected = sums_of(product, one, accumulators, 1);
        REQUIRE(got.size() == expected.size());
        CHECK(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)) == 0);
        ++compared;
      }
      CHECK(compared > 100);
    }
}

TEST_CASE("identify: on one thread nothing starts another one", "[verify][identify]") {
  const std::filesystem::path tasks = "/proc/self/task";
  REQUIRE(std::filesystem::exists(tasks));
  const auto count = [&] { return std::distance(std::filesystem::directory_iterator(tasks), {}); };
  const Operands operands = large_operands();
  const Product product = promoted_product(operands, FormatId::e4m3fn);
  const std::vector<std::byte> got = golden_output(product, 1);
  std::ptrdiff_t before = 0;
  std::ptrdiff_t after = 0;
  bool explained = false;
  // A thread of its own has no OpenMP threads yet.
  std::thread caller([&] {
    omp_set_num_threads(3);
    before = count();
    explained = identify(product, got, 1).explained();
    after = count();
  });
  caller.join();
  CHECK(explained);
  CHECK(after == before);
}
