#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <system_error>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/core/machine.hpp"
#include "lab/experiment/result_files.hpp"
#include "lab/sweep/sweep.hpp"

namespace fp8lab {
namespace {

using Json = nlohmann::ordered_json;

std::string axis_text(const GridAxis& axis) {
  std::string text = axis.key + "=";
  for (const AxisValue& value : axis.values) {
    if (&value != axis.values.data()) text += ',';
    text += std::visit([](const auto& cell) { return fmt::format("{}", cell); }, value.cell);
  }
  return text;
}

}  // namespace

std::int64_t SweepPlan::points() const {
  return (grid.size() - shard.index + shard.count - 1) / shard.count;
}

std::string SweepPlan::identity() const {
  Json parameters = Json::object();
  for (const auto& [key, value] : grid.base.values()) parameters[key] = grid.base.to_toml(key);
  Json axes = Json::array();
  for (const GridAxis& axis : grid.axes) axes.push_back(axis_text(axis));
  const Json identity{{"experiment", grid.experiment},
                      {"version", build_version()},
                      {"quick", quick},
                      {"seed", grid.seed},
                      {"repeats", grid.repeats},
                      {"axes", axes},
                      {"parameters", parameters},
                      {"shard", fmt::format("{}/{}", shard.index, shard.count)}};
  return json_text(identity);
}

std::string SweepPlan::command() const {
  std::string command = fmt::format("fp8lab sweep {}", grid.experiment);
  if (quick) command += " --quick";
  const Parameters defaults = Parameters::from_toml(experiment->default_toml, quick);
  for (const auto& [key, value] : grid.base.values())
    if (grid.base.to_toml(key) != defaults.to_toml(key))
      command += " --set " + shell_quoted(key + "=" + grid.base.to_toml(key));
  for (const GridAxis& axis : grid.axes) command += " --axis " + shell_quoted(axis_text(axis));
  return fmt::format("{} --repeat {} --seed {}", command, grid.repeats, grid.seed);
}

namespace {

Shard shard_of(const std::string& text) {
  Shard shard;
  const char* const end = text.data() + text.size();
  const auto index = std::from_chars(text.data(), end, shard.index);
  const bool has_slash = index.ec == std::errc{} && index.ptr != end && *index.ptr == '/';
  const auto count = std::from_chars(has_slash ? index.ptr + 1 : end, end, shard.count);
  const bool whole = count.ec == std::errc{} && count.ptr == end;
  require(whole && shard.index >= 0 && shard.index < shard.count, "sweep: shard", "INDEX/COUNT",
          "'" + text + "'");
  return shard;
}

}  // namespace

SweepPlan plan_of_identity(std::string_view identity, FindExperiment find) {
  const auto json = parse_json<Json>(identity, "sweep");
  SweepPlan plan;
  try {
    const std::string version = json.at("version");
    require(version == build_version(), "sweep: version", build_version(), version);
    plan.grid.experiment = json.at("experiment");
    plan.experiment = &find(plan.grid.experiment);
    plan.quick = json.at("quick");
    plan.grid.seed = json.at("seed");
    plan.grid.repeats = json.at("repeats");
    plan.grid.base = Parameters::from_toml(plan.experiment->default_toml, plan.quick);
    for (const auto& [key, toml] : json.at("parameters").items())
      plan.grid.base.set(fmt::format("{}={}", key, toml.get<std::string>()));
    for (const Json& axis : json.at("axes"))
      plan.grid.axes.push_back(parse_axis(axis.get<std::string>(), plan.grid.base));
    plan.shard = shard_of(json.at("shard").get<std::string>());
  } catch (const Json::exception& error) {
    throw Error("sweep", "the plan in the log of the sweep", json_reason(error));
  }
  plan.grid.validate();
  return plan;
}

}  // namespace fp8lab
