#include "fp8lab/linear/linear.hpp"

#include <bit>
#include <cmath>
#include <set>
#include <vector>

#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/linear/products.hpp"
#include "fp8lab/scaling/presets.hpp"
#include "train/same_bits.hpp"

using namespace fp8lab;
using namespace fp8lab::train;

namespace {

Matrix<float> normal_matrix(std::string_view name, std::int64_t rows, std::int64_t columns,
                            double sigma = 1.0) {
  const RandomStream random(5, name);
  Matrix<float> x(rows, columns);
  for (std::size_t i = 0; i < x.values.size(); ++i)
    x.values[i] = static_cast<float>(sigma * random.normal(i));
  return x;
}

struct LayerRun {
  Matrix<float> y;
  Matrix<float> dx;
  std::vector<float> dw;
};

struct Case {
  Matrix<float> x = normal_matrix("x", 128, 256);
  Matrix<float> w = normal_matrix("w", 128, 256, 0.06);
  Matrix<float> dy = normal_matrix("dy", 128, 128, 1e-3);
};

LayerRun run(const LinearRecipe& recipe, const Case& c, const PassContext& context = {}) {
  Linear<float> layer("layer", c.w.columns, c.w.rows, recipe);
  layer.weight().value = c.w.values;
  LayerRun r;
  r.y = layer.forward(c.x, context);
  r.dx = layer.backward(c.dy, context);
  r.dw = layer.weight().gradient;
  return r;
}

FloatMatrix view(const Matrix<float>& x) { return {x.values, x.rows, x.columns}; }

Matrix<float> turned(const Matrix<float>& x) {
  Matrix<float> t(x.columns, x.rows);
  t.values = transpose(view(x));
  return t;
}

void round_outputs(std::vector<float>& d) {
  for (float& v : d) v = static_cast<float>(round_trip(format(FormatId::bf16), kNvidiaNosat, v));
}

/// One product as the recipe defines it, spelled out with the scalar reference.
std::vector<float> product(const GemmSettings& settings, const Recipe& a_recipe,
                           const Matrix<float>& a, const Recipe& b_recipe, const Matrix<float>& b,
                           bool bf16_output) {
  const QuantizedTensor qa = quantize(a_recipe, view(a));
  const QuantizedTensor qb = quantize(b_recipe, view(b));
  GemmProblem problem;
  problem.model = settings.accumulator;
  problem.a = qa.matrix();
  problem.b = qb.matrix();
  problem.scale_a = qa.inverse();
  problem.scale_b = qb.inverse();
  problem.promotion_interval = settings.promotion_interval;
  problem.scale_order = settings.scale_order;
  std::vector<float> d(static_cast<std::size_t>(a.rows * b.rows));
  gemm_reference(problem, d);
  if (bf16_output) round_outputs(d);
  return d;
}

std::vector<std::uint16_t> bf16_codes(const Matrix<float>& x) {
  std::vector<std::uint16_t> codes;
  for (const float v : x.values)
    codes.push_back(static_cast<std::uint16_t>(encode(format(FormatId::bf16), kNvidiaNosat, v)));
  return codes;
}

double relative_l2(const std::vector<float>& got, const std::vector<float>& expected) {
  double error = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    error += std::pow(static_cast<double>(got[i]) - static_cast<double>(expected[i]), 2.0);
    norm += std::pow(static_cast<double>(expected[i]), 2.0);
  }
  return std::sqrt(error / norm);
}

}  // namespace

TEST_CASE("linear layer: three products, each cast along its own summed dimension", "[train]") {
  const std::string name =
      GENERATE("te-current", "te-blockwise", "te-mxfp8", "torchao-rowwise", "deepseek-v3", "naive");
  const LinearRecipe recipe = find_linear_recipe(name);
  const Case c;
  const LayerRun got = run(recipe, c);
  INFO(name);
  CHECK(same_bits(got.y.values,
                  product(recipe.forward, recipe.activation, c.x, recipe.weight, c.w, true)));
  CHECK(same_bits(got.dx.values,
                  product(recipe.dgrad, recipe.gradient, c.dy, recipe.weight, turned(c.w), true)));
  CHECK(same_bits(got.dw, product(recipe.wgrad, recipe.gradient, turned(c.dy), recipe.activation,
                                  turned(c.x), false)));
}

