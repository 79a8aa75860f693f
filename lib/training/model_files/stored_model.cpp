#include "training/model_files/stored_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/io/files.hpp"
#include "training/model_files/layouts/config_reading.hpp"

namespace fp8lab {
namespace {

namespace fs = std::filesystem;

struct SideName {
  std::string_view ending;
  SideScale side;
};

constexpr std::array<SideName, 23> kSides{{{"input_scale", SideScale::input},
                                           {"qscale_act", SideScale::input},
                                           {"scale_input", SideScale::input},
                                           {"activation_scale", SideScale::input},
                                           {"input_global_scale", SideScale::input},
                                           {"input_scale_ub", SideScale::input},
                                           {"input_zero_point", SideScale::input},
                                           {"k_scale", SideScale::kv_cache},
                                           {"v_scale", SideScale::kv_cache},
                                           {"kv_scale", SideScale::kv_cache},
                                           {"k_cache_scale", SideScale::kv_cache},
                                           {"v_cache_scale", SideScale::kv_cache},
                                           {"kv_cache_scale", SideScale::kv_cache},
                                           {"k_global_scale", SideScale::kv_cache},
                                           {"v_global_scale", SideScale::kv_cache},
                                           {"k_proj.k_bias", SideScale::kv_cache},
                                           {"v_proj.v_bias", SideScale::kv_cache},
                                           {"k_proj.output_scale", SideScale::kv_cache},
                                           {"v_proj.output_scale", SideScale::kv_cache},
                                           {"output_scale", SideScale::output},
                                           {"q_global_scale", SideScale::attention},
                                           {"q_scale", SideScale::attention},
                                           {"prob_scale", SideScale::attention}}};

/// Endings that only scales of weights have.
constexpr std::array<std::string_view, 7> kWeightScaleEndings{
    "weight_scale_inv",         "weight_scale",   "weight_scale_2", "weight_global_scale",
    "_weight_per_tensor_scale", "proj_scale_inv", "proj_scale"};

/// Tensors of a quantized module that change its values and are not read.
constexpr std::array<std::string_view, 6> kUnread{"pre_quant_scale", "weight_zero_point",
                                                  "weight_g_idx",    "zero_point",
                                                  "smoothing_scale", "svdquant_lora_a"};

/// Whether a name ends with whole words: at its start, after a dot or after `_`.
bool ends_with_words(std::string_view name, std::string_view ending) {
  if (!name.ends_with(ending)) return false;
  if (name.size() == ending.size() || ending.front() == '_') return true;
  const char before = name[name.size() - ending.size() - 1];
  return before == '.' || before == '_';
}

/// Whether the last part of a name is `part`.
bool ends_with_part(std::string_view name, std::string_view part) {
  return name.substr(name.rfind('.') + 1) == part;
}

bool is_integer(ElementType type) {
  return is_packed_storage(type) || type == ElementType::i32 || type == ElementType::u32 ||
         type == ElementType::i64;
}

template <class Endings>
std::string_view find_ending(const Endings& endings, std::string_view name) {
  for (const std::string_view ending : endings)
    if (ends_with_words(name, ending)) return ending;
  return {};
}

std::string_view without_last_part(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
}

/// The name before the ending of a side scale and its separator.
std::string owner_of(std::string_view name) {
  for (const SideName& known : kSides) {
    if (!ends_with_words(name, known.ending)) continue;
    const std::size_t size = name.size() - known.ending.size();
    return std::string(name.substr(0, size == 0 ? 0 : size - 1));
  }
  return {};
}

std::string got_text(const TensorSpec& tensor) {
  return fmt::format("{} {}", to_string(tensor.type), shape_text(tensor.shape));
}

/// Sorts the tensors of one folder.
class Sorter {
 public:
  Sorter(const ModelDirectory& source, StoredModel& model) : source_(source), model_(model) {}

  void run() {
    for_each([&](const TensorSpec& tensor, std::size_t) { find_weight(tensor); });
    for_each([&](const TensorSpec& tensor, std::size_t shard) { sort_other(tensor, shard); });
    if (!model_.stored.fault.empty() && !model_.weights.empty())
      model_.faults.insert(model_.faults.begin(),
                           {"config", model_.weights.front().codes.name, model_.stored.fault});
  }

 private:
  /// Calls `work` for every tensor and its shard; the first of two of one name.
  template <class Work>
  void for_each(const Work& work) {
    for (std::size_t s = 0; s < source_.shards().size(); ++s)
      for (const TensorSpec& tensor : source_.shards()[s].tensors)
        if (source_.find(tensor.name)->shard == s) work(tensor, s);
  }

