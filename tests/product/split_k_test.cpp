#include "fp8lab/product/split_k.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/product/calls.hpp"
#include "fp8lab/product/execution.hpp"
#include "fp8lab/product/variants.hpp"
#include "message_of.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

/// The sums of the tiles of 64 terms that are named, copied into a product of their own.
std::vector<float> sums_of_tiles(const RandomProduct& random, const std::vector<int>& tiles) {
  const GemmProblem& p = random.product.problem;
  std::vector<std::uint8_t> a;
  std::vector<std::uint8_t> b;
  const auto gather = [&](std::vector<std::uint8_t>& to, const std::vector<std::uint8_t>& from,
                          std::int64_t rows) {
    for (std::int64_t row = 0; row < rows; ++row)
      for (const int tile : tiles)
        for (std::int64_t k = tile * 64; k < std::min<std::int64_t>((tile + 1) * 64, p.a.k); ++k)
          to.push_back(from[static_cast<std::size_t>(row * p.a.k + k)]);
  };
  gather(a, random.a, p.a.rows);
  gather(b, random.b, p.b.rows);
  const auto k = static_cast<std::int64_t>(a.size()) / p.a.rows;
  GemmProblem part = p;
  part.a = CodeMatrix::row_major(p.a.format, a, p.a.rows, k);
  part.b = CodeMatrix::row_major(p.b.format, b, p.b.rows, k);
  std::vector<float> d(random.product.size());
  gemm_reference(part, d);
  return d;
}

std::vector<float> plus(std::vector<float> x, const std::vector<float>& y) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  return x;
}

}  // namespace

TEST_CASE("split-K: the method is that of the data of the first part", "[product]") {
  // BF16 far from 1 is not for 32-bit integers, whatever a plan without the data says.
  for (const auto& [data, expected] :
       {std::pair{Data::normal, "fused words"}, {Data::wide, "fused double"}}) {
    const Operands operands(find_instruction_model("sm80.mma.bf16"), {9, 40, 96}, data, Start::none,
                            5);
    Product product;
    product.problem = operands.problem;
    product.split = {.parts = 2, .tile = 48};
    Execution ran;
    (void)compute_finished(product, false, 1, ran);
    CHECK(ran.method == (current_target() == Target::scalar ? "reference" : expected));
  }
}

TEST_CASE("split-K: the method is that of the first part, whatever the others are", "[product]") {
  const InstructionModel& model = find_instruction_model("sm80.mma.bf16");
  const Operands near(model, {9, 40, 96}, Data::normal, Start::none, 5);
  const Operands far(model, {9, 40, 96}, Data::wide, Start::none, 5);
  for (const bool near_first : {true, false}) {
    std::vector<std::vector<std::uint16_t>> codes(2);
    Product product;
    product.problem = near.problem;
    for (const bool of_a : {true, false}) {
      std::vector<std::uint16_t>& made = codes[of_a ? 0 : 1];
      CodeMatrix& m = of_a ? product.problem.a : product.problem.b;
      for (std::int64_t row = 0; row < m.rows; ++row)
        for (std::int64_t k = 0; k < m.k; ++k) {
          const GemmProblem& from = (k < 48) == near_first ? near.problem : far.problem;
          made.push_back(static_cast<std::uint16_t>(code_at(of_a ? from.a : from.b, row, k)));
        }
      m = {m.format, made.data(), m.rows, m.k, m.k, 1};
    }
    product.split = {.parts = 2, .tile = 48};
    Execution ran;
    (void)compute_finished(product, false, 1, ran);
    INFO("near 1 first: " << near_first);
    CHECK(ran.method == (current_target() == Target::scalar ? "reference"
                         : near_first                       ? "fused words"
                                                            : "fused double"));
  }
}

