#include "lab/experiment/model_parameters.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/model_text.hpp"

namespace fp8lab {
namespace {

/// The parameter's texts, each put through `change`.
template <class Change>
void change_texts(Parameters& parameters, std::string_view key, const Change& change) {
  const ParameterValue& value = parameters.values().find(key)->second;
  if (const auto* text = std::get_if<std::string>(&value)) {
    parameters.set(fmt::format("{}=\"{}\"", key, change(*text)));
    return;
  }
  std::string list;
  for (const std::string& text : std::get<std::vector<std::string>>(value))
    list += fmt::format("{}\"{}\"", list.empty() ? "" : ", ", change(text));
  parameters.set(fmt::format("{}=[{}]", key, list));
}

}  // namespace

bool holds_models(const Parameters& parameters, std::string_view key) {
  const auto value = parameters.values().find(key);
  const auto range = parameters.ranges().find(key);
  if (value == parameters.values().end() || range == parameters.ranges().end()) return false;
  const bool texts = std::holds_alternative<std::string>(value->second) ||
                     std::holds_alternative<std::vector<std::string>>(value->second);
  return texts && range->second.interval == kModelsRange;
}

ParameterPart parameter_part(std::string_view key) {
  const auto dot = key.find('.');
  if (dot == std::string_view::npos) return {key, {}};
  return {key.substr(0, dot), key.substr(dot + 1)};
}

void set_model_part(Parameters& parameters, const ParameterPart& part, std::string_view value) {
  if (!holds_models(parameters, part.key)) {
    std::string known;
    for (const auto& [key, unused] : parameters.values())
      if (holds_models(parameters, key)) known += (known.empty() ? "" : ", ") + key;
    throw Error(fmt::format("set {}.{}", part.key, part.part),
                known.empty() ? "KEY=VALUE: no parameter here names models"
                              : fmt::format("PARAMETER.{}, of {}", part.part, known),
                fmt::format("'{}'", part.key));
  }
  const std::string argument = fmt::format("set {}.{}", part.key, part.part);
  change_texts(parameters, part.key, [&](const std::string& text) {
    ModelText model = ModelText::parse(argument, text);
    model.set(part.part, value);
    const bool one = ModelText::parse(argument, model.text()) == model;
    require(one, argument, "one value", fmt::format("'{}'", value));
    return model.text();
  });
}

void resolve_models(Parameters& parameters,
                    const std::function<std::string(std::string_view)>& resolve) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : parameters.values())
    if (holds_models(parameters, key)) keys.push_back(key);
  for (const std::string& key : keys)
    change_texts(parameters, key, [&](const std::string& text) {
      try {
        return resolve(text);
      } catch (const Error& error) {
        throw Error(fmt::format("{}: {}", key, error.what()));
      }
    });
}

}  // namespace fp8lab
