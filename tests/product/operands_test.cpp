// Operands in every order and of every type, as products and groups take them.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/product/calls.hpp"
#include "fp8lab/product/grouped_product.hpp"
#include "fp8lab/product/product.hpp"
#include "fp8lab/product/variants.hpp"
#include "message_of.hpp"
#include "product/ones.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

/// The same elements with the first of two dimensions innermost.
std::vector<std::byte> turned_bytes(std::span<const std::byte> from, std::int64_t rows,
                                    std::int64_t columns, std::size_t width) {
  std::vector<std::byte> to(from.size());
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      std::memcpy(&to[static_cast<std::size_t>(j * rows + i) * width],
                  &from[static_cast<std::size_t>(i * columns + j) * width], width);
  return to;
}

std::vector<std::byte> bits_of(const Product& product) {
  return cast_output(compute(product, 1), {}, 1);
}

}  // namespace

TEST_CASE("product: operands in either order, transposed or not, are the same product",
          "[product]") {
  for (const auto& [model_name, element] : {std::pair{"sm90.wgmma.e4m3", ElementType::e4m3fn},
                                            {"sm90.wgmma.f16", ElementType::f16},
                                            {"sm90.wgmma.tf32", ElementType::f32},
                                            {"exact", ElementType::bf16}}) {
    const std::string model = model_name;
    const ElementType type = element;
    constexpr std::int64_t kM = 3;
    constexpr std::int64_t kN = 5;
    constexpr std::int64_t kK = 32;
    const std::size_t width = element_bytes(type);
    const RandomStream draws(4, "orders");
    std::uint64_t next = 0;
    const auto drawn = [&](std::int64_t count) {
      std::vector<float> values;
      for (std::int64_t i = 0; i < count; ++i)
        values.push_back(static_cast<float>(draws.normal(next++)));
      return cast_output(values, default_output(*format_of(type)), 1);
    };
    const std::vector<std::byte> a = drawn(kM * kK);
    const std::vector<std::byte> b = drawn(kN * kK);
    std::vector<float> c;
    for (std::int64_t i = 0; i < kM * kN; ++i)
      c.push_back(static_cast<float>(draws.normal(next++)));
    const auto c_bytes = std::as_bytes(std::span(std::as_const(c)));
    const std::vector<std::byte> a_turned = turned_bytes(a, kM, kK, width);
    const std::vector<std::byte> b_turned = turned_bytes(b, kN, kK, width);
    const std::vector<std::byte> c_turned = turned_bytes(c_bytes, kM, kN, 4);
    const auto product = [&](bool turn_a, bool turn_b, bool transposed, bool turn_c) {
      GemmOperands operands;
      operands.a.codes = {type, {kM, kK}, turn_a ? a_turned : a, turn_a};
      // [k, n] in row-major order lies as [n, k] does in Fortran's.
      operands.b.transposed = transposed;
      const std::vector<std::int64_t> shape =
          transposed ? std::vector<std::int64_t>{kK, kN} : std::vector<std::int64_t>{kN, kK};
      operands.b.codes = {type, shape, turn_b != transposed ? b_turned : b, turn_b};
      operands.c = TensorView{ElementType::f32, {kM, kN}, c_bytes, false};
      if (turn_c) operands.c = TensorView{ElementType::f32, {kM, kN}, c_turned, true};
      return bits_of(make_product(operands, {.model = model, .c_enters = CPlacement::accumulator}));
    };
    const std::vector<std::byte> plain = product(false, false, false, false);
    for (unsigned choice = 1; choice < 16; ++choice) {
      INFO(model << ", choice " << choice);
      const auto has = [&](unsigned bit) { return (choice >> bit & 1U) != 0; };
      CHECK(product(has(0), has(1), has(2), has(3)) == plain);
    }
  }
}

