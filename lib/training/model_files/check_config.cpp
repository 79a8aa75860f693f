// config.json against the files: lists of modules, formats, and the parts that a model of its sizes
// has. Tensors of one kind against each other, where config.json says nothing.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <tuple>

#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/io/files.hpp"
#include "training/model_files/check_parts.hpp"
#include "training/model_files/language_config.hpp"

namespace fp8lab {
namespace {

using ConfigJson = nlohmann::json;

/// Layers from which a tensor that is unlike the others is told.
constexpr std::int64_t kEnoughLayers = 3;
/// Tensors of one kind that are unlike the others: at most one of this many.
constexpr std::int64_t kRare = 4;

ConfigJson model_config(const ModelDirectory& source) {
  const auto path = source.config();
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  return parse_json<ConfigJson>(read_file(path), path.string());
}

std::int64_t number_of(const ConfigJson& config, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    for (const ConfigJson* part : language_parts(config))
      if (part->contains(key) && (*part)[key].is_number_unsigned())
        return (*part)[key].get<std::int64_t>();
  return 0;
}

std::string_view leaf_name(std::string_view name) { return name.substr(name.rfind('.') + 1); }

bool is_among(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

template <class Work>
void for_each_tensor(const ModelDirectory& source, const Work& work) {
  for (const WeightShard& shard : source.shards())
    for (const TensorSpec& tensor : shard.tensors) work(tensor);
}

/// The part of a module's name that loaders do not rename: from its layer on.
std::string from_layer(const std::string& module) {
  for (const std::string_view list : {".layers.", ".blocks.", ".h."}) {
    const Numbered part = split_number("." + module + ".", list);
    if (part.number < 0) continue;
    return fmt::format("{}{}{}", list, part.number, part.after);
  }
  return {};
}

bool is_plain_name(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '.';
  });
}

/// Modules of a layer that the list of those that stay names, and no file has.
void check_listed(const ModelDirectory& source, const StoredModel& model,
                  std::vector<Finding>& findings) {
  std::vector<std::pair<std::string, std::string>> listed;
  for (const NamePattern& pattern : model.stored.ignored) {
    if (!is_plain_name(pattern.text())) continue;
    const std::string tail = from_layer(pattern.text());
    if (!tail.empty()) listed.emplace_back(pattern.text(), tail);
  }
  if (listed.empty()) return;
  std::set<std::string> known;  // of each tensor, all parts of its name from the layer on
  for_each_tensor(source, [&](const TensorSpec& tensor) {
    std::string tail = from_layer(tensor.name);
    while (!tail.empty() && known.insert(tail).second) {
      tail.pop_back();
      tail.erase(tail.rfind('.') + 1);
    }
  });
  for (const auto& [name, tail] : listed)
    if (!known.contains(tail))
      findings.push_back({"names", name,
                          fmt::format("expected a module of the files, since {} lists it among "
                                      "those that stay, got none",
                                      model.stored.where)});
}

struct FormatName {
  std::string_view name;
  std::string_view form;
};

/// The formats of compressed-tensors with the weights that they pack.
constexpr std::array<FormatName, 6> kFormats{{{"float-quantized", "FP8 with plain scales"},
                                              {"naive-quantized", "FP8 with plain scales"},
                                              {"nvfp4-pack-quantized", "NVFP4"},
                                              {"mxfp4-pack-quantized", "MXFP4"},
                                              {"mxfp6-pack-quantized", "MXFP6"},
                                              {"mxfp8-quantized", "MXFP8"}}};

void check_formats(const StoredModel& model, std::vector<Finding>& findings) {
  for (const FormGroup& group : model.stored.groups)
    for (const FormatName& known : kFormats)
      if (known.name == group.format && known.form != describe(group.form) && group.fault.empty())
        findings.push_back(
            {"config", "config.json",
             fmt::format("expected the format of {} in {}: {}, got {}", describe(group.form),
                         model.stored.where, group.name, group.format)});
}

/// Groups that name modules of their own and match none, and weights that no group matches.
void check_groups(const StoredModel& model, std::vector<Finding>& findings) {
  const bool has_default = std::any_of(model.stored.groups.begin(), model.stored.groups.end(),
                                       [](const FormGroup& group) { return group.is_default; });
  std::set<const FormGroup*> used;
  for (const StoredWeight& weight : model.weights) {
    const FormGroup* group = model.stored.group_of(weight.module);
    used.insert(group);
    if (group == nullptr && !has_default && !model.stored.groups.empty() &&
        model.stored.method == "compressed-tensors")
      findings.push_back({"config", weight.codes.name,
                          fmt::format("expected a group that targets its module in {}, got none",
                                      model.stored.where)});
  }
  if (model.stored.method != "compressed-tensors") return;
  for (const FormGroup& group : model.stored.groups)
    if (!group.is_default && !used.contains(&group))
      findings.push_back({"config", group.name,
                          fmt::format("expected quantized modules that this group of {} targets, "
                                      "got none",
                                      model.stored.where)});
}

/// Modules that servers build in higher precision whatever the configuration says: routers of
/// experts, embeddings and norms.
void check_high_precision(const ModelDirectory& source, const StoredModel& model,
                          std::vector<Finding>& findings) {
  std::set<std::string> blocks;  // with experts
  for_each_tensor(source, [&](const TensorSpec& tensor) {
    const std::size_t at = tensor.name.find(".experts.");
    if (at != std::string::npos) blocks.insert(tensor.name.substr(0, at));
  });
  for (const StoredWeight& weight : model.weights) {
    const std::string_view leaf = leaf_name(weight.module);
    const std::size_t dot = weight.module.rfind('.');
    const std::string block = weight.module.substr(0, dot == std::string::npos ? 0 : dot);
    const bool is_router =
        blocks.contains(block) && is_among(leaf, {"gate", "router", "shared_expert_gate", "wg"});
    const bool is_embedding = is_among(leaf, {"embed_tokens", "wte", "word_embeddings", "embed"});
    const bool is_vector = weight.codes.shape.size() == 1;
    if (is_router || is_embedding || is_vector)
      findings.push_back({"names", weight.codes.name,
                          fmt::format("expected floats, since servers do not quantize {}, got "
                                      "codes",
                                      is_router      ? "routers"
                                      : is_embedding ? "embeddings"
                                                     : "vectors")});
  }
}

/// How scales of one kind of weights are stored.
using ScaleStorage = std::tuple<std::string_view, ElementType, std::size_t>;

std::string storage_text(const ScaleStorage& storage) {
  const auto& [ending, type, dimensions] = storage;
  return fmt::format("{} with {} of {}", ending, to_string(type), counted(dimensions, "dimension"));
}

/// Weights of one form have scales of one name, type and number of dimensions.
void check_alike(const StoredModel& model, std::vector<Finding>& findings) {
  std::map<std::string, std::map<ScaleStorage, std::vector<const StoredWeight*>>> kinds;
  for (const StoredWeight& weight : model.weights) {
    const bool by_tensor = weight.row_block >= weight.rows && weight.k_block >= weight.k;
    const std::string kind = fmt::format(
        "{} {} {} {}", describe(weight.form), weight.codes.shape.size(), weight.names->codes,
        by_tensor && element_count(weight.scale.spec.shape, "") == 1);
    kinds[kind][{weight.names->scale, weight.scale.spec.type, weight.scale.spec.shape.size()}]
        .push_back(&weight);
  }
  for (const auto& [kind, storages] : kinds) {
    const auto most = std::max_element(
        storages.begin(), storages.end(),
        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    for (const auto& [storage, weights] : storages)
      if (weights.size() * kRare <= most->second.size())
        for (const StoredWeight* weight : weights)
          findings.push_back({"type", weight->scale.spec.name,
                              fmt::format("expected scales as those of {}, {}, got {}",
                                          counted(most->second.size(), "other weight"),
                                          storage_text(most->first), storage_text(storage))});
  }
}

/// The name of a tensor that is a model's first or last part.
bool is_head(std::string_view name) {
  return name.ends_with(".weight") &&
         is_among(leaf_name(name.substr(0, name.size() - 7)),
                  {"lm_head", "head", "output", "embed_out", "output_layer"});
}

bool is_embedding_name(std::string_view name) {
  return name.find("layers.") == std::string_view::npos &&
         (name.find("embed") != std::string_view::npos || name.ends_with("wte.weight"));
}

bool is_last_norm(std::string_view name) {
  return name.find("layers.") == std::string_view::npos &&
         name.find("norm") != std::string_view::npos && name.ends_with(".weight");
}

/// Whether a configuration says that the head has a matrix of its own.
bool has_own_head(const ConfigJson& config) {
  bool says = false;
  for (const ConfigJson* part : language_parts(config))
    if (part->contains("tie_word_embeddings")) {
      if ((*part)["tie_word_embeddings"] != false) return false;
      says = true;
    }
  return says;
}

/// An embedding, a last norm and a head: where two of them are there, the third was lost.
void check_ends(const ModelDirectory& source, const ConfigJson& config,
                std::vector<Finding>& findings) {
  std::string embedding;
  std::string norm;
  std::string head;
  bool has_norms = false;
  for_each_tensor(source, [&](const TensorSpec& tensor) {
    if (is_head(tensor.name)) head = tensor.name;
    if (is_embedding_name(tensor.name)) embedding = tensor.name;
    if (is_last_norm(tensor.name)) norm = tensor.name;
    has_norms = has_norms || (tensor.name.find("norm") != std::string::npos);
  });
  const auto tell = [&](std::string_view what, const std::string& first,
                        const std::string& second) {
    findings.push_back({"missing tensor", std::string(what),
                        fmt::format("expected it beside {} and {}, got none", first, second)});
  };
  if (head.empty() && !embedding.empty() && !norm.empty() && has_own_head(config))
    tell("the head (lm_head.weight; tie_word_embeddings is false)", embedding, norm);
  if (embedding.empty() && !norm.empty() && !head.empty())
    tell("the embedding (embed_tokens.weight)", norm, head);
  if (norm.empty() && has_norms && !embedding.empty() && !head.empty())
    tell("the last norm (norm.weight)", embedding, head);
}

/// As many experts as config.json says.
void check_expert_counts(const ModelDirectory& source, const ConfigJson& config,
                         std::vector<Finding>& findings) {
  const std::int64_t said = number_of(
      config, {"n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts"});
  if (said == 0) return;
  std::map<std::string, std::int64_t> counts;
  for_each_tensor(source, [&](const TensorSpec& tensor) {
    const Numbered part = split_number(tensor.name, ".experts.");
    if (part.number >= 0)
      counts[part.before] = std::max(counts[part.before], part.number + 1);
    else if (tensor.name.find(".experts.") != std::string::npos && tensor.shape.size() >= 3)
      counts[tensor.name] = tensor.shape[0];
  });
  for (const auto& [name, count] : counts)
    if (count < said)
      findings.push_back(
          {"missing tensor", name,
           fmt::format("expected {} experts, which config.json says, got {}", said, count)});
}

/// The shape of a tensor in one layer that all other layers have otherwise.
void check_shapes(const ModelDirectory& source, std::vector<Finding>& findings) {
  std::map<std::string, std::map<std::vector<std::int64_t>, std::vector<std::string>>> kinds;
  for_each_tensor(source, [&](const TensorSpec& tensor) {
    const Numbered part = split_number("." + tensor.name, ".layers.");
    if (part.number < 0 || tensor.shape.empty()) return;
    const Numbered expert = split_number(part.after, ".experts.");
    const std::string after =
        expert.number < 0 ? part.after : fmt::format("{}*{}", expert.before, expert.after);
    kinds[part.before + "*" + after][tensor.shape].push_back(tensor.name);
  });
  for (const auto& [kind, shapes] : kinds) {
    if (shapes.size() != 2) continue;
    const auto& [first, some] = *shapes.begin();
    const auto& [second, others] = *shapes.rbegin();
    const bool first_is_odd = some.size() == 1;
    const std::vector<std::string>& odd = first_is_odd ? some : others;
    const std::vector<std::string>& rest = first_is_odd ? others : some;
    if (odd.size() != 1 || std::ssize(rest) < kEnoughLayers) continue;
    findings.push_back(
        {"shape", odd[0],
         fmt::format("expected {}, as in {}, got {}", shape_text(first_is_odd ? second : first),
                     counted(rest.size(), "other layer"),
                     shape_text(first_is_odd ? first : second))});
  }
}

}  // namespace

std::int64_t number_in_config(const ModelDirectory& source,
                              std::initializer_list<const char*> keys) {
  return number_of(model_config(source), keys);
}

void check_config(const ModelDirectory& source, const StoredModel& model,
                  std::vector<Finding>& findings) {
  const ConfigJson config = model_config(source);
  check_listed(source, model, findings);
  check_formats(model, findings);
  check_groups(model, findings);
  check_high_precision(source, model, findings);
  check_alike(model, findings);
  check_ends(source, config, findings);
  check_expert_counts(source, config, findings);
  check_shapes(source, findings);
}

}  // namespace fp8lab
