#pragma once
// Where a config.json describes the language model, in files of multimodal models too.

#include <vector>

namespace fp8lab {

/// The objects of a parsed config.json that describe a language model, the outermost first: the
/// whole of it, and parts inside. Empty for what is not an object.
template <typename Json>
std::vector<const Json*> language_parts(const Json& config) {
  std::vector<const Json*> parts;
  if (!config.is_object()) return parts;
  parts.push_back(&config);
  for (const char* inner :
       {"text_config", "language_config", "llm_config", "thinker_config", "language_model"})
    if (config.contains(inner))
      for (const Json* part : language_parts(config[inner])) parts.push_back(part);
  return parts;
}

}  // namespace fp8lab
