#include "training/train/monitor.hpp"

#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "catch.hpp"

using namespace fp8lab;
using namespace fp8lab::train;

namespace {

QuantizedTensor unscaled(const std::vector<float>& x) {
  Recipe recipe;
  recipe.rule = ScaleRule::unit;
  return quantize(recipe, {x, 1, static_cast<std::int64_t>(x.size())});
}

FloatMatrix row(const std::vector<float>& x) { return {x, 1, static_cast<std::int64_t>(x.size())}; }

}  // namespace

TEST_CASE("monitor: overflow and underflow of a cast, with warnings", "[train]") {
  TrainingMonitor monitor;
  const std::vector<float> fine{1.0F, -2.0F, 0.0F, 100.0F};
  monitor.observe("fine", row(fine), unscaled(fine));
  CHECK(monitor.warnings().empty());
  const std::vector<float> wide{1e-4F, 1e-5F, 1000.0F, 1.0F};
  monitor.observe("wide", row(wide), unscaled(wide));
  const TensorRecord& record = monitor.tensors().at("wide");
  CHECK(record.cast);
  CHECK(record.amax == 1000.0F);
  CHECK(record.statistics.underflow_percent == 50.0);
  CHECK(record.statistics.overflow_percent == 25.0);
  REQUIRE(monitor.warnings().size() == 2);
  CHECK(monitor.warnings()[0].kind == WarningKind::overflow);
  CHECK(monitor.warnings()[0].value == 25.0);
  CHECK(monitor.warnings()[1].kind == WarningKind::underflow);
  CHECK(monitor.warnings()[1].tensor == "wide");
}

TEST_CASE("monitor: amaxes of the last steps, jumps and what is not finite", "[train]") {
  TrainingMonitor monitor({.history = 3, .amax_jump = 4.0});
  for (const float x : {1.0F, 2.0F, 3.0F, 4.0F}) {
    monitor.observe("x", std::vector<float>{x, -0.5F});
    monitor.end_step();
  }
  const std::deque<float> last{2.0F, 3.0F, 4.0F};
  CHECK(monitor.tensors().at("x").amaxes == last);
  CHECK(monitor.warnings().empty());
  monitor.observe("x", std::vector<float>{20.0F});
  REQUIRE(monitor.warnings().size() == 1);
  CHECK(monitor.warnings()[0].kind == WarningKind::amax_jump);
  CHECK(monitor.warnings()[0].value == 5.0);
  CHECK(monitor.warnings()[0].step == 4);
  monitor.observe("y", std::vector<float>{std::nanf(""), 1.0F});
  REQUIRE(monitor.warnings().size() == 2);
  CHECK(monitor.warnings()[1].kind == WarningKind::not_finite);
  CHECK(monitor.tensors().at("y").amax == 1.0F);
}

TEST_CASE("monitor: the guide's thresholds warn of zeros and of an amax above 448", "[train]") {
  TrainingMonitor monitor(find_monitor_options("guide", "--monitor"));
  const std::vector<float> half{1e-5F, 0.0F, 448.0F, 1.0F};  // 50 % zeros after the cast
  monitor.observe("half", row(half), unscaled(half));
  monitor.observe("half", half);
  CHECK(monitor.warnings().empty());
  const std::vector<float> most{1e-5F, 0.0F, 1e-6F, 449.0F};
  monitor.observe("most", row(most), unscaled(most));
  REQUIRE(monitor.warnings().size() == 2);
  CHECK(monitor.warnings()[0].kind == WarningKind::amax_limit);
  CHECK(monitor.warnings()[0].value == 449.0);
  CHECK(monitor.warnings()[1].kind == WarningKind::zeros);
  CHECK(monitor.warnings()[1].value == 75.0);
  monitor.observe("zeros", std::vector<float>{0.0F, 0.0F, -0.0F, 1.0F});
  REQUIRE(monitor.warnings().size() == 3);
  CHECK(monitor.warnings()[2].value == 75.0);
  CHECK_THROWS_WITH(find_monitor_options("strict", "--monitor"),
                    contains("--monitor: expected") && contains("guide"));
}