TEST_CASE("split-K: cut and order as they are named", "[product]") {
  // 8 tiles of 64 terms, the last one short.
  RandomProduct random({.model = "sm100.mma.e4m3"}, {.shape = {6, 5, 500}, .data = Data::wide});
  const auto split = [&](int parts, SplitCut cut, SplitOrder order) {
    Product p = random.product;
    p.split = {.parts = parts, .tile = 64, .cut = cut, .order = order};
    validate_split(p);
    return compute(p);
  };
  const std::vector<float> p0 = sums_of_tiles(random, {0, 4});
  const std::vector<float> p1 = sums_of_tiles(random, {1, 5});
  const std::vector<float> p2 = sums_of_tiles(random, {2, 6});
  const std::vector<float> p3 = sums_of_tiles(random, {3, 7});
  const auto modulo = [&](SplitOrder order) { return split(4, SplitCut::modulo, order); };
  CHECK(modulo(SplitOrder::serial) == plus(plus(plus(p0, p1), p2), p3));
  CHECK(modulo(SplitOrder::pairwise) == plus(plus(p3, plus(p0, p2)), p1));
  CHECK(modulo(SplitOrder::tree) == plus(plus(p0, p1), plus(p2, p3)));
  CHECK(modulo(SplitOrder::serial) != modulo(SplitOrder::tree));
  const std::vector<float> first = sums_of_tiles(random, {0, 1, 2});
  const std::vector<float> second = sums_of_tiles(random, {3, 4, 5});
  const std::vector<float> last = sums_of_tiles(random, {6, 7});
  CHECK(split(3, SplitCut::contiguous, SplitOrder::serial) == plus(plus(first, second), last));
}

TEST_CASE("split-K: pairs are of parts that have tiles", "[product]") {
  // 6 tiles in 5 parts are 2 each in 3 parts: 1 + (2^-24 + 2^-24). Were all 5 paired, it would be
  // (1 + 2^-24) + 2^-24 = 1.
  const std::vector<std::uint16_t> a{0x3380, 0, 0x3f80, 0, 0x3380, 0};  // BF16
  const std::vector<std::uint16_t> b(6, 0x3f80);
  GemmOperands operands;
  operands.a.codes = view_of(ElementType::bf16, {1, 6}, std::span(a));
  operands.b.codes = view_of(ElementType::bf16, {1, 6}, std::span(b));
  Product p = make_product(operands, {.model = "fp32"});
  p.split = {.parts = 5, .tile = 1, .cut = SplitCut::contiguous, .order = SplitOrder::pairwise};
  validate_split(p);
  CHECK(compute(p) == std::vector<float>{0x1.000002p0F});
  p.split.order = SplitOrder::serial;
  CHECK(compute(p) == std::vector<float>{1.0F});
}

TEST_CASE("split-K: scales, C and samples as of a whole sum", "[product]") {
  for (const RandomProduct::Options& options :
       {RandomProduct::Options{.with_c = true},
        RandomProduct::Options{.tiles_a = {24}, .tiles_b = {1}, .with_c = true},
        RandomProduct::Options{.tiles_a = {24, 4}, .tiles_b = {1, 4}, .with_c = true}}) {
    RandomProduct random({.promotion_interval = 128}, options);
    Product p = random.product;
    const std::vector<float> whole = compute(p);
    p.split = {.parts = 2, .tile = 128, .cut = SplitCut::modulo};
    const std::vector<float> parts = compute(p);
    float furthest = 0.0F;
    for (std::size_t i = 0; i < parts.size(); ++i)
      furthest = std::max(furthest, std::abs(parts[i] - whole[i]) / (1.0F + std::abs(whole[i])));
    CHECK(furthest < 1e-3F);
    const std::vector<float> few = compute(take(p, {{3, 11}, {0, 19}}));
    CHECK(few == std::vector<float>{parts[3 * 20], parts[3 * 20 + 19], parts[11 * 20],
                                    parts[11 * 20 + 19]});
    Product contiguous = random.product;
    contiguous.split = {.parts = 2};
    CHECK(compute(contiguous) == *compute_split_k(random.product, 2));
  }
}

TEST_CASE("split-K: what does not fit is refused by name", "[product]") {
  RandomProduct random({.promotion_interval = 128}, {.tiles_a = {24, 4}, .tiles_b = {1, 4}});
  const auto message = [&](const SplitK& split) -> std::string {
    Product p = random.product;
    p.split = split;
    return test::message_of([&] { validate_split(p); }, "");
  };
  CHECK(message({.parts = 4}).empty());
  CHECK(message({.parts = 5}) ==
        "split_k: expected at most 4 parts, one per tile of 128 terms, got 5");
  CHECK(message({.parts = 0}) == "split_k: expected 1 part or more, got 0");
  CHECK(message({.parts = 2, .tile = 64}) ==
        "split_tile: expected a multiple of the promotion interval 128, got 64");
}

