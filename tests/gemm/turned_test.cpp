// Products with few columns run as their transposes, whose rows are few: the same bits.

#include "fp8lab/gemm/transposed.hpp"

#include <algorithm>
#include <cmath>

#include "fp8lab/accumulate/unit.hpp"
#include "gemm/problems.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

/// Inverse scales of both operands or one: one a row, or one a row and 32 terms.
struct Scales {
  enum class Of { both, a, b };
  std::vector<float> a, b;

  void apply(GemmProblem& p, bool along_k, std::uint64_t seed, Of of = Of::both) {
    // Partial sums are scaled between steps, unless the instruction scales its terms itself.
    const bool by_steps = !traits_of(p.model).takes_scales;
    const std::int64_t side = by_steps ? std::max(32, p.model.terms) : 32;
    const std::int64_t k_block = along_k ? side : 0;
    const std::int64_t columns = along_k ? (p.a.k + side - 1) / side : 1;
    a = random_c(Start::normal, p.a.rows * columns, RandomStream(seed, "scales of a"));
    b = random_c(Start::wide, p.b.rows * columns, RandomStream(seed, "scales of b"));
    if (along_k && traits_of(p.model).takes_scales) {  // the instruction itself reads UE8M0
      for (std::vector<float>* scales : {&a, &b})
        for (float& x : *scales) x = std::ldexp(1.0F, std::clamp(std::ilogb(x), -20, 20));
    }
    if (of != Of::b) p.scale_a = {a, 1, k_block};
    if (of != Of::a) p.scale_b = {b, 1, k_block};
    if (along_k) p.promotion_interval = std::max(32, p.model.terms);
  }
};

}  // namespace

TEST_CASE("few columns: a product is turned where that makes its rows few", "[gemm]") {
  const InstructionModel& model = find_instruction_model("sm90.wgmma.e4m3");
  const auto turned = [&](Shape shape, ScaleOrder order = ScaleOrder::product_then_fma,
                          bool scaled = false, Scales::Of of = Scales::Of::both) {
    Operands operands(model, shape, Data::normal, Start::none, 1);
    operands.problem.scale_order = order;
    Scales scales;
    if (scaled) scales.apply(operands.problem, false, 1, of);
    return gemm_detail::runs_turned(operands.problem);
  };
  CHECK(turned({4, 1, 8}));
  CHECK_FALSE(turned({3, 1, 8}));
  CHECK(turned({256, 64, 8}));
  CHECK_FALSE(turned({255, 64, 8}));
  CHECK_FALSE(turned({400, 65, 8}));
  for (const ScaleOrder order : scale_orders()) {
    INFO(to_string(order));
    CHECK(turned({8, 2, 8}, order));
    // fma(acc * s_a, s_b, final) is not symmetric, though one of the scales be left out.
    const bool symmetric =
        order == ScaleOrder::product_then_fma || order == ScaleOrder::product_then_add;
    for (const Scales::Of of : {Scales::Of::both, Scales::Of::a, Scales::Of::b}) {
      INFO("scales of " << static_cast<int>(of));
      CHECK(turned({8, 2, 8}, order, true, of) == symmetric);
    }
  }
}

TEST_CASE("few columns: every model, all kinds of data, C and scales", "[gemm][long]") {
  std::uint64_t seed = 7100;
  for (const InstructionModel& model : instruction_models()) {
    for (const Shape shape : {Shape{131, 1, 97}, Shape{67, 3, 64}, Shape{150, 33, 70}}) {
      ++seed;
      const Data data = kAllData[seed % 7];
      const Start start = static_cast<Start>(seed / 7 % 4);
      INFO(model.name << " " << shape.m << "x" << shape.n << "x" << shape.k << " data "
                      << static_cast<int>(data) << " start " << static_cast<int>(start) << " seed "
                      << seed);
      Operands operands(model, shape, data, start, seed);
      Scales scales;
      if (seed % 3 != 0) scales.apply(operands.problem, seed % 3 == 2, seed);
      if (seed % 2 == 0) operands.problem.scale_order = ScaleOrder::product_then_add;
      REQUIRE(gemm_detail::runs_turned(operands.problem));
      check_all_targets(operands.problem);
    }
  }
}

TEST_CASE("few columns: scales of one operand or both keep the reference's bits in every order",
          "[gemm]") {
  std::uint64_t seed = 7700;
  for (const char* name : {"sm90.wgmma.e4m3", "sm80.mma.bf16"})
    for (const ScaleOrder order : scale_orders())
      for (const Scales::Of of : {Scales::Of::both, Scales::Of::a, Scales::Of::b}) {
        ++seed;
        Operands operands(find_instruction_model(name), {21, 3, 96}, Data::normal,
                          seed % 2 == 0 ? Start::none : Start::normal, seed);
        operands.problem.scale_order = order;
        Scales scales;
        scales.apply(operands.problem, true, seed, of);
        INFO(name << " " << to_string(order) << ", scales of " << static_cast<int>(of) << ", seed "
                  << seed);
        check_all_targets(operands.problem);
      }
}
