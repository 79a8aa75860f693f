#include "fp8lab/model_files/dequantize_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>

#include "fp8lab/core/argument.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/model_files/layout.hpp"
#include "fp8lab/model_files/quantization_config.hpp"
#include "fp8lab/model_files/stored_weight.hpp"

namespace fp8lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.json";
constexpr std::array<std::string_view, 3> kInputScales{"input_scale", "activation_scale",
                                                       "input_global_scale"};

bool is_fp8(const TensorSpec& tensor) {
  return tensor.type == ElementType::e4m3fn || tensor.type == ElementType::e5m2 ||
         tensor.type == ElementType::e4m3fnuz || tensor.type == ElementType::e5m2fnuz;
}

/// Finds the weights, and which tensors are nothing but their scales.
class WeightFinder {
 public:
  WeightFinder(const ModelDirectory& source, const Layout& layout, const StoredQuantization& stored,
               ElementType type)
      : source_(source), layout_(layout), stored_(stored), type_(type) {
    names_ = weight_names(layout, {.format = stored.format, .scales = stored.scales});
    if (layout.family == LayoutFamily::gpt_oss) return;
    codes_ending_ = fmt::format(".{}", names_.codes);
  }

  /// Unset for what holds no codes, and where no scale belongs to them.
  std::optional<StoredWeight> find(const TensorSpec& codes) {
    const std::string module = module_of_codes(codes);
    if (module.empty()) return std::nullopt;
    const std::string dot = layout_.family == LayoutFamily::gpt_oss ? "" : ".";
    const std::optional<StoredTensor> scale = tensor(module + dot + std::string(names_.scale));
    if (!scale) return std::nullopt;
    StoredWeight weight{.codes = codes, .scale = *scale};
    used_.insert(scale->spec.name);
    if (!names_.tensor_scale.empty()) {
      const std::string name = fmt::format("{}.{}", module, names_.tensor_scale);
      weight.tensor_scale = tensor(name);
      require(weight.tensor_scale.has_value(), fmt::format("tensor '{}'", name),
              "the tensor's scale, one F32", "none");
      used_.insert(name);
    }
    for (const std::string_view input : kInputScales)
      used_.insert(fmt::format("{}.{}", module, input));
    weight.layout = &layout_;
    weight.stored = stored_;
    weight.written.name = layout_.family == LayoutFamily::gpt_oss ? module : module + ".weight";
    weight.written.type = type_;
    set_shapes(weight);
    return weight;
  }

  [[nodiscard]] bool is_used(const std::string& name) const { return used_.contains(name); }

 private:
  /// The module of a tensor that holds codes in the layout; empty for others.
  [[nodiscard]] std::string module_of_codes(const TensorSpec& tensor) const {
    const std::string_view ending =
        layout_.family == LayoutFamily::gpt_oss ? names_.codes : codes_ending_;
    const bool packed = stored_.format != FormatId::e4m3fn;
    const std::size_t dimensions = layout_.family == LayoutFamily::gpt_oss ? 4 : 2;
    const bool fits = packed ? tensor.type == ElementType::u8 : is_fp8(tensor);
    if (!fits || tensor.shape.size() != dimensions || !tensor.name.ends_with(ending)) return {};
    return tensor.name.substr(0, tensor.name.size() - ending.size());
  }

  [[nodiscard]] std::optional<StoredTensor> tensor(const std::string& name) const {
    const WeightPlace* place = source_.find(name);
    if (place == nullptr) return std::nullopt;
    return StoredTensor{source_.at(*place), place->shard};
  }

  const ModelDirectory& source_;
  const Layout& layout_;
  const StoredQuantization& stored_;
  ElementType type_;
  WeightNames names_;
  std::string codes_ending_;
  std::set<std::string> used_;
};

const Layout& layout_of(const std::string& asked, const StoredQuantization& stored) {
  for (const Layout& layout : layouts())
    if (layout.family == stored.family && (asked.empty() || asked == layout.name)) return layout;
  const Layout& other = find_layout(asked);
  for (const Layout& layout : layouts())
    if (layout.family == stored.family)
      throw Error("layout", fmt::format("{}, which config.json says", layout.name), other.name);
  return other;
}

/// Names that torchao's reader takes for its own are not the model's metadata.
std::map<std::string, std::string> metadata_of(const WeightShard& shard, const Layout& layout) {
  std::map<std::string, std::string> metadata = shard.metadata;
  if (layout.family != LayoutFamily::torchao) return metadata;
  metadata.erase("tensor_names");
  std::erase_if(metadata, [](const auto& item) { return item.second.starts_with("{\"_type\""); });
  return metadata;
}

ModelRewrite plan(const ModelDirectory& source, const Layout& layout, WeightFinder& finder,
                  DequantizedModel& model) {
  std::map<std::string, StoredWeight> weights;
  for (const WeightShard& shard : source.shards())
    for (const TensorSpec& tensor : shard.tensors) {
      if (std::optional<StoredWeight> weight = finder.find(tensor)) {
        model.converted.push_back(weight->written);
        weights.emplace(tensor.name, std::move(*weight));
      } else if (is_fp8(tensor)) {
        model.without_scale.push_back(tensor.name);
      }
    }
  // Scales of groups may be FP8 too, and come before their codes.
  std::erase_if(model.without_scale, [&](const std::string& name) { return finder.is_used(name); });
  ModelRewrite rewrite;
  for (std::size_t s = 0; s < source.shards().size(); ++s) {
    const WeightShard& shard = source.shards()[s];
    ShardTask task{s, metadata_of(shard, layout), {}};
    for (const TensorSpec& tensor : shard.tensors) {
      const auto found = weights.find(tensor.name);
      if (found != weights.end())
        task.tasks.push_back(dequantize_task(source, found->second));
      else if (!finder.is_used(tensor.name))
        task.tasks.push_back(copy_task(tensor));
    }
    rewrite.shards.push_back(std::move(task));
  }
  return rewrite;
}

}  // namespace

DequantizedModel dequantize_model(const ModelDirectory& source,
                                  const DequantizeModelOptions& options, const fs::path& target,
                                  const std::function<void(const RewriteProgress&)>& progress) {
  const std::string where = (source.folder() / kConfig).string();
  const std::string config = read_file(where);
  const std::optional<StoredQuantization> stored = read_quantization(config, where);
  require(stored.has_value(), where, "a quantization_config", "none: the model is not quantized");
  const Layout& layout = layout_of(options.layout, *stored);
  const std::optional<ElementType> type = options.type ? options.type : model_type(config, where);
  require(type.has_value(), argument("dtype"), "bf16, f16 or f32, since config.json names none",
          "nothing");
  DequantizedModel model;
  WeightFinder finder(source, layout, *stored, *type);
  ModelRewrite rewrite = plan(source, layout, finder, model);
  require(!model.converted.empty(), source.folder().string(),
          fmt::format("weights in layout {}", layout.name), "none");
  rewrite.texts[kConfig] = without_quantization(config, where);
  rewrite.dropped = {"hf_quant_config.json"};
  rewrite.settings = {{"command", "dequantize"},
                      {"layout", std::string(layout.name)},
                      {"dtype", std::string(to_string(*type))}};
  model.files = rewrite_model(source, rewrite, target, progress);
  return model;
}

}  // namespace fp8lab
