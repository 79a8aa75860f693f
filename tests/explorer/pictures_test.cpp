#include "pictures/pictures.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/gemm/gemm.hpp"
#include "message_of.hpp"
#include "pictures/json.hpp"
#include "pictures/running_sum.hpp"

namespace fp8lab::explorer {
namespace {

std::vector<std::uint8_t> finite_codes(const RandomStream& random, const Format& f, int count) {
  std::vector<std::uint8_t> codes;
  for (int i = 0; i < count; ++i) {
    const auto draw = random.bits32(static_cast<std::uint64_t>(i));
    const std::uint32_t magnitude = (draw >> 1) % (f.max_finite_code() + 1);
    codes.push_back(static_cast<std::uint8_t>(magnitude | ((draw & 1) != 0 ? f.sign_mask() : 0u)));
  }
  return codes;
}

std::vector<Unpacked> unpacked(const Format& f, const std::vector<std::uint8_t>& codes) {
  std::vector<Unpacked> values;
  for (const std::uint8_t code : codes) values.push_back(unpack(f, code));
  return values;
}

nlohmann::json parsed(const std::string& text) { return nlohmann::json::parse(text); }

}  // namespace

TEST_CASE("explorer: a running sum is what gemm gives for the terms so far", "[explorer]") {
  constexpr int kTerms = 320;
  for (const InstructionModel& model : instruction_models()) {
    const Format& a_format = format(model.a_format);
    const Format& b_format = format(model.b_format);
    if (a_format.storage_bits != 8 || b_format.storage_bits != 8 ||
        model.accumulator.kind == AccumulationKind::exact || model.accumulator.terms > 32)
      continue;
    const auto a = finite_codes({3, model.name}, a_format, kTerms);
    const auto b = finite_codes({4, model.name}, b_format, kTerms);
    const auto a_values = unpacked(a_format, a);
    const auto b_values = unpacked(b_format, b);
    for (const std::int64_t interval : {0, 32, 128}) {
      RunningSum sum(model.accumulator, interval);
      const auto step = static_cast<std::size_t>(model.accumulator.terms);
      for (std::size_t at = 0; at < kTerms; at += step) {
        sum.add(std::span(a_values).subspan(at, step), std::span(b_values).subspan(at, step));
        const auto k = static_cast<std::int64_t>(at + step);
        GemmProblem problem;
        problem.model = model.accumulator;
        problem.a = CodeMatrix::row_major(model.a_format, std::span(a).first(at + step), 1, k);
        problem.b = CodeMatrix::row_major(model.b_format, std::span(b).first(at + step), 1, k);
        problem.promotion_interval = interval;
        float expected = 0.0F;
        gemm_reference(problem, {&expected, 1});
        INFO(fmt::format("{}, promotion {}, {} terms", model.name, interval, k));
        CHECK(std::bit_cast<std::uint32_t>(sum.value()) == std::bit_cast<std::uint32_t>(expected));
      }
    }
  }
}

TEST_CASE("explorer: the exact sum is the sum in binary64 where that is exact", "[explorer]") {
  const Format& f = format(FormatId::e4m3fn);
  const auto a = finite_codes({5, "a"}, f, 4096);
  const auto b = finite_codes({5, "b"}, f, 4096);
  ExactSum sum;
  sum.add(unpacked(f, a), unpacked(f, b));
  double expected = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) expected += decode(f, a[i]) * decode(f, b[i]);
  CHECK(sum.value() == expected);
}

