#include "training/model_files/module_choice.hpp"

#include <fmt/format.h>

#include "fp8lab/core/argument.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab {
namespace {

std::vector<NamePattern> compile(const std::vector<std::string>& patterns, const char* option) {
  std::vector<NamePattern> list;
  for (const std::string& text : patterns)
    list.emplace_back(text, PatternKind::compressed_tensors, argument(option));
  return list;
}

/// The module of a weight; a fused parameter stands for itself.
std::string_view module_or_name(const std::string& tensor) {
  const std::string_view module = module_of(tensor);
  return module.empty() ? std::string_view(tensor) : module;
}

void require_match(const std::vector<NamePattern>& patterns, const char* option,
                   const std::vector<WeightShard>& shards) {
  for (const NamePattern& pattern : patterns) {
    bool matches = false;
    for (const WeightShard& shard : shards)
      for (const TensorSpec& tensor : shard.tensors)
        matches = matches || pattern.matches(module_or_name(tensor.name));
    require(matches, argument(option),
            "the name of a module, or re: and a pattern that matches one",
            fmt::format("'{}', which matches none", pattern.text()));
  }
}

}  // namespace

ModuleChoice::ModuleChoice(std::string_view rule, const std::vector<std::string>& ignore,
                           const std::vector<std::string>& only)
    : rule_(find_layer_rule(rule)),
      ignore_(compile(ignore, "ignore")),
      only_(compile(only, "only")) {}

std::string ModuleChoice::reason_to_keep(const TensorSpec& tensor) const {
  const std::string_view module = module_or_name(tensor.name);
  if (const NamePattern* pattern = find_match(ignore_, module))
    return fmt::format("ignored by {}", pattern->text());
  if (!only_.empty() && find_match(only_, module) == nullptr)
    return "not among the modules that are asked for";
  return {};
}

LayerDecision ModuleChoice::decide(const TensorSpec& tensor) const {
  const std::string reason = reason_to_keep(tensor);
  return reason.empty() ? fp8lab::decide(rule_, tensor) : LayerDecision{false, reason};
}

void ModuleChoice::require_matches(const std::vector<WeightShard>& shards) const {
  require_match(ignore_, "ignore", shards);
  require_match(only_, "only", shards);
}

}  // namespace fp8lab