TEST_CASE("calls: a name is the options that it stands for", "[product]") {
  for (const LibraryCall& call : library_calls()) {
    INFO(call.name);
    const InstructionModel& model = find_instruction_model(call.model);
    CHECK(call.promotion_interval % model.accumulator.terms == 0);
    CHECK(!call.source.empty());
    CHECK((call.split_tile > 0) == !call.splits.empty());
    GemmOperands operands;
    const bool fp4 = model.a_format == FormatId::e2m1;
    operands.a.codes.type = fp4 ? ElementType::e2m1 : ElementType::e4m3fn;
    operands.b.codes.type = fp4 ? ElementType::e2m1 : ElementType::e5m2;
    const GemmSpec spec = with_call(call, operands, {});
    CHECK(spec.promotion_interval == call.promotion_interval);
    const InstructionModel& mixed = find_instruction_model(spec.model);
    CHECK(element_type_of(mixed.a_format) == operands.a.codes.type);
    CHECK(element_type_of(mixed.b_format) == operands.b.codes.type);
    CHECK(mixed.accumulator == model.accumulator);
  }
  const LibraryCall& fast = find_library_call("cublaslt.h100.fast");
  GemmOperands operands;
  operands.a.codes.type = operands.b.codes.type = ElementType::e4m3fn;
  CHECK(with_call(fast, operands, {}).scale_order == ScaleOrder::product_then_fma);
  operands.a.scales = TensorView{ElementType::f32, {8, 1}, {}, false};
  CHECK(with_call(fast, operands, {}).scale_order == ScaleOrder::b_then_fma_a);
  // One a row in either layout; one for all, or tiles along K, are not.
  const auto order_of = [&](ScaleLayout layout, std::vector<std::int64_t> shape) {
    GemmOperands scaled = operands;
    scaled.a.layout = layout;
    scaled.a.scales = TensorView{ElementType::f32, std::move(shape), {}, false};
    return with_call(fast, scaled, {}).scale_order;
  };
  CHECK(order_of(ScaleLayout::row_major, {8}) == ScaleOrder::b_then_fma_a);
  CHECK(order_of(ScaleLayout::column_major, {8}) == ScaleOrder::b_then_fma_a);
  CHECK(order_of(ScaleLayout::column_major, {1, 8}) == ScaleOrder::b_then_fma_a);
  CHECK(order_of(ScaleLayout::column_major, {8, 2}) == ScaleOrder::product_then_fma);
  CHECK(order_of(ScaleLayout::row_major, {8, 2}) == ScaleOrder::product_then_fma);
  CHECK(order_of(ScaleLayout::row_major, {1}) == ScaleOrder::product_then_fma);
  CHECK(with_call(fast, operands, {.split = {.parts = 2}}).split.tile == 128);
  CHECK_THROWS_WITH(with_call(fast, operands, {.split = {.parts = 2, .cut = SplitCut::modulo}}),
                    "split_k: expected contiguous serial, the known splits of cublaslt.h100.fast, "
                    "got modulo serial");
  operands.a.codes.type = ElementType::e4m3fnuz;
  CHECK_THROWS_AS(with_call(fast, operands, {}), Error);
  CHECK_THROWS_AS(find_library_call("cublaslt"), Error);
}

