#include "training/model_files/layouts/config_reading.hpp"

#include <fmt/format.h>

#include "fp8lab/core/json_text.hpp"

namespace fp8lab {
namespace {

using Json = nlohmann::ordered_json;

/// "128x128", as older files of compressed-tensors have it, as a list; other values as they are.
Json block_list(const Json& value) {
  if (!value.is_string()) return value;
  const auto text = value.get<std::string>();
  const std::size_t x = text.find('x');
  const bool fits = x != std::string::npos && x > 0 && x < 7 && text.size() - x - 1 < 7 &&
                    text.size() > x + 1 && text.find_first_not_of("0123456789") == x &&
                    text.find_first_not_of("0123456789", x + 1) == std::string::npos;
  return fits ? Json{std::stoull(text.substr(0, x)), std::stoull(text.substr(x + 1))} : value;
}

}  // namespace

std::string brief(const Json& value) { return json_text(value).substr(0, 80); }

std::string text_of(const Json& value, const char* key) {
  if (!value.is_object() || !value.contains(key) || !value[key].is_string()) return {};
  return value[key].get<std::string>();
}

std::int64_t unsigned_of(const Json& value, const char* key) {
  if (!value.is_object() || !value.contains(key) || !value[key].is_number_unsigned()) return 0;
  return value[key].get<std::int64_t>();
}

bool describes_mistral(const Json& value) {
  if (!has_value(value, "quantization")) return false;
  const Json& said = value["quantization"];
  return has_value(said, "qformat_weight") || has_value(said, "quant_method");
}

bool has_value(const Json& value, const char* key) {
  return value.is_object() && value.contains(key) && !value[key].is_null();
}

void read_block(const Json& said, const std::string& where, WeightForm& form) {
  if (said.is_null()) return;
  const Json value = block_list(said);
  const bool fits = value.is_array() && value.size() == 2 && value[0].is_number_unsigned() &&
                    value[1].is_number_unsigned() && value[0] > 0 && value[1] > 0;
  require(fits, where, "[rows, columns] of a block", brief(value));
  form.row_block = value[0].get<std::int64_t>();
  form.k_block = value[1].get<std::int64_t>();
}

WeightForm group_form(FormatId format, ScaleKind scales) {
  return {format, scales, 1, scales == ScaleKind::two_level ? 16 : 32, WeightTiles::group};
}

std::vector<NamePattern> read_patterns(const Json& config, const char* key, PatternKind kind,
                                       const std::string& where) {
  std::vector<NamePattern> patterns;
  if (!has_value(config, key)) return patterns;
  const std::string argument = fmt::format("{}: {}", where, key);
  require(config[key].is_array(), argument, "a list of modules", brief(config[key]));
  for (const Json& name : config[key]) {
    require(name.is_string(), argument, "names of modules", brief(name));
    if (!name.get_ref<const std::string&>().empty())
      patterns.emplace_back(name.get<std::string>(), kind, argument);
  }
  return patterns;
}

void read_ignored(const Json& config, std::initializer_list<const char*> keys, PatternKind kind,
                  StoredQuantization& stored) {
  for (const char* key : keys)
    for (NamePattern& pattern : read_patterns(config, key, kind, stored.where))
      stored.ignored.push_back(std::move(pattern));
}

void read_kv_scheme(const Json& config, const char* key, StoredQuantization& stored) {
  if (!has_value(config, key)) return;
  stored.quantizes_kv = true;
  const Json& scheme = config[key];
  const Json dynamic = scheme.is_object() ? scheme.value("dynamic", Json()) : Json();
  const std::string name = scheme.is_string() ? scheme.get<std::string>() : std::string();
  // "local": groups have scales of their own under the tensor's from the file.
  stored.kv_is_static = name == "static" || name == "FP8" || name == "INT8" ||
                        name.starts_with("NVFP4") || dynamic == false || dynamic == "local";
  stored.kv_bits = unsigned_of(scheme, "num_bits");
  if (name == "FP8" || name == "INT8") stored.kv_bits = 8;
  if (name.starts_with("NVFP4")) stored.kv_bits = 4;
  stored.kv_scheme = config[key].is_string() ? config[key].get<std::string>() : brief(config[key]);
}

}  // namespace fp8lab
