// What steps of training seldom have: NaN in gradients and in operands, gradients that are zero,
// and copies of the very first tokens.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/linear/linear_recipe.hpp"
#include "fp8lab/linear/operand_cast.hpp"
#include "fp8lab/scaling/auto_scaling.hpp"
#include "training/collectives/collectives.hpp"
#include "training/collectives/transport.hpp"
#include "training/train/data.hpp"
#include "training/train/gradient_reducer.hpp"

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

TEST_CASE("gradients: the bytes of a reduction are those of the busiest rank, of all tensors",
          "[train]") {
  for (const Topology topology : {Topology::ring, Topology::tree, Topology::direct})
    for (const char* wire : {"e4m3fn", "bf16"})
      for (const bool look : {false, true}) {
        ReductionOptions options{.ranks = 3, .topology = topology, .wire = find_wire_format(wire)};
        if (options.wire.bytes == 1) options.scaling = GradientScaling::automatic;
        GradientReducer reducer(in_process_fabric(), options, 2);
        std::uint64_t expected = 0;
        for (const std::size_t elements : {7U, 64U, 1U}) {
          std::vector<std::vector<float>> gradients(3, std::vector<float>(elements, 0.5F));
          std::vector<std::span<float>> spans(gradients.begin(), gradients.end());
          reducer.reduce(elements % 2, elements, spans, look);
          // Of the ring the last chunks are shorter; a tree's root and rank 0 send to all others.
          RankBuffers buffers(3, Message(elements * options.wire.bytes));
          expected += all_reduce(in_process_fabric(),
                                 {topology, {options.wire, ReduceOp::sum}, 3, elements}, buffers)
                          .busiest_bytes;
          INFO(to_string(topology) << ", " << wire << ", " << elements << " elements");
          CHECK(reducer.bytes_sent() == expected);
        }
        CHECK(reducer.mean({1.0F, 2.0F, 6.0F}) == 3.0);
        CHECK(reducer.bytes_sent() == expected);
      }
}

TEST_CASE("gradients: means, and what they lost, as scales and casts give them one by one",
          "[train]") {
  const RandomStream random(17, "gradients");
  std::uint64_t draw = 0;
  for (const char* name : {"e4m3fn", "e5m2"})
    for (const GradientScaling scaling : {GradientScaling::pre, GradientScaling::post,
                                          GradientScaling::automatic, GradientScaling::shipped})
      for (const int ranks : {1, 2, 3}) {
        const WireFormat& wire = find_wire_format(name);
        const AutoScalingOptions rule{.threshold = 0.03};
        const ReductionOptions options{.ranks = ranks,
                                       .topology = Topology::tree,
                                       .wire = wire,
                                       .scaling = scaling,
                                       .auto_scaling = rule};
        GradientReducer reducer(in_process_fabric(), options, 1);
        AutoScaler mu(rule);
        double signal = 0.0;
        double noise = 0.0;
        std::size_t lost = 0;
        std::size_t saturated = 0;
        std::size_t all = 0;
        for (const std::size_t elements : {20U, 33U, 5U}) {
          std::vector<std::vector<float>> gradients;
          for (int rank = 0; rank < ranks; ++rank) {
            std::vector<float> one;
            for (std::size_t i = 0; i < elements; ++i) {
              one.push_back(std::ldexp(static_cast<float>(random.normal(draw)),
                                       static_cast<int>(random.below(draw + 1, 30)) - 20));
              draw += 2;
            }
            gradients.push_back(one);
          }
          float largest = 0.0F;
          std::vector<float> exact(elements, 0.0F);
          for (const std::vector<float>& one : gradients)
            for (std::size_t i = 0; i < elements; ++i) {
              largest = std::max(largest, std::abs(one[i]));
              exact[i] += one[i];
            }
          for (float& sum : exact) sum *= 1.0F / static_cast<float>(ranks);
          float scale = static_cast<float>(format(wire.format).max_finite()) / largest;
          if (scaling == GradientScaling::pre) scale /= static_cast<float>(ranks);
          if (scaling == GradientScaling::automatic) scale *= static_cast<float>(mu.mu());
          float inverse = 1.0F / (scale * static_cast<float>(ranks));
          if (scaling == GradientScaling::shipped) {
            const ShippedScaling shipped = shipped_scaling(largest, ranks);
            scale = shipped.scale;
            inverse = shipped.inverse_scale;
          }
          RankBuffers buffers;
          for (const std::vector<float>& one : gradients) {
            buffers.emplace_back(elements);
            to_wire(wire, one, scale, buffers.back());
          }
          all_reduce(in_process_fabric(), {Topology::tree, {wire, ReduceOp::sum}, ranks, elements},
                     buffers);
          std::vector<std::span<float>> spans(gradients.begin(), gradients.end());
          reducer.reduce(0, elements, spans, true);
          std::size_t here = 0;
          for (std::size_t i = 0; i < elements; ++i) {
            const double value =
                decode(format(wire.format), std::to_integer<std::uint32_t>(buffers[0][i]));
            const float mean = static_cast<float>(value) * inverse;
            INFO(name << ", " << to_string(scaling) << ", " << ranks << " ranks, element " << i);
            for (const std::vector<float>& one : gradients)
              REQUIRE(std::bit_cast<std::uint32_t>(one[i]) == std::bit_cast<std::uint32_t>(mean));
            const auto e = static_cast<double>(exact[i]);
            signal += e * e;
            noise += (static_cast<double>(mean) - e) * (static_cast<double>(mean) - e);
            lost += e != 0.0 && mean == 0.0F ? 1U : 0U;
            here += std::abs(value) == format(wire.format).max_finite() ? 1U : 0U;
          }
          saturated += here;
          all += elements;
          mu.update(static_cast<double>(here) / static_cast<double>(elements));
          INFO(name << ", " << to_string(scaling) << ", " << ranks << " ranks");
          CHECK(reducer.saturated_percent() ==
                100.0 * static_cast<double>(saturated) / static_cast<double>(all));
          CHECK(reducer.underflow_percent() ==
                100.0 * static_cast<double>(lost) / static_cast<double>(all));
          CHECK(std::abs(reducer.sqnr_db() - 10.0 * std::log10(signal / noise)) < 1e-9);
          CHECK(reducer.smallest_mu() == (scaling == GradientScaling::automatic ? mu.mu() : 1.0));
        }
      }
}
