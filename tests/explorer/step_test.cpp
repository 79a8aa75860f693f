#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "catch.hpp"
#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/accumulate/arithmetic.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/scaling/auto_scaling.hpp"
#include "message_of.hpp"
#include "pictures/pictures.hpp"

namespace fp8lab::explorer {
namespace {

nlohmann::json parsed(const std::string& text) { return nlohmann::json::parse(text); }

/// Numbers over some 20 binades, both signs; some of them zero.
std::string numbers(const RandomStream& random, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<std::uint64_t>(4 * i);
    const double size =
        std::ldexp(1.0 + random.uniform(at), static_cast<int>(random.below(at + 1, 15)) - 9);
    const bool zero = random.below(at + 3, 8) == 0;
    text += fmt::format("{} ", zero ? 0.0 : random.below(at + 2, 2) == 0 ? size : -size);
  }
  return text;
}

/// The number that binary digits, the exponent of the last one, and a sign stand for.
double read(const std::string& digits, int low, bool negative) {
  double value = 0.0;
  for (const char digit : digits) value = 2.0 * value + (digit == '1' ? 1.0 : 0.0);
  return std::ldexp(negative ? -value : value, low);
}

double number(const nlohmann::json& x) {
  return x.is_string() ? std::stod(x.get<std::string>()) : x.get<double>();
}

}  // namespace

TEST_CASE("explorer: the steps of every unit end at its dot product", "[explorer]") {
  for (const InstructionModel& model : instruction_models())
    for (std::uint32_t seed = 0; seed < 6; ++seed) {
      const std::string a = numbers({seed, "step/a"}, 5 * static_cast<int>(seed) + 1);
      const std::string b = numbers({seed, "step/b"}, 5 * static_cast<int>(seed) + 1);
      const double c = seed % 2 == 0 ? 0.0 : -3.7;
      const nlohmann::json answer = parsed(step({.model = model.name, .a = a, .b = b, .c = c}));
      INFO(fmt::format("{}, a = {}, b = {}, c = {}", model.name, a, b, c));
      const auto& stages = answer["stages"];
      REQUIRE(!stages.empty());
      if (!answer["halves"].get<bool>()) CHECK(stages.back()["result"]["bits"] == answer["bits"]);
      if (model.a_format == FormatId::f32) continue;  // sums that binary64 would round
      double exact = static_cast<double>(static_cast<float>(c));
      for (std::size_t i = 0; i < answer["a"].size(); ++i)
        exact += number(answer["a"][i]["value"]) * number(answer["b"][i]["value"]);
      CHECK(number(answer["exact"]) == exact);
      CHECK(number(answer["lost"]) == exact - number(answer["result"]));
    }
}

TEST_CASE("explorer: what an aligning unit keeps adds up to its result", "[explorer]") {
  int looked = 0;
  for (const InstructionModel& model : instruction_models())
    for (std::uint32_t seed = 10; seed < 16; ++seed) {
      const nlohmann::json answer = parsed(step({.model = model.name,
                                                 .a = numbers({seed, "step/a"}, 16),
                                                 .b = numbers({seed, "step/b"}, 16),
                                                 .c = seed % 2 == 0 ? 0.0 : 2.5}));
      if (!answer["aligns"].get<bool>()) continue;
      for (const auto& stage : answer["stages"]) {
        if (!stage.contains("cut")) continue;
        const int cut = stage["cut"].get<int>();
        double kept = 0.0;
        for (const auto& term : stage["terms"]) {
          const bool negative = term["negative"].get<bool>();
          const double part = read(term["kept"].get<std::string>(), cut, negative);
          const double whole =
              read(term["digits"].get<std::string>(), term["low"].get<int>(), negative);
          CHECK(whole == number(term["value"]));
          CHECK(part + number(term["lost"]) == whole);
          CHECK(std::abs(number(term["lost"])) < std::ldexp(1.0, cut));
          kept += part;
        }
        const auto& sum = stage["sum"];
        CHECK(kept == number(sum["value"]));
        CHECK(kept == read(sum["digits"].get<std::string>(), sum["low"].get<int>(),
                           sum["negative"].get<bool>()));
        // The unit rounds this sum, and nothing else.
        const Exact exact{static_cast<std::uint64_t>(std::abs(std::ldexp(kept, -cut))), cut,
                          kept < 0.0, false};
        const AccumulatorModel& unit = model.accumulator;
        const float expected = unit.output_format == FormatId::f16
                                   ? accumulate_detail::round_to_half(exact, unit.rounding)
                                   : accumulate_detail::round_to_float(
                                         exact, unit.output_fraction_bits, unit.rounding);
        INFO(fmt::format("{}, {}", model.name, stage.dump()));
        CHECK(stage["result"]["bits"] ==
              fmt::format("0x{:08x}", std::bit_cast<std::uint32_t>(expected)));
        ++looked;
      }
    }
  CHECK(looked > 300);
}