TEST_CASE("product: each model takes elements of its own formats and of no others", "[product]") {
  using enum ElementType;
  const std::vector<ElementType> all{f64,      f32,      f16,  bf16, e4m3fn, e5m2, e8m0fnu,
                                     e4m3fnuz, e5m2fnuz, e2m1, e2m3, e3m2,   u8,   u16,
                                     u32,      u64,      i8,   i16,  i32,    i64,  boolean};
  const std::vector<std::byte> zeros(4 * 64 * 8);
  const auto tensor = [&](ElementType type) {
    return TensorView{type, {4, 64}, std::span(zeros).first(4 * 64 * element_bytes(type)), false};
  };
  int taken = 0;
  for (const InstructionModel& model : instruction_models()) {
    const bool definition = model.standing == Standing::definition;
    for (const bool of_a : {true, false})
      for (const ElementType type : all) {
        const FormatId wanted = of_a ? model.a_format : model.b_format;
        const auto own = [](FormatId id) {
          return id == FormatId::tf32 ? f32 : element_type_of(id);
        };
        GemmOperands operands;
        operands.a.codes = tensor(of_a ? type : own(model.a_format));
        operands.b.codes = tensor(of_a ? own(model.b_format) : type);
        const std::string said =
            message_of([&] { (void)make_product(operands, {.model = std::string(model.name)}); });
        const std::optional<FormatId> id = format_of(type);
        const bool fits = type == own(wanted) || (definition && id && type != f32);
        INFO(model.name << ", " << (of_a ? "A" : "B") << " of " << to_string(type));
        if (fits && definition) {
          // Which pairs a definition can read is its own matter.
          CHECK_THAT(said, !contains("uint8 codes need"));
          continue;
        }
        if (fits) {
          CHECK(said == "accepted");
          ++taken;
          continue;
        }
        const std::string expected = fmt::format("{}: expected {} for {}", of_a ? "A" : "B",
                                                 format(wanted).name, model.name);
        const std::string got = fmt::format(", got {} [4, 64]", to_string(type));
        const bool fnuz = type == e4m3fnuz || type == e5m2fnuz;
        if (type == u8)
          CHECK(said ==
                expected + "; uint8 codes need their format (`dtype=e4m3fn`, or a sidecar)" + got);
        else if (fnuz)
          CHECK_THAT(said,
                     contains(expected + "; FNUZ codes are AMD's, this one for `model=exact`, "
                                         "fp32 or gfx942.mfma."));
        else if (type == f64 || type == f32 || type == f16 || type == bf16)
          CHECK(said == expected + "; floats need a recipe to quantize them (`recipe`)" + got);
        else
          CHECK(said == expected + got);
      }
  }
  CHECK(taken > 150);
}

TEST_CASE("product: scales keep the format of their tensor", "[product]") {
  const std::vector<std::uint8_t> codes_of_one(8, 127);
  for (const bool of_a : {true, false})
    for (const auto& [type, id] : {std::pair{ElementType::e8m0fnu, FormatId::e8m0fnu},
                                   {ElementType::e4m3fn, FormatId::e4m3fn}}) {
      GemmOperands operands;
      operands.a.codes = operands.b.codes = codes({4, 64});
      const TensorView scales = view_of(type, {4, 2}, std::span(codes_of_one));
      (of_a ? operands.a.scales : operands.b.scales) = scales;
      (of_a ? operands.a.tiles : operands.b.tiles) = ScaleTiles{1, 32};
      const Product product =
          make_product(operands, {.model = "sm90.wgmma.e4m3", .promotion_interval = 32});
      const GemmProblem& p = product.problem;
      INFO(to_string(type) << " of A " << of_a);
      CHECK((of_a ? p.scale_a : p.scale_b).format == id);
      CHECK((of_a ? p.scale_b : p.scale_a).empty());
    }
}