TEST_CASE("explorer: what is below a tile's edge is killed, and nothing else", "[explorer]") {
  for (const std::string recipe : {"te-current", "deepseek-v3", "mxfp8-rceil", "naive"})
    for (const bool flush : {false, true})
      for (const int tile : {0, 32, 128}) {
        INFO(fmt::format("{}, tile {}, flush {}", recipe, tile, flush));
        const OutlierQuestion question{
            .recipe = recipe, .outlier = 2e5, .tile = tile, .flush = flush};
        const nlohmann::json answer = parsed(outlier(question));
        const auto size = answer["tile"].get<std::size_t>();
        CHECK(size == (tile == 0 ? 512u : static_cast<std::size_t>(tile)));
        int killed = 0;
        for (std::size_t i = 0; i < answer["x"].size(); ++i) {
          const double x = std::abs(answer["x"][i].get<double>());
          const double edge = answer["tiles"][i / size]["smallest_survivor"].get<double>();
          const bool dead = answer["fates"][i] == "killed";
          CHECK(dead == (x < edge));
          CHECK(dead == (answer["values"][i].get<double>() == 0.0));
          killed += dead ? 1 : 0;
        }
        CHECK(answer["figures"]["killed"].get<int>() == killed);
        CHECK(killed > (recipe == "naive" && !flush ? -1 : 0));
        OutlierQuestion whole = question;
        whole.tile = 0;
        CHECK(answer["per_tensor"] == parsed(outlier(whole))["figures"]);
      }
}

TEST_CASE("explorer: casts at the edges of E4M3", "[explorer]") {
  const auto e4m3 = [](float x, std::string_view profile) {
    const nlohmann::json table = parsed(cast_table(x, profile));
    for (const auto& row : table["rows"])
      if (row["name"] == "e4m3fn") return row;
    return nlohmann::json();
  };
  CHECK(e4m3(464.0F, "nvidia_nosat")["value"] == 448.0);
  CHECK(e4m3(464.0F, "nvidia_nosat")["tie"] == true);
  CHECK(e4m3(464.1F, "nvidia_nosat")["fate"] == "nan");
  CHECK(e4m3(464.1F, "nvidia_satfinite")["fate"] == "saturated");
  CHECK(e4m3(0x1p-10F, "nvidia_satfinite")["fate"] == "underflow");
  CHECK(e4m3(0x1.000002p-10F, "nvidia_satfinite")["fate"] == "subnormal");
  CHECK(e4m3(0.0F, "nvidia_satfinite")["fate"] == "zero");
  CHECK(e4m3(0.3F, "nvidia_satfinite")["code"] == "0x2a");
}

TEST_CASE("explorer: the error of normal numbers is at most half a unit", "[explorer]") {
  const nlohmann::json curve =
      parsed(error_curve(FormatId::e4m3fn, "nvidia_satfinite", 0x1p-6F, 448.0F, 200));
  double largest = 0.0;
  for (const auto& error : curve["relative_error"])
    largest = std::max(largest, error.get<double>());
  CHECK(largest <= 1.0 / 17.0);  // halfway between 1 and 1 + 2^-3
  CHECK(largest > 0.99 / 17.0);
}

TEST_CASE("explorer: bad questions are refused by name", "[explorer]") {
  const auto message = [](const auto& ask) -> std::string {
    return test::message_of([&] { ask(); }, "no error");
  };
  CHECK(message([] { (void)outlier({.position = 512}); }) ==
        "position: expected below 512 elements, got 512");
  CHECK(message([] { (void)accumulation({.promotion_interval = 48}); }) ==
        "promotion_interval: expected 0 or a multiple of the model's 32 terms, got 48");
  CHECK(message([] { (void)accumulation({.model = "exact"}); }) ==
        "model: expected one that rounds on the way, got exact");
  CHECK(message([] { (void)accumulation({.distribution = "cauchy"}); }) ==
        "distribution: expected uniform, normal, correlated or ones, got 'cauchy'");
  CHECK(message([] { (void)error_curve(FormatId::e5m2, "flush", 2.0F, 1.0F, 10); }) ==
        "low, high: expected 0 < low < high, finite, got 2, 1");
}

TEST_CASE("explorer: JSON numbers keep their bits", "[explorer]") {
  for (const double x : {0.1, 1e-320, 0x1.fffffffffffffp+1023, -2.5, 1e22})
    CHECK(parsed(json(x)).get<double>() == x);
  CHECK(json(std::numeric_limits<double>::quiet_NaN()) == "\"NaN\"");
  CHECK(json(-std::numeric_limits<double>::infinity()) == "\"-Infinity\"");
  CHECK(parsed(JsonObject().text("a", "say \"x\"\\").flag("b", true).str()) ==
        nlohmann::json{{"a", "say \"x\"\\"}, {"b", true}});
}

}  // namespace fp8lab::explorer