TEST_CASE("linear layer: wgrad in high precision takes the original tensors", "[train]") {
  const Case c;
  const LayerRun fp8 = run(find_linear_recipe("torchao-rowwise"), c);
  const LayerRun mixed = run(find_linear_recipe("torchao-rowwise-hp-wgrad"), c);
  const LayerRun bf16 = run(find_linear_recipe("bf16"), c);
  CHECK(same_bits(mixed.y.values, fp8.y.values));
  CHECK(same_bits(mixed.dw, bf16.dw));
  CHECK(!same_bits(mixed.dw, fp8.dw));
}

TEST_CASE("linear layer: an operand may be cast otherwise in its second product", "[train]") {
  LinearRecipe recipe = find_linear_recipe("torchao-rowwise-hp-wgrad");
  REQUIRE(recipe.weight_for_dgrad.has_value());
  CHECK(recipe.weight_for_dgrad->row_block == 0);  // one scale, where fprop has one a row
  recipe.wgrad = recipe.dgrad;
  recipe.activation_for_wgrad = recipe.activation;
  recipe.activation_for_wgrad->format = FormatId::e5m2;
  recipe.gradient_for_wgrad = recipe.weight_for_dgrad;
  Case c;
  // Powers of two as scales show only where small weights are lost: those of one input channel.
  for (std::int64_t r = 0; r < c.w.rows; ++r) c.w.row(r)[7] *= 0x1p-14F;
  const LayerRun got = run(recipe, c);
  CHECK(same_bits(got.y.values,
                  product(recipe.forward, recipe.activation, c.x, recipe.weight, c.w, true)));
  CHECK(same_bits(got.dx.values, product(recipe.dgrad, recipe.gradient, c.dy,
                                         *recipe.weight_for_dgrad, turned(c.w), true)));
  CHECK(!same_bits(got.dx.values,
                   product(recipe.dgrad, recipe.gradient, c.dy, recipe.weight, turned(c.w), true)));
  CHECK(same_bits(got.dw, product(recipe.wgrad, *recipe.gradient_for_wgrad, turned(c.dy),
                                  *recipe.activation_for_wgrad, turned(c.x), false)));
}

TEST_CASE("linear layer: BF16 operands, sums of the accumulator", "[train]") {
  const Case c;
  const std::string model = GENERATE("fp32", "sm90.wgmma.bf16");
  LinearRecipe recipe = bf16_recipe();
  for (GemmSettings* s : {&recipe.forward, &recipe.dgrad, &recipe.wgrad})
    s->accumulator = find_instruction_model(model).accumulator;
  const LayerRun got = run(recipe, c);
  const auto expected = [&](const Matrix<float>& a, const Matrix<float>& b, bool round) {
    const auto a_codes = bf16_codes(a);
    const auto b_codes = bf16_codes(b);
    GemmProblem problem;
    problem.model = recipe.forward.accumulator;
    problem.a = {FormatId::bf16, a_codes.data(), a.rows, a.columns, a.columns, 1};
    problem.b = {FormatId::bf16, b_codes.data(), b.rows, b.columns, b.columns, 1};
    std::vector<float> d(static_cast<std::size_t>(a.rows * b.rows));
    gemm_reference(problem, d);
    if (round) round_outputs(d);
    return d;
  };
  INFO(model);
  CHECK(same_bits(got.y.values, expected(c.x, c.w, true)));
  CHECK(same_bits(got.dx.values, expected(c.dy, turned(c.w), true)));
  CHECK(same_bits(got.dw, expected(turned(c.dy), turned(c.x), false)));
}

