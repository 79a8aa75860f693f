#include "training/model_files/stored_quantization.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/formats/format.hpp"
#include "training/model_files/layouts/config_reading.hpp"
#include "training/model_files/layouts/family.hpp"

namespace fp8lab {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<const char*, 2> kKeys{"quantization_config", "compression_config"};
constexpr int kDeepest = 4;  ///< of nested configurations

std::string method_names() {
  std::vector<std::string_view> names;
  for (const LayoutFamily* family : layout_families())
    if (family->config_key() == kKeys[0])
      for (const QuantMethod& method : family->methods()) names.push_back(method.name);
  return fmt::format("{} or {}", fmt::join(names.begin(), names.end() - 1, ", "), names.back());
}

/// ModelOpt's older configurations and Mistral's name no method.
std::string method_of(const Json& config) {
  const std::string method = text_of(config, "quant_method");
  if (!method.empty()) return method;
  if (has_value(config, "qformat_weight")) return "mistral";
  return has_value(config, "quant_algo") ? "modelopt" : "";
}

StoredQuantization read_method(const Json& config, const std::string& where) {
  const std::string method = method_of(config);
  require(!method.empty(), where, "an object with quant_method", brief(config));
  for (const LayoutFamily* family : layout_families())
    for (const QuantMethod& known : family->methods())
      if (known.name == method) {
        StoredQuantization result{.family = family, .method = method, .where = where};
        known.read(config, result);
        return result;
      }
  throw Error(where + ": quant_method", method_names(), fmt::format("'{}'", method.substr(0, 40)));
}

struct Found {
  std::string path;
  const Json* config = nullptr;
};

/// Descriptions in an object and those inside it, the outermost first.
void find_configs(const Json& value, const std::string& path, int depth, std::vector<Found>& out) {
  for (const char* key : kKeys)
    if (has_value(value, key) && value[key] != Json::object())
      out.push_back({path + key, &value[key]});
  if (describes_mistral(value)) out.push_back({path + "quantization", &value["quantization"]});
  if (depth == kDeepest) return;
  for (const auto& [key, member] : value.items())
    if (member.is_object() && key != kKeys[0] && key != kKeys[1])
      find_configs(member, fmt::format("{}{}: ", path, key), depth + 1, out);
}

}  // namespace

std::string describe(const WeightForm& form) {
  if (form.scales == ScaleKind::two_level) return "NVFP4";
  const bool is_mx = form.scales == ScaleKind::e8m0;
  const int bits = format(form.format).code_bits();
  if (bits == 8) return is_mx ? "MXFP8" : "FP8 with plain scales";
  return bits == 4 ? "MXFP4" : "MXFP6";
}

const FormGroup* StoredQuantization::group_of(std::string_view module) const {
  // Exact names and regular expressions come before classes, as in compressed-tensors.
  for (const FormGroup& group : groups)
    if (find_match(group.targets, module) != nullptr) return &group;
  for (const FormGroup& group : groups)
    if (group.is_default) return &group;
  return nullptr;
}

const WeightForm& StoredQuantization::form_of(std::string_view module) const {
  const FormGroup* group = group_of(module);
  return group == nullptr ? form : group->form;
}

bool StoredQuantization::ignores(std::string_view module) const {
  return find_match(ignored, module) != nullptr;
}

std::optional<StoredQuantization> read_quantization(const std::string& text,
                                                    const std::string& where) {
  const Json config = parse_json<Json>(text, where);
  require(config.is_object(), where, "a JSON object", config.type_name());
  std::vector<Found> found;
  find_configs(config, where + ": ", 0, found);
  if (found.empty()) return std::nullopt;
  for (const Found& other : found)
    require(*other.config == *found[0].config, other.path, "what " + found[0].path + " says",
            brief(*other.config));
  StoredQuantization stored = read_method(*found[0].config, found[0].path);
  stored.family->read_beside(config, stored);
  return stored;
}

StoredQuantization read_own_file(const LayoutFamily& family, const std::string& text,
                                 const std::string& where) {
  const Json config = parse_json<Json>(text, where);
  require(
      config.is_object() && has_value(config, "quantization") && config["quantization"].is_object(),
      where, "an object with quantization", brief(config));
  const QuantMethod& method = family.methods().front();
  StoredQuantization stored{
      .family = &family, .method = std::string(method.name), .where = where + ": quantization"};
  method.read(config["quantization"], stored);
  return stored;
}

}  // namespace fp8lab
