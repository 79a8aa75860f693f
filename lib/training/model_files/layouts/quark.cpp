// AMD's Quark, which is read and never written. Its folders hold E4M3: it converts codes to
// E4M3FNUZ in memory (amd-quark 0.13, torch/export/utils.py).

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "fp8lab/formats/format.hpp"
#include "training/model_files/layouts/config_reading.hpp"
#include "training/model_files/layouts/family.hpp"

namespace fp8lab {
namespace {

using Json = nlohmann::ordered_json;

/// A weight's specification in Quark's words.
WeightForm read_quark_weights(const Json& layer, const std::string& where) {
  const Json weight = layer.is_object() ? layer.value("weight", Json()) : Json();
  const std::string type = text_of(weight, "dtype");
  const std::string scheme = text_of(weight, "qscheme");
  if (type == "fp8_e4m3" && scheme == "per_tensor") return {.tiles = WeightTiles::tensor};
  if (type == "fp8_e4m3" && scheme == "per_channel") return {.tiles = WeightTiles::row};
  const bool is_mx = scheme == "per_group" && unsigned_of(weight, "group_size") == 32 &&
                     text_of(weight, "scale_format") == "e8m0";
  if (is_mx && type == "fp4") return group_form(FormatId::e2m1, ScaleKind::e8m0);
  if (is_mx && type == "fp6_e2m3") return group_form(FormatId::e2m3, ScaleKind::e8m0);
  if (is_mx && type == "fp6_e3m2") return group_form(FormatId::e3m2, ScaleKind::e8m0);
  if (is_mx && type == "fp8_e4m3") return group_form(FormatId::e4m3fn, ScaleKind::e8m0);
  throw Error(where + ": weight",
              "fp8_e4m3 per tensor or channel, or fp4, fp6 or fp8_e4m3 in groups of 32 with e8m0 "
              "scales",
              brief(weight));
}

void read_quark(const Json& config, StoredQuantization& stored) {
  read_ignored(config, {"exclude"}, PatternKind::quark, stored);
  const Json cache = config.value("kv_cache_quant_config", Json());
  if (cache.is_object() && !cache.empty()) read_kv_scheme(config, "kv_cache_quant_config", stored);
  const Json exported = config.value("export", Json());
  if (exported.is_object() && !exported.value("kv_cache_group", Json::array()).empty())
    read_kv_scheme(exported, "kv_cache_group", stored);
  const Json layers = config.value("layer_quant_config", Json());
  if (layers.is_object())
    for (const auto& [name, layer] : layers.items()) {
      const std::string where = fmt::format("{}: layer_quant_config: {}", stored.where, name);
      FormGroup group{.name = name, .targets = {}, .form = {}};
      read_form(group, [&, &one = layer] { return read_quark_weights(one, where); });
      group.targets.emplace_back(name, PatternKind::quark, where);
      stored.groups.push_back(std::move(group));
    }
  const Json global = config.value("global_quant_config", Json());
  if (has_value(global, "weight"))
    stored.form = read_quark_weights(global, stored.where + ": global_quant_config");
  const Json inputs = global.is_object() ? global.value("input_tensors", Json()) : Json();
  stored.static_inputs =
      inputs.is_object() && inputs.contains("is_dynamic") && inputs["is_dynamic"] == false;
  stored.has_forms = true;
}

constexpr std::array<QuantMethod, 1> kQuarkMethods{{{"quark", read_quark}}};

class Quark final : public LayoutFamily {
 public:
  [[nodiscard]] std::span<const QuantMethod> methods() const override { return kQuarkMethods; }
};

}  // namespace

const LayoutFamily& quark_family() {
  static const Quark kFamily;
  return kFamily;
}

}  // namespace fp8lab