  [[nodiscard]] std::optional<StoredTensor> tensor(const std::string& name) const {
    const WeightPlace* place = source_.find(name);
    if (place == nullptr) return std::nullopt;
    return StoredTensor{source_.at(*place), place->shard};
  }

  void add_fault(std::string kind, const std::string& name, std::string_view expected,
                 std::string_view got) {
    model_.faults.push_back(
        {std::move(kind), name, fmt::format("expected {}, got {}", expected, got)});
  }

  /// The tensor that an error names; `codes` where it names none.
  static StoredFault fault_of(const Error& error, const std::string& codes) {
    constexpr std::string_view kBefore = "tensor '";
    constexpr std::string_view kBehind = "': ";
    const std::string_view text = error.what();
    const std::size_t end = text.find(kBehind);
    if (!text.starts_with(kBefore) || end == std::string_view::npos)
      return {"shape", codes, std::string(text)};
    return {"shape", std::string(text.substr(kBefore.size(), end - kBefore.size())),
            std::string(text.substr(end + kBehind.size()))};
  }

  /// Whether a tensor may hold codes under these names.
  [[nodiscard]] bool may_be_codes(const TensorSpec& tensor, const StoredNames& names) const {
    if (!is_fp8(tensor.type) && !is_packed_storage(tensor.type)) return false;
    if (!tensor.name.ends_with(names.codes)) return false;
    if (!names.codes.empty()) return true;
    // A fused parameter: no module's weight, and no scale.
    return tensor.shape.size() >= 2 && !ends_with_part(tensor.name, "weight") &&
           !tensor.name.ends_with("_scale") && !tensor.name.ends_with("_scale_inv");
  }

  /// DeepSeek's `scale` is a common name: only powers of two beside codes are its scales, unless
  /// the configuration wants scales here.
  [[nodiscard]] bool fits(const StoredNames& names, const StoredTensor& scale,
                          const std::string& module) const {
    if (names.scale != ".scale") return true;
    return scale.spec.type == ElementType::e8m0fnu || !model_.stored.ignores(module);
  }

  /// The weights that a tensor may be, under different names of scales.
  std::vector<StoredWeight> candidates(const TensorSpec& codes) {
    std::vector<StoredWeight> found;
    for (const StoredNames& names : stored_names()) {
      if (!may_be_codes(codes, names)) continue;
      std::string module = codes.name.substr(0, codes.name.size() - names.codes.size());
      const auto scale = tensor(module + std::string(names.scale));
      if (!scale || !fits(names, *scale, module)) continue;
      StoredWeight weight{.module = module, .codes = codes, .scale = *scale, .names = &names};
      if (!names.tensor_scale.empty())
        weight.tensor_scale = tensor(module + std::string(names.tensor_scale));
      weight.written.name = module + std::string(names.written);
      found.push_back(std::move(weight));
    }
    return found;
  }

  /// Why the configuration makes a tensor of a module unreadable; empty where it does not.
  [[nodiscard]] std::string fault_of_group(const TensorSpec& tensor) const {
    const std::string_view module = without_last_part(tensor.name);
    if (model_.stored.groups.empty() || model_.stored.ignores(module)) return {};
    const FormGroup* group = model_.stored.group_of(module);
    return group == nullptr ? std::string() : group->fault;
  }

  void find_weight(const TensorSpec& codes) {
    std::vector<StoredWeight> found = candidates(codes);
    const bool may_be_weight = is_fp8(codes.type) || is_integer(codes.type);
    if (may_be_weight && (!found.empty() || codes.shape.size() >= 2)) {
      const std::string fault = fault_of_group(codes);
      const std::string module(without_last_part(codes.name));
      if (!fault.empty() && unreadable_.insert(module).second)
        model_.faults.push_back({"config", codes.name, fault});
    }
    if (found.empty() || unreadable_.contains(std::string(without_last_part(codes.name)))) return;
    StoredWeight& weight = found.front();
    codes_.insert(codes.name);
    model_.scales.insert(weight.scale.spec.name);
    if (weight.tensor_scale) model_.scales.insert(weight.tensor_scale->spec.name);
    for (const StoredWeight& other : found)
      if (other.scale.spec.name != weight.scale.spec.name)
        add_fault("scale without codes", other.scale.spec.name,
                  fmt::format("one tensor of scales for {}", codes.name),
                  fmt::format("{} too", weight.scale.spec.name));
    modules_.insert(weight.module);
    try {
      set_shapes(weight, model_.stored);
    } catch (const Error& error) {
      model_.faults.push_back(fault_of(error, codes.name));
      return;
    }
    model_.weights.push_back(std::move(weight));
  }