TEST_CASE("product: of an unknown model, it is the exact one's with every part around it",
          "[product]") {
  const std::vector<float> values = [] {
    std::vector<float> made;
    const RandomStream draws(6, "unknown");
    for (std::uint64_t i = 0; i < 6 * 128; ++i) made.push_back(static_cast<float>(draws.normal(i)));
    return made;
  }();
  const auto floats_of = [&](std::vector<std::int64_t> shape) {
    const auto count = static_cast<std::size_t>(element_count(shape, "floats"));
    return view_of(ElementType::f32, std::move(shape), std::span(values).first(count));
  };
  for (const char* recipe : {"te-current", "torchao-rowwise", ""})
    for (unsigned parts = 0; parts < 64; ++parts) {
      const auto has = [&](unsigned bit) { return (parts >> bit & 1U) != 0; };
      const bool tf32 = std::string(recipe).empty();
      GemmOperands operands;
      operands.a.codes = floats_of({3, 128});
      operands.b.codes = has(0) ? floats_of({128, 4}) : floats_of({4, 128});
      operands.b.transposed = has(0);
      operands.recipe = recipe;
      EpilogueSpec epilogue;
      if (has(1)) epilogue.alpha = 0.3F;
      if (has(2)) epilogue.activation = Activation::leaky_relu;
      if (has(2)) epilogue.slope = 0.7F;
      if (has(3)) operands.bias = floats_of({4});
      if (has(4)) operands.c = floats_of({3, 4});
      if (has(4)) epilogue.beta = -2.0F;
      if (has(5)) epilogue.output_scale = 5.0F;
      if (has(5)) operands.row_scales = floats_of({3});
      const OutputCast output = default_output(has(5) ? FormatId::e4m3fn : FormatId::f32);
      const Product unknown = make_product_of_unknown_model(operands, output, epilogue);
      const Product exact = make_product(
          operands,
          {.model = tf32 ? "sm90.wgmma.tf32" : "exact", .output = output, .epilogue = epilogue});
      INFO(recipe << ", parts " << parts);
      CHECK(unknown.model == (tf32 ? "sm90.wgmma.tf32" : "exact"));
      CHECK(unknown.problem.a.format == (tf32 ? FormatId::tf32 : FormatId::e4m3fn));
      Product expected = exact;
      expected.problem.model = find_instruction_model("exact").accumulator;
      CHECK(golden_output(unknown, 1) == golden_output(expected, 1));
    }
}

TEST_CASE("product: recipes give both formats that an instruction reads", "[product]") {
  const auto said = [](const char* model, const char* recipe) {
    GemmOperands operands;
    operands.a.codes = operands.b.codes = real({4, 128});
    operands.recipe = recipe;
    return message_of([&] { (void)make_product(operands, {.model = model}); });
  };
  CHECK(said("sm90.wgmma.e4m3", "te-current") == "accepted");
  CHECK(said("exact", "te-current") == "accepted");
  for (const auto& [model, formats] : {std::pair{"sm90.wgmma.e5m2", "e5m2 and e5m2"},
                                       {"sm90.wgmma.e4m3.e5m2", "e4m3fn and e5m2"},
                                       {"sm90.wgmma.e5m2.e4m3", "e5m2 and e4m3fn"}})
    CHECK(said(model, "te-current") ==
          fmt::format("recipe: expected a recipe that gives {}, for {}, got e4m3fn and e4m3fn from "
                      "te-current",
                      formats, model));
}

TEST_CASE("groups: operands in Fortran order are copied and kept", "[product]") {
  const RandomProduct random({}, {.shape = {6, 10, 64}});
  const auto bytes = [](const auto& values) { return std::as_bytes(std::span(values)); };
  std::vector<float> around;
  for (int i = 0; i < 60; ++i) around.push_back(0.25F * static_cast<float>(i % 9) - 1.0F);
  const auto made = [&](bool fortran) {
    GemmOperands all;
    const std::vector<std::byte> a = turned_bytes(bytes(random.a), 6, 64, 1);
    // [2, 5, 64]: the first dimension is the innermost.
    std::vector<std::byte> b(random.b.size());
    for (std::size_t g = 0; g < 2; ++g)
      for (std::size_t n = 0; n < 5; ++n)
        for (std::size_t k = 0; k < 64; ++k)
          b[g + 2 * n + 10 * k] = static_cast<std::byte>(random.b[(g * 5 + n) * 64 + k]);
    const std::vector<std::byte> c = turned_bytes(bytes(around).first(6 * 5 * 4), 6, 5, 4);
    const std::vector<std::byte> bias = turned_bytes(bytes(around).first(2 * 5 * 4), 2, 5, 4);
    const auto pick = [&](const std::vector<std::byte>& turned, std::span<const std::byte> plain) {
      return fortran ? std::span<const std::byte>(turned) : plain;
    };
    all.a.codes = {ElementType::e4m3fn, {6, 64}, pick(a, bytes(random.a)), fortran};
    all.b.codes = {ElementType::e4m3fn, {2, 5, 64}, pick(b, bytes(random.b)), fortran};
    all.c = TensorView{ElementType::f32, {6, 5}, pick(c, bytes(around).first(120)), fortran};
    all.bias = TensorView{ElementType::f32, {2, 5}, pick(bias, bytes(around).first(40)), fortran};
    return make_grouped_product(all,
                                {.model = "sm90.wgmma.e4m3", .c_enters = CPlacement::accumulator},
                                {GroupKind::row_ends, {2, 6}, 0});
  };
  const GroupedProduct turned = made(true);
  // What was not kept is written over now.
  std::vector<std::vector<std::byte>> other;
  for (int i = 0; i < 64; ++i)
    for (const std::size_t size : {384U, 640U, 120U, 40U, 160U, 64U})
      other.emplace_back(size, std::byte{0x35});
  const std::vector<float> plain = compute(made(false), 1);
  CHECK(compute(turned, 1) == plain);
  CHECK(other.back().back() == std::byte{0x35});
}

