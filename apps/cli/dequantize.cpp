#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "command.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "model_progress.hpp"
#include "say.hpp"
#include "training/model_files/dequantize_model.hpp"
#include "training/model_files/layout.hpp"
#include "training/model_files/stored_model.hpp"

namespace fp8lab::cli {
namespace {

struct DequantizeArguments {
  std::string input;
  std::string output;
  std::string layout;
  std::string dtype;
  bool json = false;
};

constexpr std::size_t kMostNames = 8;

/// Scales that floats do not need, a line for each kind.
void warn_of_dropped(const DequantizedModel& model) {
  std::map<std::string, std::vector<std::string>> names;
  for (const DroppedTensor& tensor : model.dropped) names[tensor.of].push_back(tensor.name);
  for (const auto& [kind, list] : names) {
    const std::span<const std::string> first(list.data(), std::min(kMostNames, list.size()));
    const bool is_mark = kind == to_string(SideScale::marker);
    say(stderr, "warning: {} of {} dropped, which a model in floats does not have: {}{}\n",
        counted(list.size(), is_mark ? "mark" : "scale"), is_mark ? "ComfyUI" : kind,
        fmt::to_string(fmt::join(first, ", ")), list.size() > kMostNames ? ", ..." : "");
  }
}

void warn(const DequantizedModel& model) {
  for (const std::string& name : model.kept_codes)
    say(stderr, "warning: {} stays FP8: the configuration lists its module as not converted\n",
        name);
  for (const std::string& name : model.kept_scales)
    say(stderr, "warning: {} stays: its module has no quantized weight\n", name);
  for (const NonFiniteWeight& weight : model.non_finite)
    say(stderr, "warning: {}: {}\n", weight.name, describe(weight));
  warn_of_dropped(model);
}

nlohmann::ordered_json dropped_json(const DequantizedModel& model) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const DroppedTensor& tensor : model.dropped)
    list.push_back({{"name", tensor.name}, {"of", tensor.of}});
  return list;
}

nlohmann::ordered_json non_finite_json(const DequantizedModel& model) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const NonFiniteWeight& weight : model.non_finite)
    list.push_back({{"name", weight.name},
                    {"elements", weight.elements},
                    {"nan", weight.values.nan},
                    {"infinite", weight.values.infinite},
                    {"nan_scales", weight.nan_scales},
                    {"infinite_scales", weight.infinite_scales},
                    {"zero_scales", weight.zero_scales}});
  return list;
}

int run(const DequantizeArguments& options) {
  DequantizeModelOptions request{options.layout, {}};
  if (!options.dtype.empty()) {
    request.type = find_element_type(options.dtype);
    require(is_float_of_32_bits_or_fewer(*request.type), "--dtype", "f32, bf16 or f16",
            options.dtype);
  }
  if (!options.layout.empty()) (void)find_layout(options.layout);
  const ModelDirectory source(options.input);
  DequantizedModel model;
  {
    ModelProgress progress("dequantize");
    model = dequantize_model(source, request, options.output, progress.callback());
  }
  warn(model);
  if (options.json) {
    nlohmann::ordered_json converted = nlohmann::ordered_json::array();
    for (const TensorSpec& tensor : model.converted)
      converted.push_back(
          {{"name", tensor.name}, {"dtype", to_string(tensor.type)}, {"shape", tensor.shape}});
    const nlohmann::ordered_json report{{"converted", converted},
                                        {"kept_codes", model.kept_codes},
                                        {"kept_scales", model.kept_scales},
                                        {"dropped", dropped_json(model)},
                                        {"non_finite", non_finite_json(model)},
                                        {"files", to_json(model.files)}};
    fmt::print("{}\n", json_text(report, 2));
    return kPass;
  }
  say("{} weights became {}\n", model.converted.size(), to_string(model.converted.front().type));
  print_summary(model.files);
  return kPass;
}

}  // namespace

void add_dequantize(Command& app, Action& action) {
  auto options = std::make_shared<DequantizeArguments>();
  std::string layout_help = "layout; default: the one that config.json names. Layouts:";
  for (const Layout& layout : layouts()) layout_help += " " + std::string(layout.name);
  Command* command =
      app.add_subcommand("dequantize", "Convert an FP8 model's folder back to floats");
  command->add_option("MODEL", options->input, "the model's folder, or its index")->required();
  command->add_option("-o,--output", options->output, "a new or empty folder")->required();
  command->add_option("--layout", options->layout, layout_help);
  command->add_option("--dtype", options->dtype, "f32, bf16 or f16 (default: the model's)");
  command->add_flag("--json", options->json, "machine-readable output");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace fp8lab::cli