TEST_CASE("linear layer: every preset runs, nearer to FP32 than no product at all", "[train]") {
  const Case c;
  const LayerRun exact = run(fp32_recipe(), c);
  for (const Preset& preset : presets()) {
    if (preset.activation.source == ScaleSource::calibration ||
        preset.activation.source == ScaleSource::momentum)
      continue;
    const LinearRecipe recipe = find_linear_recipe(preset.name);
    const LayerRun got = run(recipe, c);
    INFO(preset.name);
    // E2M1 has one bit of mantissa.
    const double near = recipe.activation.format == FormatId::e2m1 ? 0.3 : 0.1;
    CHECK(relative_l2(got.y.values, exact.y.values) < near);
    // Without a scale E4M3 gradients of 1e-3 are below half its smallest number or next to it.
    const double bound = preset.name == "naive" || preset.name == "te-delayed" ? 1.01 : near;
    CHECK(relative_l2(got.dx.values, exact.dx.values) < bound);
    CHECK(relative_l2(got.dw, exact.dw) < bound);
  }
}

TEST_CASE("linear layer: accumulator and promotion are those of each product", "[train]") {
  const Case c;
  LinearRecipe recipe = find_linear_recipe("te-current");
  const LayerRun before = run(recipe, c);
  recipe.dgrad.promotion_interval = 0;
  const LayerRun dgrad = run(recipe, c);
  CHECK(same_bits(dgrad.y.values, before.y.values));
  CHECK(same_bits(dgrad.dw, before.dw));
  // K = 128 in dgrad: one promotion of the whole sum, the same bits. In forward K = 256.
  CHECK(same_bits(dgrad.dx.values, before.dx.values));
  recipe.forward.promotion_interval = 128;
  CHECK(!same_bits(run(recipe, c).y.values, before.y.values));
  recipe.wgrad.accumulator.alignment_fraction_bits = 8;
  recipe.wgrad.accumulator.output_fraction_bits = 8;
  CHECK(!same_bits(run(recipe, c).dw, before.dw));
}

TEST_CASE("linear recipe: hardware changes the accumulators alone", "[train]") {
  const LinearRecipe recipe = find_linear_recipe("torchao-rowwise-hp-wgrad");
  const auto model = [](const char* name) { return find_instruction_model(name).accumulator; };
  const LinearRecipe ada = on_hardware(recipe, "sm89");
  CHECK(ada.forward.accumulator == model("sm89.mma.e4m3"));
  CHECK(ada.dgrad.accumulator == ada.forward.accumulator);
  CHECK(ada.dgrad.promotion_interval == recipe.dgrad.promotion_interval);
  CHECK(ada.wgrad.accumulator == model("sm89.mma.bf16"));
  CHECK(recipe.wgrad.accumulator == model("fp32"));
  CHECK(on_hardware(recipe, "sm90").forward.accumulator == recipe.forward.accumulator);
  CHECK(on_hardware(recipe, "exact").forward.accumulator == model("exact"));
  CHECK_THROWS_WITH(on_hardware(recipe, "sm9"), contains("'sm9'"));
  LinearRecipe odd = recipe;
  odd.dgrad.promotion_interval = 48;
  CHECK_THROWS_WITH(on_hardware(odd, "sm90"),
                    contains("promotion interval of 48") && contains("'sm90' with 32 terms"));
  CHECK(find_arithmetic("bf16") == Arithmetic::bf16);
  CHECK_THROWS_WITH(find_arithmetic("fp4"), contains("arithmetic: expected"));
}