TEST_CASE("explorer: Hopper's FP8 step drops what is 14 digits below", "[explorer]") {
  // 256 * 256 = 2^16 leaves units of 2^3: 13 loses its last three digits, 1.5 all of it.
  const nlohmann::json answer =
      parsed(step({.model = "sm90.wgmma.e4m3", .a = "256, 13, 1.5", .b = "256 1 1", .c = 0.0}));
  REQUIRE(answer["stages"].size() == 1);
  const auto& stage = answer["stages"][0];
  CHECK(stage["largest"] == 16);
  CHECK(stage["cut"] == 3);
  CHECK(stage["terms"][1]["label"] == "a1 b1");
  CHECK(stage["terms"][2]["kept"] == "1");
  CHECK(stage["terms"][2]["lost"] == 5.0);
  CHECK(stage["terms"][3]["kept"] == "0");
  CHECK(answer["result"] == 65544.0);
  CHECK(answer["exact"] == 65550.5);
  CHECK(answer["lost"] == 6.5);
}

TEST_CASE("explorer: mu is the scaler's, fed with the shares that are shown", "[explorer]") {
  for (const std::string trace : {"drift", "steady", "1 8 8 8 0.125 1"}) {
    const nlohmann::json answer = parsed(auto_scaling({.trace = trace, .steps = 700}));
    AutoScaler scaler({});
    int halvings = 0;
    for (std::size_t i = 0; i < answer["mu"].size(); ++i) {
      CHECK(number(answer["mu"][i]) == scaler.mu());
      const double saturated = number(answer["saturated"][i]);
      CHECK(std::abs(saturated * 1e5 - std::round(saturated * 1e5)) < 1e-6);
      const double before = scaler.mu();
      scaler.update(saturated);
      if (scaler.mu() < before) ++halvings;
    }
    CHECK(number(answer["last_mu"]) == scaler.mu());
    CHECK(number(answer["halvings"]) == halvings);
    CHECK(halvings > 0);
  }
}

TEST_CASE("explorer: a gradient eight times as large saturates, an eighth of it dies",
          "[explorer]") {
  const nlohmann::json answer = parsed(auto_scaling({.growth = "none", .trace = "1 8 1 0.001"}));
  CHECK(number(answer["saturated"][0]) == 1e-5);  // the amax itself
  CHECK(number(answer["saturated"][1]) > 1e-4);
  CHECK(number(answer["mu"][2]) == 0.5);
  CHECK(number(answer["saturated"][2]) == 0.0);
  CHECK(number(answer["zero"][3]) > 5.0 * number(answer["zero"][0]));
}

TEST_CASE("explorer: own numbers that are none are refused by place", "[explorer]") {
  const auto message = [](const auto& ask) -> std::string {
    return test::message_of([&] { ask(); }, "no error");
  };
  CHECK(message([] { (void)step({.a = "1 x"}); }) ==
        "a, number 2: expected a finite number, got 'x'");
  CHECK(message([] { (void)step({.a = "1 2 3"}); }) ==
        "b: expected as many numbers as a, 3, got 2");
  CHECK(message([] { (void)step({.a = " , "}); }) == "a: expected 1 to 32 numbers, got 0");
  CHECK(message([] { (void)step({.c = 1e39}); }) ==
        "c: expected a finite binary32 number, got 1e+39");
  CHECK(message([] { (void)auto_scaling({.trace = "1 -2"}); }) ==
        "trace, number 2: expected a number above 0, got -2");
  CHECK(message([] { (void)auto_scaling({.steps = 0}); }) == "steps: expected 1 .. 5000, got 0");
}

}  // namespace fp8lab::explorer