  /// What is neither codes nor scales of a weight.
  void sort_other(const TensorSpec& spec, std::size_t shard) {
    if (codes_.contains(spec.name) || model_.scales.contains(spec.name)) return;
    const SideScale side = side_scale(spec.name);
    const std::string module(without_last_part(spec.name));
    if (unreadable_.contains(module) || take_marker(spec, shard)) return;
    if (is_zero_point_of_zero(spec, shard)) {
      model_.scales.insert(spec.name);
      return;
    }
    std::string owner = owner_of(spec.name);
    if (modules_.contains(owner + "_weight")) owner += "_weight";
    const bool has_weight = modules_.contains(owner);
    if (side != SideScale::none && (side != SideScale::output || has_weight)) {
      model_.sides.push_back({{spec, shard}, side, owner, has_weight});
      return;
    }
    const bool is_scale = is_scale_of_weight(spec);
    if (model_.stored.ignores(module)) {
      if (is_fp8(spec.type) && !is_scale) model_.kept_codes.push_back(spec);
      return;
    }
    if (is_scale)
      add_orphan(spec);
    else if (is_fp8(spec.type) || lacks_scale(spec, module))
      add_fault("missing scale", spec.name, expected_scales(spec), "none");
    else if (modules_.contains(module) && !find_ending(kUnread, spec.name).empty())
      add_fault("unknown tensor", spec.name, "a weight that its codes and scales give alone",
                got_text(spec));
    else if (may_be_unknown_codes(spec))
      add_fault("unknown tensor", spec.name,
                "floats, or codes and scales under names that are known", got_text(spec));
  }

  /// ComfyUI's marks that say how a file or a module is quantized: an FP8 tensor of its own, and a
  /// text in JSON. Where that says FP8, codes and scales say the same.
  bool take_marker(const TensorSpec& spec, std::size_t shard) {
    constexpr std::int64_t kMost = 4096;
    const bool marks_file = spec.name.ends_with("scaled_fp8") && is_fp8(spec.type);
    const bool marks_module = ends_with_part(spec.name, "comfy_quant");
    if ((!marks_file && !marks_module) || spec.shape.size() != 1 || spec.shape[0] > kMost)
      return false;
    if (marks_module) {
      const std::unique_ptr<SafetensorsFile> file = source_.open(shard);
      const std::span<const std::byte> bytes = file->find(spec.name).bytes;
      const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      const auto mark = parse_if_json<nlohmann::ordered_json>(text, spec.name);
      const std::string format = mark ? text_of(*mark, "format") : "";
      if (format != "float8_e4m3fn" && format != "float8_e5m2")
        add_fault("config", spec.name, "the format float8_e4m3fn or float8_e5m2", text);
    }
    model_.sides.push_back({{spec, shard}, SideScale::marker, {}, false});
    return true;
  }

  /// Some quantizers write the zero points of symmetric weights.
  [[nodiscard]] bool is_zero_point_of_zero(const TensorSpec& spec, std::size_t shard) const {
    constexpr std::int64_t kMost = std::int64_t{1} << 24;
    if (!spec.name.ends_with(".weight_zero_point") ||
        !modules_.contains(std::string(without_last_part(spec.name))) ||
        element_count(spec.shape, spec.name) > kMost)
      return false;
    const std::unique_ptr<SafetensorsFile> file = source_.open(shard);
    const std::span<const std::byte> bytes = file->find(spec.name).bytes;
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
  }

  [[nodiscard]] bool is_scale_of_weight(const TensorSpec& spec) const {
    return !find_ending(kWeightScaleEndings, spec.name).empty() ||
           spec.type == ElementType::e8m0fnu ||
           (model_.stored.has_experts_alone && spec.name.ends_with("_scales"));
  }

  /// Bytes with the name of packed codes in a module that the configuration says is quantized.
  [[nodiscard]] bool lacks_scale(const TensorSpec& spec, const std::string& module) const {
    if (!is_packed_storage(spec.type) || spec.shape.size() < 2) return false;
    for (const StoredNames& names : stored_names())
      if (!names.codes.empty() && names.codes != ".weight" && spec.name.ends_with(names.codes))
        return true;
    const bool packs = format(model_.stored.form_of(module).format).code_bits() < 8;
    return spec.name.ends_with(".weight") && (packs || is_packed(spec.type));
  }

  /// Bytes or words that may be a weight of another layout. Masks and tables of positions are not.
  [[nodiscard]] static bool may_be_unknown_codes(const TensorSpec& spec) {
    if (spec.shape.size() < 2 || !is_integer(spec.type)) return false;
    const std::string_view leaf = std::string_view(spec.name).substr(spec.name.rfind('.') + 1);
    if (is_packed_storage(spec.type)) return leaf != "bias" && leaf.find("mask") == leaf.npos;
    return leaf.find("weight") != leaf.npos;
  }

