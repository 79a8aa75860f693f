#pragma once
// Which modules of a model are converted: a rule, and patterns beside it.

#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/io/safetensors.hpp"
#include "fp8lab/linear/layer_rule.hpp"
#include "training/model_files/layout.hpp"
#include "training/model_files/model_directory.hpp"
#include "training/model_files/name_pattern.hpp"

namespace fp8lab {

/// Patterns are those of compressed-tensors: a module's whole name, or `re:` and a regular
/// expression that matches the start of one.
class ModuleChoice {
 public:
  /// Throws `Error` for an unknown rule and for patterns that are not valid.
  ModuleChoice(std::string_view rule, const std::vector<std::string>& ignore,
               const std::vector<std::string>& only);

  [[nodiscard]] const LayerRule& rule() const { return rule_; }

  /// Which pattern keeps a tensor as it is; empty where none does.
  [[nodiscard]] std::string reason_to_keep(const TensorSpec& tensor) const;

  /// The decision by patterns, rule and type.
  [[nodiscard]] LayerDecision decide(const TensorSpec& tensor) const;

  /// Throws `Error` naming a pattern that matches no module among `shards`: it is mistyped.
  void require_matches(const std::vector<WeightShard>& shards) const;

 private:
  const LayerRule& rule_;
  std::vector<NamePattern> ignore_;
  std::vector<NamePattern> only_;
};

}  // namespace fp8lab