TEST_CASE("split-K: of any number of tiles and parts, some of which may be none", "[product]") {
  constexpr std::int64_t kTile = 32;
  // Parts are added up as the header says: a list that is summed from its begin.
  const auto in_order = [](const std::vector<std::vector<float>>& parts, SplitOrder order) {
    std::vector<std::vector<float>> list = parts;
    const std::size_t last = parts.size() - 1;
    if (order == SplitOrder::pairwise) {
      list = {parts[last]};
      const std::size_t half = (parts.size() + 1) / 2;
      for (std::size_t i = 0; i < std::min(half, last); ++i)
        list.push_back(i + half < last ? plus(parts[i], parts[i + half]) : parts[i]);
    }
    while (order == SplitOrder::tree && list.size() > 1) {
      std::vector<std::vector<float>> next;
      for (std::size_t i = 0; i < list.size(); i += 2)
        next.push_back(i + 1 < list.size() ? plus(list[i], list[i + 1]) : list[i]);
      list = std::move(next);
    }
    for (std::size_t i = 1; i < list.size(); ++i) list[0] = plus(list[0], list[i]);
    return list[0];
  };
  int empty = 0;
  for (const std::int64_t k : {64, 100, 160}) {
    const RandomProduct random({.model = "sm100.mma.e4m3"},
                               {.shape = {3, 4, k}, .data = Data::wide, .with_c = true});
    const std::int64_t tiles = (k + kTile - 1) / kTile;
    for (const bool scaled : {false, true})
      for (const CPlacement place :
           {CPlacement::unnamed, CPlacement::accumulator, CPlacement::epilogue})
        for (const ScaleOrder scale_order : scale_orders())
          for (const SplitCut cut : {SplitCut::contiguous, SplitCut::modulo})
            for (const SplitOrder order :
                 {SplitOrder::serial, SplitOrder::pairwise, SplitOrder::tree})
              for (std::int64_t parts = 2; parts <= tiles; ++parts) {
                if (!scaled && scale_order != ScaleOrder::product_then_fma) continue;
                const std::vector<float> of_a{1.5F, 0.7F, 3.0F};
                const std::vector<float> of_b{0.3F, 1.1F, 2.5F, 0.9F};
                Product p = random.product;
                if (scaled) p.problem.scale_a = {of_a, 1, 0};
                if (scaled) p.problem.scale_b = {of_b, 1, 0};
                p.problem.scale_order = scale_order;
                p.problem.c_enters = place;
                if (place == CPlacement::unnamed) p.problem.c = nullptr;
                p.split = {
                    .parts = static_cast<int>(parts), .tile = kTile, .cut = cut, .order = order};
                std::vector<std::vector<float>> sums;
                const std::int64_t each = (tiles + parts - 1) / parts;
                for (std::int64_t part = 0; part < parts; ++part) {
                  std::vector<std::vector<std::uint8_t>> codes(2);
                  for (std::int64_t at = 0; at < k; ++at) {
                    const std::int64_t tile = at / kTile;
                    const bool mine =
                        cut == SplitCut::modulo ? tile % parts == part : tile / each == part;
                    if (!mine) continue;
                    for (std::int64_t row = 0; row < 3; ++row)
                      codes[0].push_back(random.a[static_cast<std::size_t>(row * k + at)]);
                    for (std::int64_t row = 0; row < 4; ++row)
                      codes[1].push_back(random.b[static_cast<std::size_t>(row * k + at)]);
                  }
                  const auto terms = static_cast<std::int64_t>(codes[0].size()) / 3;
                  if (terms == 0) {
                    ++empty;
                    continue;
                  }
                  GemmProblem one;
                  one.model = p.problem.model;
                  one.a = {FormatId::e4m3fn, codes[0].data(), 3, terms, 1, 3};
                  one.b = {FormatId::e4m3fn, codes[1].data(), 4, terms, 1, 4};
                  if (part == 0 && place == CPlacement::accumulator) one.c = p.problem.c;
                  std::vector<float> d(12);
                  gemm_reference(one, d);
                  sums.push_back(std::move(d));
                }
                std::vector<float> expected = in_order(sums, order);
                for (std::size_t i = 0; i < 12; ++i) {
                  const float c = place == CPlacement::epilogue ? p.problem.c[i] : 0.0F;
                  if (scaled)
                    expected[i] = scale_into(scale_order, expected[i], of_a[i / 4], of_b[i % 4], c);
                  else if (place == CPlacement::epilogue)
                    expected[i] += c;
                }
                const std::vector<float> got = compute(p, 1);
                if (cast_output(got, {}, 1) == cast_output(expected, {}, 1)) continue;
                INFO("k " << k << ", " << parts << " parts, " << to_string(cut) << ", "
                          << to_string(order) << ", scaled " << scaled << ", C " << to_string(place)
                          << ", " << to_string(scale_order));
                CHECK(got == expected);
              }
  }
  CHECK(empty > 5);
}
