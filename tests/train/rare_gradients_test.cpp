// What steps of training seldom have: NaN in gradients and in operands, gradients that are zero,
// and copies of the very first tokens.

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/collectives/transport.hpp"
#include "fp8lab/train/data.hpp"
#include "fp8lab/train/gradient_reducer.hpp"
#include "fp8lab/train/linear_recipe.hpp"
#include "fp8lab/train/operand_cast.hpp"

using namespace fp8lab;
using namespace fp8lab::train;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("gradients: a NaN is no amax, and leaves other elements' means alone", "[train]") {
  for (const GradientScaling scaling : {GradientScaling::pre, GradientScaling::post,
                                        GradientScaling::automatic, GradientScaling::shipped}) {
    const ReductionOptions options{
        .ranks = 2, .wire = find_wire_format("e4m3fn"), .scaling = scaling};
    const auto mean = [&](float odd, std::size_t where) {
      std::vector<float> first{0.25F, -3.0F, 0.5F, 0.0F, 1.5F};
      std::vector<float> second{0.75F, 1.0F, 0.125F, 0.0F, -2.5F};
      (where < 5 ? first[where] : second[where - 5]) = odd;
      GradientReducer reducer(in_process_fabric(), options, 1);
      reducer.reduce(0, 5, {std::span(first), std::span(second)}, false);
      for (std::size_t i = 0; i < 5; ++i)
        CHECK(std::bit_cast<std::uint32_t>(first[i]) == std::bit_cast<std::uint32_t>(second[i]));
      return first;
    };
    for (const std::size_t where : {3U, 8U}) {
      const std::vector<float> plain = mean(0.0F, where);
      const std::vector<float> got = mean(kNan, where);
      INFO(to_string(scaling) << ", element " << where);
      for (std::size_t i = 0; i < 5; ++i) {
        if (i == 3)
          CHECK(std::isnan(got[i]));
        else
          CHECK(got[i] == plain[i]);
      }
    }
  }
}

TEST_CASE("gradients: what was zero before the sum has not become zero in it", "[train]") {
  const ReductionOptions options{
      .ranks = 1, .wire = find_wire_format("e5m2"), .scaling = GradientScaling::post};
  std::vector<float> values{0.0F, -0.0F, 1.0F, 1e-30F, 0.0F, 0.5F, -1e-30F, 0.0F};
  GradientReducer reducer(in_process_fabric(), options, 1);
  reducer.reduce(0, values.size(), {std::span(values)}, true);
  CHECK(reducer.underflow_percent() == 25.0);
}

TEST_CASE("synthetic language: a copy begins at any token that a whole copy follows", "[train]") {
  // All tokens from the third on are copies; the first two differ nearly always.
  const LanguageOptions options{.vocabulary = 50000,
                                .zipf_exponent = 0.01,
                                .markov_share = 0.0,
                                .copy_share = 1.0,
                                .copy_length = 1};
  const Batch batch = synthetic_language(options, 5)->batch(0, 256, 4);
  int second = 0;
  for (std::size_t s = 0; s < 256; ++s) {
    const std::int32_t* token = batch.inputs.data() + 4 * s;
    CHECK(token[2] == token[0]);
    CHECK((token[3] == token[0] || token[3] == token[1]));
    second += token[3] == token[1] ? 1 : 0;
  }
  CHECK(second > 96);
  CHECK(second < 160);
}

TEST_CASE("operand cast: a NaN is an amax of MS-AMP's, and none of TransformerEngine's",
          "[train]") {
  for (const bool ms_amp : {false, true}) {
    const Recipe recipe = find_linear_recipe(ms_amp ? "ms-amp" : "te-delayed").activation;
    OperandCast cast("x", recipe);
    for (int step = 0; step < 4; ++step) {
      const std::vector<float> x{1.0F, step == 1 ? kNan : 2.0F, -3.0F, std::ldexp(0.1F, step)};
      (void)cast.cast({x, 2, 2}, false, {});
    }
    INFO((ms_amp ? "ms-amp" : "te-delayed"));
    REQUIRE(cast.amaxes().size() == 4);
    CHECK(std::isnan(cast.amaxes()[1]) == ms_amp);
    for (const std::size_t step : {0U, 2U, 3U}) CHECK(cast.amaxes()[step] == 3.0F);
    OperandCast again("x", recipe);
    again.restore(cast.amaxes());
    const std::vector<float> next{0.5F, 20.0F, -3.0F, 1.0F};
    const QuantizedTensor expected = cast.cast({next, 2, 2}, false, {});
    const QuantizedTensor got = again.cast({next, 2, 2}, false, {});
    CHECK(got.scales == expected.scales);
    CHECK(got.codes == expected.codes);
  }
}

TEST_CASE("operand cast: each cast of a tensor is observed and may run elsewhere, by its name",
          "[train]") {
  const Recipe rows{.row_block = 1};
  Recipe other{.format = FormatId::e5m2, .row_block = 1};
  std::vector<float> x;
  for (int i = 0; i < 6 * 10; ++i) x.push_back(std::ldexp(1.0F + static_cast<float>(i), i % 5));
  const FloatMatrix matrix{x, 6, 10};
  for (const bool two : {false, true})
    for (const bool first : {false, true})
      for (const bool second : {false, true}) {
        std::string seen;
        std::string ran;
        PassContext context;
        context.on_cast = [&](std::string_view name, const FloatMatrix& m,
                              const QuantizedTensor& q) {
          seen += fmt::format("{} [{}, {}] {}{} ", name, m.rows, m.k, format(q.format).name,
                              q.transposed ? "+T" : "");
        };
        context.backend.name = "asked";
        context.backend.cast = [&](FormatId id, const CastPolicy&, std::span<const float> values,
                                   std::span<std::uint8_t>) {
          ran += fmt::format("{}:{} ", format(id).name, values.size());
          return false;
        };
        TwoCasts casts("l.x", rows, two ? std::optional(other) : std::nullopt, "wgrad");
        const QuantizedTensor q = casts.cast(matrix, {first, second}, context);
        INFO("two recipes " << two << ", uses " << first << " and " << second);
        std::string expected;
        std::string expected_runs;
        if (two) {
          if (first) expected += "l.x [6, 10] e4m3fn ";
          if (second) expected += "l.x.wgrad [6, 10] e5m2+T ";
          if (first) expected_runs += "e4m3fn:60 ";
          if (second) expected_runs += "e5m2:60 e5m2:60 ";
        } else if (first || second) {
          expected = second ? "l.x [6, 10] e4m3fn+T " : "l.x [6, 10] e4m3fn ";
          expected_runs = second ? "e4m3fn:60 e4m3fn:60 " : "e4m3fn:60 ";
        }
        CHECK(seen == expected);
        CHECK(ran == expected_runs);
        CHECK((q.transposed != nullptr) == second);
        if (second) CHECK(q.transposed->format == (two ? FormatId::e5m2 : FormatId::e4m3fn));
        std::vector<OperandCast*> all;
        casts.list(all);
        REQUIRE(all.size() == (two ? 2 : 1));
        CHECK(all[0]->name() == "l.x");
        if (two) CHECK(all[1]->name() == "l.x.wgrad");
      }
}
