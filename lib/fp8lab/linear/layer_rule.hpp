#pragma once
// Module filters: which weights of a model a system converts to FP8, and why it
// leaves the others.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fp8lab {

/// A rule knows the names and shapes in a file, but not the classes of modules: an
/// embedding with another name looks like a linear layer.
struct LayerRule {
  std::string_view name;
  std::vector<std::string_view> skipped_parts;    ///< anywhere in the module's name, any case
  std::vector<std::string_view> skipped_endings;  ///< at the end of the module's name
  std::int64_t multiple = 1;                      ///< both dimensions must be multiples of it
  std::string_view used_by;                       ///< systems that convert by this rule
};

/// The rules by name:
/// llama-factory  not embed, lm_head, output, classifier; both dimensions multiples
///                of 16 (*read* in its module filter). Also skips BERT's `attention.output`.
/// deepseek-v3    not embed, head, norm, nor the router `.gate` (its report, section 3.3.1)
/// linear         not embed, lm_head, norm, nor routers (`.gate`, `.router`, `shared_expert_gate`):
///                LLM Compressor 0.14, ModelOpt 0.47 and transformers 5.23 by default (*read* in
///                their examples and default configurations); nor what is inside a `router`
/// language       as linear, and not vision and audio towers and their projectors, heads for
///                several tokens (mtp, nextn), and the weights of DeepSeek's indexer (*read* in
///                vLLM's models: they are built without quantization)
/// all            every matrix
std::span<const LayerRule> layer_rules();

/// The rule called `name`. Throws `Error` that lists the names.
const LayerRule& find_layer_rule(std::string_view name);

struct LayerDecision {
  bool converts = false;
  std::string reason;  ///< why not; empty if it converts
};

/// The rule's decision for a tensor of this shape. `name` is that in a checkpoint; the module's
/// name is the part before `.weight`.
LayerDecision decide(const LayerRule& rule, std::string_view name,
                     std::span<const std::int64_t> shape);

}  // namespace fp8lab