TEST_CASE("linear recipe: a model named as hardware is for the products of its inputs", "[train]") {
  const auto model = [](const char* name) { return find_instruction_model(name).accumulator; };
  const LinearRecipe mixed = find_linear_recipe("torchao-rowwise-hp-wgrad");
  for (const char* name : {"sm90.wgmma.bf16", "sm80.mma.bf16:F=20"}) {
    const LinearRecipe bf16 = on_hardware(mixed, name);
    CHECK(bf16.forward.accumulator == mixed.forward.accumulator);
    CHECK(bf16.dgrad.accumulator == mixed.dgrad.accumulator);
    CHECK(bf16.wgrad.accumulator == model(name));
  }
  for (const char* name : {"sm89.mma.e4m3", "exact", "fused:F=14"}) {
    CHECK(on_hardware(mixed, name).forward.accumulator == model(name));
    CHECK(on_hardware(mixed, name).wgrad.accumulator == mixed.wgrad.accumulator);
  }
  // The baseline as a chip computes it, or by definition; without hardware, FP32 additions.
  const LinearRecipe bf16 = bf16_recipe();
  for (const auto& [hardware, name] :
       std::initializer_list<std::pair<const char*, const char*>>{{"sm89", "sm89.mma.bf16"},
                                                                  {"sm90", "sm90.wgmma.bf16"},
                                                                  {"sm100", "sm100.tcgen05.bf16"},
                                                                  {"sm120", "sm120.mma.bf16"},
                                                                  {"exact", "exact"}}) {
    const LinearRecipe there = on_hardware(bf16, hardware);
    for (const GemmSettings* product : {&there.forward, &there.dgrad, &there.wgrad})
      CHECK(product->accumulator == model(name));
  }
  // What moves nothing is refused; FP32 has nothing to move.
  CHECK_THROWS_WITH(
      on_hardware(bf16, "sm90.wgmma.e4m3"),
      contains("hardware: expected a model of BF16 operands") && contains("'sm90.wgmma.e4m3'"));
  CHECK_THROWS_WITH(on_hardware(find_linear_recipe("te-current"), "sm90.wgmma.bf16"),
                    contains("hardware: expected a model of FP8 operands"));
  CHECK(on_hardware(fp32_recipe(), "sm90.wgmma.bf16").forward.arithmetic == Arithmetic::fp32);
  CHECK_THROWS_WITH(on_hardware(fp32_recipe(), "sm9"), contains("'sm9'"));
  CHECK_THROWS_WITH(on_hardware(bf16.forward, bf16.activation, "sm100.tcgen05.mxf4nvf4"),
                    contains("hardware: expected a model that takes BF16"));
  LinearRecipe plain = mixed;
  set_bf16_accumulator(plain, "exact");
  CHECK(plain.forward.accumulator == mixed.forward.accumulator);
  CHECK(plain.wgrad.accumulator == model("exact"));
}

TEST_CASE("linear recipes of one model move to hardware together", "[train]") {
  const auto model = [](const char* name) { return find_instruction_model(name).accumulator; };
  LinearRecipe blocks = find_linear_recipe("te-current");
  LinearRecipe head = bf16_recipe();
  LinearRecipe* const both[] = {&blocks, &head};
  move_to_hardware(both, "exact");  // a definition: the FP8 products of the blocks alone
  CHECK(blocks.wgrad.accumulator == model("exact"));
  CHECK(head.forward.accumulator == model("fp32"));
  move_to_hardware(both, "sm90.wgmma.bf16");
  CHECK(blocks.wgrad.accumulator == model("exact"));
  CHECK(head.forward.accumulator == model("sm90.wgmma.bf16"));
  move_to_hardware(both, "sm89");
  CHECK(blocks.forward.accumulator == model("sm89.mma.e4m3"));
  CHECK(head.wgrad.accumulator == model("sm89.mma.bf16"));
  CHECK(is_for_bf16("sm80.mma.bf16"));
  CHECK(!is_for_bf16("sm90"));
  CHECK(!is_for_bf16("exact"));
}