TEST_CASE("groups: none, and too many parts of K, are said", "[product]") {
  GemmOperands all;
  all.a.codes = codes({5, 64});
  all.b.codes = codes({0, 4, 64});
  for (const GroupKind kind : {GroupKind::row_ends, GroupKind::row_indices}) {
    const GroupedProduct none =
        make_grouped_product(all, {.model = "sm90.wgmma.e4m3"},
                             {kind,
                              kind == GroupKind::row_ends ? std::vector<std::int64_t>{}
                                                          : std::vector<std::int64_t>(5, -1),
                              0});
    INFO(to_string(kind));
    CHECK(none.parts.empty());
    CHECK(none.rest.empty());
    CHECK(none.shape == std::vector<std::int64_t>{5, 4});
    CHECK(compute(none) == std::vector<float>(20));
  }
  all.a.codes = codes({5, 80});
  all.b.codes = codes({4, 80});
  for (const auto& [parts, said] :
       {std::pair{2, "accepted"},
        {3, "group 1: split_k: expected at most 2 parts, one per tile of 16 terms, got 3"},
        {6, "group 0: split_k: expected at most 3 parts, one per tile of 16 terms, got 6"}}) {
    GemmSpec spec{.model = "sm90.wgmma.e4m3"};
    spec.split = {.parts = parts, .tile = 16};
    CHECK(message_of([&] {
            (void)make_grouped_product(all, spec, {GroupKind::k_ends, {48, 80}, 0});
          }) == said);
  }
}