TEST_CASE("gradient scale: it doubles while gradients become zero, and halves when they overflow",
          "[train]") {
  TrainingMonitor monitor;
  GradientScaleRule rule({.zero_percent = 20.0, .most = 8.0}, 2.0);
  CHECK(rule.update(monitor) == 2.0);  // nothing was observed
  const std::vector<float> lost{1e-5F, 1.0F, 1.0F, 1.0F};
  const std::vector<float> fine(4, 1.0F);
  monitor.observe("a.gradient", row(lost), unscaled(lost));
  monitor.observe("a.activation", row(lost), unscaled(lost));
  CHECK(rule.update(monitor) == 4.0);  // 25 %
  monitor.observe("b.gradient", row(fine), unscaled(fine));
  CHECK(rule.update(monitor) == 4.0);  // 12.5 % in the mean
  monitor.observe("b.gradient", row(lost), unscaled(lost));
  CHECK(rule.update(monitor) == 8.0);
  CHECK(rule.update(monitor) == 8.0);  // no more
  const std::vector<float> large{1e-5F, 1e-5F, 1000.0F, 1.0F};
  monitor.observe("b.gradient", row(large), unscaled(large));
  CHECK(rule.update(monitor) == 4.0);
  for (int i = 0; i < 4; ++i) (void)rule.update(monitor);
  CHECK(rule.scale() == 1.0);  // no less
  CHECK_THROWS_WITH(GradientScaleRule({.zero_percent = 101.0}, 1.0),
                    contains("zero_percent: expected 0 to 100"));
  CHECK_THROWS_WITH(GradientScaleRule({.overflow_percent = -1.0}, 1.0),
                    contains("overflow_percent: expected 0 to 100"));
  CHECK_THROWS_WITH(GradientScaleRule({.most = 8.0}, 16.0), contains("scale: expected 1 to 8"));
}

TEST_CASE("monitor: the log is one JSON object a line", "[train]") {
  TrainingMonitor monitor;
  std::ostringstream log;
  monitor.log_to(&log);
  const std::vector<float> x{1.0F, 1e-5F};
  monitor.observe("x", row(x), unscaled(x));
  monitor.observe("y", x);
  monitor.end_step({{"loss", 2.5}, {"gap", std::numeric_limits<double>::infinity()}});
  monitor.observe("x", x);
  std::istringstream lines(log.str());
  std::vector<nlohmann::json> objects;
  for (std::string line; std::getline(lines, line);) objects.push_back(nlohmann::json::parse(line));
  REQUIRE(objects.size() == 4);
  CHECK(objects[0]["tensor"] == "x");
  CHECK(objects[0]["underflow_percent"] == 50.0);
  CHECK(!objects[1].contains("underflow_percent"));
  CHECK(objects[2]["loss"] == 2.5);
  CHECK(objects[2]["gap"].is_null());
  CHECK(objects[3]["step"] == 1);
}

TEST_CASE("monitor: every figure of a cast is in its line", "[train]") {
  TrainingMonitor monitor;
  std::ostringstream log;
  monitor.log_to(&log);
  // Four tiles with scales far apart; one element underflows, one overflows, one is NaN.
  std::vector<float> x(4 * 16, 0.5F);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= std::ldexp(1.0F, static_cast<int>(i / 16) * 3);
  x[1] = 1e-12F;
  x[2] = -1e-12F;
  x[40] = std::nanf("");
  Recipe recipe;
  recipe.row_block = 1;
  recipe.k_block = 16;
  const FloatMatrix matrix{x, 1, 64};
  const QuantizedTensor q = quantize(recipe, matrix);
  monitor.observe("x", matrix, q);
  const auto line = nlohmann::json::parse(log.str());
  const QuantizationStatistics s = quantization_statistics(matrix, q);
  for (const auto& [name, value] :
       std::map<std::string, double>{{"underflow_percent", s.underflow_percent},
                                     {"overflow_percent", s.overflow_percent},
                                     {"nan_percent", s.nan_percent},
                                     {"sqnr_db", s.sqnr_db},
                                     {"scale_min", s.scale_min},
                                     {"scale_max", s.scale_max}}) {
    INFO(name << " in " << line.dump());
    REQUIRE(line.contains(name));
    if (std::isfinite(value))
      CHECK(line[name] == value);
    else
      CHECK(line[name].is_null());
  }
  CHECK(s.scale_min < s.scale_max);
  CHECK(s.underflow_percent > 0.0);
}