TEST_CASE("linear layer: sizes and multipliers that do not fit are refused", "[train]") {
  const LinearRecipe recipe = find_linear_recipe("deepseek-v3");
  Linear<float> layer("layer", 96, 128, recipe);
  CHECK_THROWS_WITH(layer.forward(Matrix<float>(128, 96), {}), contains("divisible by 128"));
  CHECK_THROWS_WITH(layer.forward(Matrix<float>(128, 128), {}), contains("in = 96"));
  CHECK_THROWS_WITH(Linear<float>("layer", 2, 2, recipe, {1.0F, 3.0F}),
                    contains("powers of two") && contains("3"));
  for (const float bad : {0.0F, -2.0F, -0.5F, INFINITY, NAN, 1.5F})
    CHECK_THROWS_WITH(Linear<float>("layer", 2, 2, recipe, {1.0F, bad}),
                      contains("channel_multipliers: expected powers of two"));
  CHECK_NOTHROW(Linear<float>("layer", 2, 2, recipe, {0x1p-149F, 0x1p127F}));
  CHECK_THROWS_WITH(find_linear_recipe("te-curent"), contains("'te-curent'"));
}

TEST_CASE("linear layer: three products of sizes that are all unlike", "[train]") {
  // 32 tokens, 64 inputs and 96 outputs: none stands for another.
  const Case c{normal_matrix("x", 32, 64), normal_matrix("w", 96, 64, 0.06),
               normal_matrix("dy", 32, 96, 1e-3)};
  for (const char* name :
       {"te-current", "te-mxfp8", "torchao-rowwise", "naive", "ms-amp", "nvfp4"}) {
    const LinearRecipe recipe = find_linear_recipe(name);
    if (recipe.activation.source != ScaleSource::current) continue;
    const LayerRun got = run(recipe, c);
    INFO(name);
    CHECK(same_bits(got.y.values,
                    product(recipe.forward, recipe.activation, c.x, recipe.weight, c.w, true)));
    CHECK(same_bits(got.dx.values, product(recipe.dgrad, recipe.gradient, c.dy, recipe.weight,
                                           turned(c.w), true)));
    CHECK(same_bits(got.dw, product(recipe.wgrad, recipe.gradient, turned(c.dy), recipe.activation,
                                    turned(c.x), false)));
  }
}

TEST_CASE("linear layer: intervals and orders of scales are those of each product", "[train]") {
  const Case c{normal_matrix("x", 32, 64), normal_matrix("w", 96, 64, 0.06),
               normal_matrix("dy", 32, 96, 1e-3)};
  LinearRecipe fp8 = find_linear_recipe("te-current");
  for (Recipe LinearRecipe::*operand :
       {&LinearRecipe::activation, &LinearRecipe::weight, &LinearRecipe::gradient}) {
    (fp8.*operand).row_block = 1;
    (fp8.*operand).k_block = 32;
  }
  for (GemmSettings* s : {&fp8.forward, &fp8.dgrad, &fp8.wgrad}) s->promotion_interval = 32;
  std::set<std::vector<float>> seen;
  for (const ScaleOrder order : {ScaleOrder::product_then_fma, ScaleOrder::b_then_fma_a}) {
    fp8.forward.scale_order = fp8.dgrad.scale_order = order;
    const LayerRun got = run(fp8, c);
    INFO("order " << to_string(order));
    const std::vector<float> y = product(fp8.forward, fp8.activation, c.x, fp8.weight, c.w, true);
    CHECK(same_bits(got.y.values, y));
    CHECK(same_bits(got.dx.values,
                    product(fp8.dgrad, fp8.gradient, c.dy, fp8.weight, turned(c.w), true)));
    CHECK(same_bits(got.dw, product(fp8.wgrad, fp8.gradient, turned(c.dy), fp8.activation,
                                    turned(c.x), false)));
    fp8.bf16_outputs = false;
    seen.insert(run(fp8, c).y.values);
    fp8.bf16_outputs = true;
  }
  CHECK(seen.size() == 2);
  // BF16 operands whose sums are promoted are no plain FP32 sums.
  LinearRecipe bf16 = bf16_recipe();
  bf16.bf16_outputs = false;
  const LayerRun plain = run(bf16, c);
  bf16.forward.promotion_interval = 16;
  const LayerRun promoted = run(bf16, c);
  const auto a_codes = bf16_codes(c.x);
  const auto b_codes = bf16_codes(c.w);
  GemmProblem problem;
  problem.model = bf16.forward.accumulator;
  problem.a = {FormatId::bf16, a_codes.data(), 32, 64, 64, 1};
  problem.b = {FormatId::bf16, b_codes.data(), 96, 64, 64, 1};
  problem.promotion_interval = 16;
  std::vector<float> d(32 * 96);
  gemm_reference(problem, d);
  CHECK(same_bits(promoted.y.values, d));
  CHECK_FALSE(same_bits(promoted.y.values, plain.y.values));
  CHECK(same_bits(promoted.dx.values, plain.dx.values));
}