TEST_CASE("product: every part of an epilogue is taken as it is given, or refused by its name",
          "[product]") {
  GemmOperands operands;
  operands.a.codes = codes({3, 32});
  operands.b.codes = codes({4, 32});
  const auto said = [](const GemmOperands& of, const GemmSpec& spec) {
    return message_of([&] { (void)make_product(of, spec); });
  };
  GemmSpec spec{.model = "sm90.wgmma.e4m3"};
  spec.output = default_output(FormatId::e5m2);
  spec.epilogue = {.alpha = 0.25F,
                   .beta = -3.0F,
                   .activation = Activation::silu,
                   .slope = 0.125F,
                   .activation_ulps = 7.0F,
                   .output_scale = 1.5F};
  spec.split = {.parts = 2, .tile = 16};
  spec.scale_order = ScaleOrder::b_then_fma_a;
  operands.c = real({3, 4});
  const Product product = make_product(operands, spec);
  const Epilogue& e = product.epilogue;
  CHECK((e.alpha == 0.25F && e.beta == -3.0F && e.slope == 0.125F && e.activation_ulps == 7.0F));
  CHECK((e.activation == Activation::silu && e.output_scale == 1.5F));
  CHECK((e.c != nullptr && product.problem.c == nullptr));
  CHECK((product.split == spec.split && product.output.format == FormatId::e5m2));
  CHECK(product.problem.scale_order == ScaleOrder::b_then_fma_a);
  for (const CPlacement place :
       {CPlacement::accumulator, CPlacement::promoted_sum, CPlacement::epilogue}) {
    GemmSpec placed = spec;
    placed.c_enters = place;
    CHECK(said(operands, placed) ==
          fmt::format("c_enters: expected no value with beta, which adds C after alpha and bias, "
                      "got {}",
                      to_string(place)));
  }
  operands.c.reset();
  CHECK(said(operands, spec) == "beta: expected a C, which it multiplies, got none");
  const std::vector<double> inexact(12, 0.1);
  GemmOperands other = operands;
  other.c = view_of(ElementType::f64, {3, 4}, std::span(inexact));
  CHECK_THAT(said(other, {.model = "sm90.wgmma.e4m3"}), contains("C: "));
  other.c = codes({3, 4}, ElementType::u8);
  CHECK(said(other, {.model = "sm90.wgmma.e4m3"}) ==
        "C: expected floats [m, n] = [3, 4], got u8 [3, 4]");
  other.c = real({4, 3});
  CHECK(said(other, {.model = "sm90.wgmma.e4m3"}) ==
        "C: expected floats [m, n] = [3, 4], got f32 [4, 3]");
  for (const auto& [name, shapes, count] : {std::tuple{"bias", "[4] or [1, 4]", std::int64_t{4}},
                                            {"column_scales", "[4] or [1, 4]", std::int64_t{4}},
                                            {"row_scales", "[3] or [3, 1]", std::int64_t{3}}})
    for (const ElementType type :
         {ElementType::u8, ElementType::e4m3fn, ElementType::e8m0fnu, ElementType::i8}) {
      other = operands;
      const std::string part = name;
      (part == "bias"         ? other.bias
       : part == "row_scales" ? other.row_scales
                              : other.column_scales) = codes({count}, type);
      CHECK(
          said(other, {.model = "sm90.wgmma.e4m3"}) ==
          fmt::format("{}: expected floats {}, got {} [{}]", name, shapes, to_string(type), count));
    }
  constexpr float infinite = std::numeric_limits<float>::infinity();
  const auto with = [&](const auto& change) {
    GemmSpec changed{.model = "sm90.wgmma.e4m3"};
    change(changed.epilogue);
    return said(operands, changed);
  };
  CHECK(with([&](EpilogueSpec& s) { s.alpha = infinite; }) ==
        "alpha: expected a finite number, got inf");
  CHECK(with([&](EpilogueSpec& s) { s.slope = -infinite; }) ==
        "slope: expected a finite number, got -inf");
  CHECK(with([&](EpilogueSpec& s) { s.output_scale = infinite; }) ==
        "output_scale: expected a finite number, got inf");
  CHECK(with([&](EpilogueSpec& s) { s.activation_ulps = -0.5F; }) ==
        "activation_ulps: expected 0 to 2^20, got -0.5");
  CHECK(with([&](EpilogueSpec& s) { s.activation_ulps = 1048576.0F; }) == "accepted");
  CHECK(with([&](EpilogueSpec& s) { s.activation_ulps = 1048576.125F; }) ==
        "activation_ulps: expected 0 to 2^20, got 1048576.1");
  other = operands;
  other.c = real({3, 4});
  GemmSpec endless{.model = "sm90.wgmma.e4m3"};
  endless.epilogue.beta = infinite;
  CHECK(said(other, endless) == "beta: expected a finite number, got inf");
  // 32 ones everywhere: 448 / 32.
  GemmSpec amax{.model = "sm90.wgmma.e4m3"};
  amax.output = default_output(FormatId::e4m3fn);
  amax.epilogue.scale_by_amax = true;
  CHECK(make_product(operands, amax).epilogue.output_scale == 14.0F);
  amax.split = {.parts = 2, .tile = 16};
  CHECK(make_product(operands, amax).epilogue.output_scale == 14.0F);
}

