// What headers and config.json say: types and tiles against the configuration, modules against its
// list of those that stay, and tensors that their siblings have.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/io/files.hpp"
#include "training/model_files/check_parts.hpp"

namespace fp8lab {
namespace {

/// Linear layers by the last part of their name, which every server builds quantized.
constexpr std::array<std::string_view, 14> kLinear{
    "fc1",   "fc2",           "w1",           "w2", "w3", "wq", "wk", "wv", "wo", "query", "key",
    "value", "dense_h_to_4h", "dense_4h_to_h"};

/// Projections that models keep in higher precision without saying so: DeepSeek's multi-token
/// head and indexer.
constexpr std::array<std::string_view, 3> kHigh{"eh_proj", "weights_proj", "patch_proj"};

std::string_view last_part(std::string_view module) { return module.substr(module.rfind('.') + 1); }

bool is_linear(std::string_view module) {
  const std::string_view leaf = last_part(module);
  if (std::find(kHigh.begin(), kHigh.end(), leaf) != kHigh.end()) return false;
  return leaf.ends_with("_proj") ||
         std::find(kLinear.begin(), kLinear.end(), leaf) != kLinear.end();
}

std::string tile_text(std::int64_t rows, std::int64_t columns) {
  return fmt::format("{} x {}", rows, columns);
}

/// The tile that the configuration says, cut to the weight.
std::string said_tile(const WeightForm& said, const StoredWeight& weight) {
  switch (*said.tiles) {
    case WeightTiles::tensor:
      return tile_text(weight.rows, weight.k);
    case WeightTiles::row:
      return tile_text(1, weight.k);
    case WeightTiles::block:
    case WeightTiles::group:
      break;
  }
  return tile_text(std::min(said.row_block, weight.rows), std::min(said.k_block, weight.k));
}

void check_form(const StoredQuantization& stored, const StoredWeight& weight,
                std::vector<Finding>& findings) {
  if (!stored.has_forms) return;
  const WeightForm& said = stored.form_of(weight.module);
  const bool same = describe(said) == describe(weight.form);
  if (!same) {
    findings.push_back({"type", weight.codes.name,
                        fmt::format("expected {}, which {} says, got {}", describe(said),
                                    stored.where, describe(weight.form))});
    return;
  }
  // Experts that lie as [experts, k, rows] have a scale for each column in place of each row.
  const bool is_column = weight.written.shape.size() == 3 && weight.k_block == 1;
  const std::string got = is_column ? tile_text(weight.k_block, weight.k)
                                    : tile_text(std::min(weight.row_block, weight.rows),
                                                std::min(weight.k_block, weight.k));
  const bool by_row = weight.row_block == 1 && weight.k_block >= weight.k;
  const bool by_tensor = weight.row_block >= weight.rows && weight.k_block >= weight.k;
  if (stored.says_no_blocks && weight.form.scales == ScaleKind::plain && !by_row && !by_tensor &&
      !is_column)
    findings.push_back({"type", weight.scale.spec.name,
                        fmt::format("expected a scale for each tensor or row, since {} says no "
                                    "weight_block_size, got one for each {}",
                                    stored.where, got)});
  if (said.tiles && said_tile(said, weight) != got)
    findings.push_back({"type", weight.scale.spec.name,
                        fmt::format("expected a scale for each {}, which {} says, got one for "
                                    "each {}",
                                    said_tile(said, weight), stored.where, got)});
}

/// E5M2 and FNUZ codes have the same size as E4M3 ones, and other values.
void check_element(const StoredQuantization& stored, const StoredWeight& weight,
                   std::vector<Finding>& findings) {
  const ElementType type = weight.codes.type;
  if (!is_fp8(type)) return;
  if (type == ElementType::e4m3fn) {
    if (stored.fp8_format == "e5m2")
      findings.push_back(
          {"type", weight.codes.name,
           fmt::format("expected e5m2 codes, which {} says, got e4m3fn", stored.where)});
    return;
  }
  const bool says_e5m2 = type == ElementType::e5m2 && stored.fp8_format == "e5m2";
  const bool quark = stored.method == "quark" && type == ElementType::e4m3fnuz;
  if (!says_e5m2 && !quark)
    findings.push_back(
        {"type", weight.codes.name, fmt::format("expected e4m3fn codes, got {}", to_string(type))});
}

/// A list of modules that stay and files that disagree: servers build other layers than they load.
void check_ignored(const ModelDirectory& source, const StoredModel& model,
                   std::vector<Finding>& findings) {
  std::set<std::string> quantized;
  for (const StoredWeight& weight : model.weights) {
    quantized.insert(weight.module);
    if (model.stored.ignores(weight.module))
      findings.push_back({"names", weight.codes.name,
                          fmt::format("expected floats, since {} lists the module among those that "
                                      "stay, got codes",
                                      model.stored.where)});
  }
  for (const TensorSpec& tensor : model.kept_codes)
    findings.push_back({"missing scale", tensor.name,
                        "expected floats, since its module is listed among those that stay, got "
                        "codes without scales"});
  const bool all_linear = model.stored.has_forms && !model.stored.has_experts_alone &&
                          (model.stored.groups.empty() ||
                           std::any_of(model.stored.groups.begin(), model.stored.groups.end(),
                                       [](const FormGroup& group) { return group.is_default; }));
  if (!all_linear) return;
  for (const WeightShard& shard : source.shards())
    for (const TensorSpec& tensor : shard.tensors) {
      const std::string module(module_of(tensor.name));
      const bool stays =
          !module.empty() && tensor.shape.size() == 2 && is_float_of_32_bits_or_fewer(tensor.type);
      if (stays && is_linear(module) && !quantized.contains(module) &&
          !model.stored.ignores(module))
        findings.push_back({"names", tensor.name,
                            fmt::format("expected codes and scales, or the module in the list of "
                                        "those that stay in {}, got {}",
                                        model.stored.where, to_string(tensor.type))});
    }
}

/// Experts of a layer have the same tensors: one that has fewer lost them.
void check_experts(const ModelDirectory& source, std::vector<Finding>& findings) {
  std::map<std::string, std::map<std::int64_t, std::set<std::string>>> lists;
  for (const WeightShard& shard : source.shards())
    for (const TensorSpec& tensor : shard.tensors) {
      const Numbered part = split_number(tensor.name, ".experts.");
      if (part.number >= 0) lists[part.before][part.number].insert(part.after);
    }
  for (const auto& [before, experts] : lists) {
    std::set<std::string> all;
    for (const auto& [number, names] : experts) all.insert(names.begin(), names.end());
    for (std::int64_t e = 0; e <= experts.rbegin()->first; ++e) {
      const auto found = experts.find(e);
      for (const std::string& name : all)
        if (found == experts.end() || !found->second.contains(name))
          findings.push_back({"missing tensor", fmt::format("{}{}{}", before, e, name),
                              "expected a tensor, which other experts of the layer have, got "
                              "none"});
    }
  }
}

void check_layers(const ModelDirectory& source, std::vector<Finding>& findings) {
  std::map<std::string, std::set<std::int64_t>> lists;
  for (const WeightShard& shard : source.shards())
    for (const TensorSpec& tensor : shard.tensors) {
      const Numbered part = split_number("." + tensor.name, ".layers.");
      if (part.number >= 0) lists[part.before.substr(1)].insert(part.number);
    }
  const std::int64_t layers = number_in_config(source, {"num_hidden_layers", "n_layers"});
  for (const auto& [before, numbers] : lists) {
    // The language part: other parts have lists of their own lengths.
    const bool main = before == "model.layers." || before == "layers." || lists.size() == 1;
    const std::int64_t count = main ? std::max(layers, *numbers.rbegin() + 1) : 0;
    for (std::int64_t i = 0; i < std::min<std::int64_t>(count, 100'000); ++i)
      if (!numbers.contains(i))
        findings.push_back({"missing tensor", fmt::format("{}{}", before, i),
                            fmt::format("expected tensors of each of {} layers, got none", count)});
  }
}

/// Layers of one kind have the same tensors. A tensor that all other layers have was lost, unless
/// the layer has tensors that no other one has: it is of another kind.
void check_siblings(const ModelDirectory& source, std::vector<Finding>& findings) {
  std::map<std::string, std::map<std::string, std::set<std::int64_t>>> lists;
  std::map<std::string, std::set<std::int64_t>> all;
  for (const WeightShard& shard : source.shards())
    for (const TensorSpec& tensor : shard.tensors) {
      const Numbered part = split_number("." + tensor.name, ".layers.");
      if (part.number < 0 || tensor.name.find(".experts.") != std::string::npos) continue;
      lists[part.before][part.after].insert(part.number);
      all[part.before].insert(part.number);
    }
  for (const auto& [before, tensors] : lists) {
    const std::set<std::int64_t>& layers = all[before];
    std::set<std::int64_t> others;
    for (const auto& [after, numbers] : tensors)
      if (numbers.size() == 1) others.insert(*numbers.begin());
    for (const auto& [after, numbers] : tensors) {
      const bool is_weight =
          after.ends_with(".weight") || after.ends_with("_packed") || after.ends_with("bias");
      if (!is_weight || layers.size() < 3 || numbers.size() + 1 != layers.size()) continue;
      for (const std::int64_t layer : layers)
        if (!numbers.contains(layer) && !others.contains(layer))
          findings.push_back({"missing tensor",
                              fmt::format("{}{}{}", before.substr(1), layer, after),
                              "expected a tensor, which all other layers have, got none"});
    }
  }
}

/// model-00002-of-00003: the numbers of a series without a gap.
void check_series(const ModelDirectory& source, std::vector<Finding>& findings) {
  std::map<std::string, std::set<std::int64_t>> series;
  for (const WeightShard& shard : source.shards()) {
    const std::size_t of = shard.file.find("-of-");
    if (of == std::string::npos || of < 6) continue;
    const std::string number = shard.file.substr(of - 5, 5);
    if (number.find_first_not_of("0123456789") != std::string::npos) continue;
    series[shard.file.substr(0, of - 5) + "{}" + shard.file.substr(of)].insert(std::stoll(number));
  }
  for (const auto& [name, numbers] : series) {
    const std::string total = name.substr(name.find("-of-") + 4, 5);
    if (total.size() != 5 || total.find_first_not_of("0123456789") != std::string::npos) continue;
    for (std::int64_t i = 1; i <= std::stoll(total); ++i)
      if (!numbers.contains(i)) {
        const std::string file = fmt::format("{}{:05}{}", name.substr(0, name.find("{}")), i,
                                             name.substr(name.find("{}") + 2));
        findings.push_back({"files", file,
                            "expected this shard, which the names of the others "
                            "count, got none that can be read"});
      }
  }
}

}  // namespace

Numbered split_number(const std::string& name, std::string_view list) {
  const std::size_t at = name.find(list);
  if (at == std::string::npos) return {};
  const std::size_t first = at + list.size();
  const std::size_t end = name.find_first_not_of("0123456789", first);
  if (end == first || end == std::string::npos || name[end] != '.' || end - first > 6) return {};
  return {name.substr(0, first), std::stoll(name.substr(first, end - first)), name.substr(end)};
}

void check_names(const ModelDirectory& source, const StoredModel& model,
                 std::vector<Finding>& findings) {
  for (const StoredWeight& weight : model.weights) {
    check_form(model.stored, weight, findings);
    check_element(model.stored, weight, findings);
  }
  check_ignored(source, model, findings);
  check_experts(source, findings);
  check_layers(source, findings);
  check_siblings(source, findings);
  check_series(source, findings);
}

}  // namespace fp8lab