TEST_CASE("linear layer: multipliers are those of its inputs, in all three products", "[train]") {
  const Case c{normal_matrix("x", 32, 64), normal_matrix("w", 96, 64, 0.06),
               normal_matrix("dy", 32, 96, 1e-3)};
  std::vector<float> multipliers(64, 1.0F);
  for (std::size_t i = 0; i < multipliers.size(); i += 7)
    multipliers[i] = std::ldexp(1.0F, static_cast<int>(i) % 11 - 5);
  const auto scaled = [&](Matrix<float> matrix, bool divides) {
    for (std::size_t i = 0; i < matrix.values.size(); ++i) {
      const float m = multipliers[i % multipliers.size()];
      matrix.values[i] = divides ? matrix.values[i] / m : matrix.values[i] * m;
    }
    return matrix;
  };
  std::vector<LinearRecipe> recipes;
  for (const char* name : {"fp32", "bf16", "te-current", "te-mxfp8", "torchao-rowwise-hp-wgrad"})
    recipes.push_back(find_linear_recipe(name));
  recipes.push_back(recipes[2]);
  recipes.back().gradient_clip = 1.5;
  // Each product alone in FP8.
  for (GemmSettings LinearRecipe::*one :
       {&LinearRecipe::forward, &LinearRecipe::dgrad, &LinearRecipe::wgrad}) {
    LinearRecipe mixed = recipes[2];
    for (GemmSettings LinearRecipe::*other :
         {&LinearRecipe::forward, &LinearRecipe::dgrad, &LinearRecipe::wgrad})
      if (other != one) mixed.*other = recipes[1].forward;
    recipes.push_back(mixed);
  }
  for (std::size_t i = 0; i < recipes.size(); ++i) {
    LinearRecipe& recipe = recipes[i];
    // As if the layer before had such channels, which a product of powers of two shows exactly.
    const LayerRun plain = run(recipe, {scaled(c.x, false), scaled(c.w, true), c.dy});
    Linear<float> layer("layer", 64, 96, recipe, multipliers);
    layer.weight().value = c.w.values;
    INFO("recipe " << i << ": " << recipe.name);
    CHECK(same_bits(layer.forward(c.x, {}).values, plain.y.values));
    CHECK(same_bits(layer.backward(c.dy, {}).values, scaled(plain.dx, false).values));
    Matrix<float> dw(96, 64);
    dw.values = plain.dw;
    CHECK(same_bits(layer.weight().gradient, scaled(dw, true).values));
    CHECK(same_bits(layer.weight().value, c.w.values));
  }
  Linear<float> layer("layer", 64, 96, recipes[0], {1.0F, 2.0F});
  CHECK_THROWS_WITH(layer.forward(c.x, {}), "channel_multipliers: expected 64 values, got 2");
}