TEST_CASE("groups: scales of each keep the format and the layout of their tensor", "[product]") {
  const std::vector<std::uint8_t> codes_of_scales(1024, 127);
  const auto stored = [&](ElementType type, std::vector<std::int64_t> shape) {
    const auto count = static_cast<std::size_t>(element_count(shape, "scales"));
    return view_of(type, std::move(shape), std::span(codes_of_scales).first(count));
  };
  for (const auto& [type, id] : {std::pair{ElementType::e8m0fnu, FormatId::e8m0fnu},
                                 {ElementType::e4m3fn, FormatId::e4m3fn}})
    for (const bool along_k : {false, true}) {
      GemmOperands all;
      all.a.codes = codes({6, 128});
      all.b.codes = along_k ? codes({4, 128}) : codes({2, 4, 128});
      all.a.tiles = all.b.tiles = ScaleTiles{1, 32};
      all.a.scales = stored(type, {6, 4});
      all.b.scales = along_k ? stored(type, {4, 4}) : stored(type, {2, 4, 4});
      const Groups groups = along_k ? Groups{GroupKind::k_ends, {32, 128}, 0}
                                    : Groups{GroupKind::row_ends, {2, 6}, 0};
      const GroupedProduct made =
          make_grouped_product(all, {.model = "sm90.wgmma.e4m3", .promotion_interval = 32}, groups);
      INFO(to_string(type) << ", along K " << along_k);
      for (const GroupProduct& part : made.parts) {
        CHECK(part.product.problem.scale_a.format == id);
        CHECK(part.product.problem.scale_b.format == id);
      }
      CHECK(made.whole.has_value() == along_k);
      if (made.whole) CHECK(made.whole->problem.scale_a.format == id);
    }
  // One word of four tiles, of one group with one row, is no scale of everything.
  const std::vector<std::uint32_t> word{0x81807f7e};
  GemmOperands one;
  one.a.codes = codes({1, 1, 512});
  one.b.codes = codes({1, 3, 512});
  one.a.scales = view_of(ElementType::u32, {1, 1, 1}, std::span(word));
  one.a.layout = ScaleLayout::packed_ue8m0;
  const GroupedProduct packed = make_grouped_product(
      one, {.model = "sm90.wgmma.e4m3", .promotion_interval = 128}, {GroupKind::batched, {}, 0});
  CHECK(compute(packed) == std::vector<float>(3, 128.0F * (0.5F + 1.0F + 2.0F + 4.0F)));
  // Codes of a blocked layout are a grid over all rows, as many as there are groups too.
  GemmOperands blocked;
  blocked.a.codes = codes({6, 128});
  blocked.b.codes = codes({2, 4, 128});
  blocked.a.scales = stored(ElementType::e8m0fnu, {512, 1, 1});
  blocked.a.layout = ScaleLayout::blocked_128x4;
  const GroupedProduct grid =
      make_grouped_product(blocked, {.model = "sm90.wgmma.e4m3", .promotion_interval = 32},
                           {GroupKind::row_ends, {2, 6}, 0});
  CHECK(compute(grid) == std::vector<float>(24, 128.0F));
  constexpr std::int64_t kMany = 512;
  std::vector<std::int64_t> ends;
  for (std::int64_t g = 0; g < kMany; ++g) ends.push_back(std::min<std::int64_t>(g + 1, 16));
  const std::vector<std::uint8_t> many(kMany * 32, 0x38);
  blocked.a.codes = codes({16, 32});
  blocked.b.codes = view_of(ElementType::e4m3fn, {kMany, 1, 32}, std::span(many));
  CHECK(compute(make_grouped_product(blocked, {.model = "sm90.wgmma.e4m3"},
                                     {GroupKind::row_ends, ends, 0})) ==
        std::vector<float>(16, 32.0F));
}

TEST_CASE("groups: ends have one leading 0 too many, or other numbers of values", "[product]") {
  const auto said = [](std::vector<std::int64_t> values) {
    return message_of([&] { (void)parts_of({GroupKind::row_ends, std::move(values), 0}, 8, 2); });
  };
  CHECK(said({0, 4, 8}) ==
        "row_ends: expected one value for each of 2 groups (ends: leave out the leading 0), got 3");
  CHECK(said({0, 0, 4, 8}) == "row_ends: expected one value for each of 2 groups, got 4");
  CHECK(said({}) == "row_ends: expected one value for each of 2 groups, got 0");
  CHECK(said({0}) == "row_ends: expected one value for each of 2 groups, got 1");
}