  /// The names of scales that would belong to codes.
  [[nodiscard]] std::string expected_scales(const TensorSpec& codes) const {
    std::string text;
    for (const StoredNames& names : stored_names()) {
      if (!may_be_codes(codes, names)) continue;
      const std::string name =
          codes.name.substr(0, codes.name.size() - names.codes.size()) + std::string(names.scale);
      if (text.find(name + ",") == std::string::npos && !text.ends_with(name))
        text += (text.empty() ? "" : ", ") + name;
    }
    return "the scales of these codes (" + text + ")";
  }

  void add_orphan(const TensorSpec& scale) {
    std::string base = scale.name;
    for (const std::string_view ending :
         {"_scale_inv", "_global_scale", "_per_tensor_scale", "_scale_2", "_scales", "_scale"})
      if (base.ends_with(ending)) {
        base.erase(base.size() - ending.size());
        break;
      }
    std::string got = "none";
    for (const char* ending : {"", "_packed", "_qdata", "_blocks"}) {
      const auto codes = tensor(base + ending);
      if (codes) got = fmt::format("{} in {}", codes->spec.name, got_text(codes->spec));
    }
    add_fault("scale without codes", scale.name, fmt::format("FP8 or packed codes {}", base), got);
  }

  const ModelDirectory& source_;
  StoredModel& model_;
  std::set<std::string> codes_;
  std::set<std::string> modules_;
  std::set<std::string> unreadable_;  ///< modules whose form in the configuration is not known
};

/// Names of a few tensors of FP8, for messages.
std::string codes_in(const ModelDirectory& source) {
  constexpr std::size_t kMost = 3;
  std::size_t count = 0;
  std::string names;
  for (const WeightShard& shard : source.shards())
    for (const TensorSpec& tensor : shard.tensors) {
      if (!is_fp8(tensor.type) && !is_packed(tensor.type)) continue;
      if (++count <= kMost) names += fmt::format("{}{}", names.empty() ? "" : ", ", tensor.name);
    }
  if (count == 0) return {};
  return fmt::format(", though {} tensors are FP8 or FP4 ({}{})", count, names,
                     count > kMost ? ", ..." : "");
}

}  // namespace

SideScale side_scale(std::string_view name) {
  for (const SideName& known : kSides)
    if (ends_with_words(name, known.ending)) return known.side;
  return SideScale::none;
}

std::string_view to_string(SideScale side) {
  switch (side) {
    case SideScale::input:
      return "input";
    case SideScale::output:
      return "output";
    case SideScale::kv_cache:
      return "KV cache";
    case SideScale::attention:
      return "attention";
    case SideScale::marker:
      return "marker";
    case SideScale::none:
      break;
  }
  return "none";
}

namespace {

/// The first tensor that looks quantized, for messages; empty for none.
std::string quantized_tensor(const ModelDirectory& source) {
  for (const WeightShard& shard : source.shards())
    for (const TensorSpec& tensor : shard.tensors) {
      const bool is_codes =
          is_fp8(tensor.type) ||
          (is_integer(tensor.type) && tensor.name.find("weight") != std::string::npos);
      if (is_codes && tensor.shape.size() >= 2) return tensor.name;
    }
  return {};
}

StoredQuantization read_configs(const ModelDirectory& source) {
  if (source.stands_alone())
    return {.where = (source.folder() / source.shards().front().file).string()};
  const std::string where = source.config().string();
  if (auto stored = read_quantization(read_file(where), where)) return *stored;
  for (const LayoutFamily* family : layout_families()) {
    if (family->own_file().empty()) continue;
    const fs::path other = source.folder() / std::string(family->own_file());
    std::error_code error;
    if (fs::exists(other, error)) return read_own_file(*family, read_file(other), other.string());
  }
  throw Error(where, "a quantization_config, here or in hf_quant_config.json",
              "none: the model is not quantized" + codes_in(source));
}

}  // namespace

StoredQuantization read_stored_quantization(const ModelDirectory& source) {
  try {
    return read_configs(source);
  } catch (const Error& error) {
    const std::string tensor = quantized_tensor(source);
    if (tensor.empty()) throw;
    throw Error(fmt::format("tensor '{}': {}", tensor, error.what()));
  }
}

StoredModel read_stored_model(const ModelDirectory& source, StoredQuantization stored) {
  StoredModel model{.stored = std::move(stored)};
  Sorter(source, model).run();
  return model;
}

}  // namespace fp8lab