TEST_CASE("linear layer: a limit of gradients is for a cast of them", "[train]") {
  const GemmSettings fp8 = find_linear_recipe("te-current").forward;
  const GemmSettings bf16 = bf16_recipe().forward;
  for (const bool dgrad : {false, true})
    for (const bool wgrad : {false, true})
      for (const double clip : {0.0, 2.5}) {
        LinearRecipe recipe = find_linear_recipe("te-current");
        recipe.dgrad = dgrad ? fp8 : bf16;
        recipe.wgrad = wgrad ? fp8 : bf16;
        recipe.gradient_clip = clip;
        const auto make = [&] { Linear<float>("layer", 16, 16, recipe); };
        INFO("dgrad in FP8: " << dgrad << ", wgrad: " << wgrad << ", limit " << clip);
        if (clip == 0.0 || dgrad || wgrad)
          CHECK_NOTHROW(make());
        else
          CHECK_THROWS_WITH(
              make(),
              contains("gradient_clip: expected 0 without a cast of the gradient, got 2.5"));
      }
  for (const double clip : {-1.0, -1e-300, static_cast<double>(INFINITY), std::nan("")}) {
    LinearRecipe recipe = find_linear_recipe("te-current");
    recipe.gradient_clip = clip;
    CHECK_THROWS_WITH(Linear<float>("layer", 16, 16, recipe),
                      contains("gradient_clip: expected a finite number >= 0"));
  }
}

TEST_CASE("operand cast: amaxes bring a delayed scale back", "[train]") {
  const std::string name = GENERATE("te-delayed", "ms-amp");
  Recipe recipe = find_linear_recipe(name).activation;
  if (recipe.source == ScaleSource::delayed)
    recipe.delayed.history = 4;
  else
    recipe.window = 3;
  OperandCast cast("x", recipe);
  for (int step = 0; step < 9; ++step) {
    const Matrix<float> x =
        normal_matrix("step" + std::to_string(step), 4, 8, std::ldexp(1.0, 20 - 7 * (step % 5)));
    (void)cast.cast(view(x), false, {});
  }
  OperandCast again("x", recipe);
  again.restore(cast.amaxes());
  const Matrix<float> next = normal_matrix("next", 4, 8);
  const QuantizedTensor expected = cast.cast(view(next), false, {});
  const QuantizedTensor got = again.cast(view(next), false, {});
  INFO(name);
  CHECK(got.scales == expected.scales);
  CHECK(got.codes == expected.codes);
  CHECK(again.amaxes() == cast.amaxes());
  CHECK(OperandCast("x", recipe).cast(view(next), false, {}).scales != expected.scales);
  CHECK_THROWS_WITH(OperandCast("x", Recipe{}).restore({1.0F}),
                    contains("uses only the current tensor"));
}

TEST_CASE("rounding to BF16 is the cast there and back", "[train][linear]") {
  // Every upper half with the lower halves at and beside ties, on both threads.
  constexpr std::uint32_t kLower[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
  Matrix<float> x(1 << 16, std::size(kLower));
  for (std::uint32_t upper = 0; upper < 1u << 16; ++upper)
    for (std::size_t i = 0; i < std::size(kLower); ++i)
      x.row(upper)[i] = std::bit_cast<float>(upper << 16 | kLower[i]);
  for (const int threads : {1, 2}) {
    Matrix<float> rounded = x;
    round_to_bf16(rounded.values, threads);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < x.values.size(); ++i) {
      const std::uint32_t expected = encode(format(FormatId::bf16), kNvidiaNosat, x.values[i])
                                     << 16;
      const auto got = std::bit_cast<std::uint32_t>(rounded.values[i]);
      if (got == expected || ++wrong > 20) continue;
      INFO(std::hex << "input " << std::bit_cast<std::uint32_t>(x.values[i]) << " expected "
                    << expected << " got " << got);
      CHECK(got == expected);
    }
    CHECK(wrong == 0);
  }
}