TEST_CASE("calls: floats count as E4M3, and packed or blocked scales are none of rows",
          "[product]") {
  const LibraryCall& call = find_library_call("cublaslt.h100.fast");
  using enum ElementType;
  for (const ElementType type : {f32, f16, bf16, f64, e4m3fn})
    for (const ElementType other : {f32, bf16, e4m3fn}) {
      INFO(to_string(type) << " and " << to_string(other));
      CHECK(model_of(call, type, other) == "sm90.wgmma.e4m3");
    }
  CHECK(model_of(call, e5m2, bf16) == "sm90.wgmma.e5m2.e4m3");
  CHECK(model_of(call, bf16, e5m2) == "sm90.wgmma.e4m3.e5m2");
  for (const ScaleLayout layout : scale_layouts()) {
    GemmOperands operands;
    operands.a.codes = operands.b.codes = codes({8, 64});
    operands.b.scales = real({8, 1});
    operands.b.layout = layout;
    INFO(to_string(layout));
    CHECK(with_call(call, operands, {}).scale_order == (layout == ScaleLayout::row_major
                                                            ? ScaleOrder::b_then_fma_a
                                                            : ScaleOrder::product_then_fma));
  }
}

TEST_CASE("a call in a table: what is not split has no tile", "[product]") {
  const std::string text =
      "# fp8lab cublaslt 2\n# model: sm90.wgmma.e4m3\nm,n,k,a,b,output,accumulation,outputs,"
      "fitting,interval,parts,tile,cut,order,scale_order,rounding\n"
      "8,4,64,e4m3fn,e4m3fn,f32,fast,32,1,0,1,64,modulo,tree,b_then_fma_a,once\n"
      "8,4,64,e4m3fn,e4m3fn,f32,slow,32,1,32,2,32,modulo,tree,b_then_fma_a,once\n";
  const CallTable table = parse_call_table(text, "t.csv");
  GemmOperands operands;
  operands.a.codes = codes({8, 64});
  operands.b.codes = codes({4, 64});
  const GemmSpec fast = with_call(table, parse_table_call("t.csv:fast"), operands, {});
  CHECK(fast.split == SplitK{});
  CHECK((fast.promotion_interval == 0 && fast.scale_order == ScaleOrder::b_then_fma_a));
  const GemmSpec slow = with_call(table, parse_table_call("t.csv:slow"), operands, {});
  CHECK(slow.split ==
        SplitK{.parts = 2, .tile = 32, .cut = SplitCut::modulo, .order = SplitOrder::tree});
  CHECK((slow.promotion_interval == 32 && slow.model == "sm90.wgmma.e4m3"));
}

TEST_CASE("variants: subnormal codes of either operand are flushed, and of no other code",
          "[product]") {
  for (const bool in_a : {false, true})
    for (const bool in_b : {false, true}) {
      std::vector<std::uint8_t> a(2 * 32, 0x08);  // the smallest normal number
      std::vector<std::uint8_t> b(3 * 32, 0x88);
      if (in_a) a[40] = 0x07;
      if (in_b) b[50] = 0x81;
      Product product;
      product.model = "sm90.wgmma.e4m3";
      product.problem.model = find_instruction_model(product.model).accumulator;
      product.problem.a = {FormatId::e4m3fn, a.data(), 2, 32, 32, 1};
      product.problem.b = {FormatId::e4m3fn, b.data(), 3, 32, 32, 1};
      const std::optional<Product> flushed = with_flushed_inputs(product);
      INFO("of A " << in_a << ", of B " << in_b);
      CHECK(flushed.has_value() == (in_a || in_b));
      if (!flushed) continue;
      for (std::int64_t k = 0; k < 32; ++k) {
        for (std::int64_t row = 0; row < 2; ++row)
          CHECK(code_at(flushed->problem.a, row, k) == (in_a && row == 1 && k == 8 ? 0U : 0x08U));
        for (std::int64_t row = 0; row < 3; ++row)
          CHECK(code_at(flushed->problem.b, row, k) == (in_b && row == 1 && k == 18 ? 0U : 0x88U));
      }
    }
}
