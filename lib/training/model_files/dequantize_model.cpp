#include "training/model_files/dequantize_model.hpp"

#include <fmt/format.h>

#include <map>
#include <set>

#include "fp8lab/core/argument.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/files.hpp"
#include "training/model_files/layout.hpp"
#include "training/model_files/quantization_config.hpp"
#include "training/model_files/stored_model.hpp"

namespace fp8lab {
namespace {

namespace fs = std::filesystem;

/// Refuses a layout that is not one of the family of the folder.
void require_layout(const std::string& asked, const StoredQuantization& stored) {
  if (asked.empty()) return;
  require(stored.family != nullptr, "layout",
          "none, since no configuration says how these weights are stored", asked);
  const Layout& layout = find_layout(asked);
  const std::span<const Layout> own = stored.family->layouts();
  const std::string_view expected = own.empty() ? stored.method : own.front().name;
  require(layout.family == stored.family, "layout",
          fmt::format("{}, as {} says", expected, stored.where), layout.name);
}

/// What describes quantized tensors is not the model's metadata.
std::map<std::string, std::string> metadata_of(const WeightShard& shard,
                                               const StoredQuantization& stored) {
  std::map<std::string, std::string> metadata = shard.metadata;
  if (stored.family == nullptr) return metadata;
  std::erase_if(metadata, [&](const auto& item) {
    return stored.family->is_own_metadata(item.first, item.second);
  });
  return metadata;
}

/// Refuses a folder of which something would be lost.
void require_whole(const ModelDirectory& source, const StoredModel& stored) {
  if (!stored.faults.empty()) {
    const StoredFault& first = stored.faults.front();
    const std::size_t more = stored.faults.size() - 1;
    throw Error(fmt::format("tensor '{}': {}{}", first.tensor, first.text,
                            more == 0 ? "" : fmt::format(" (and {} more such tensors)", more)));
  }
  if (!stored.weights.empty()) return;
  std::string names;
  for (const StoredNames& one : stored_names())
    if (!one.codes.empty())
      names += fmt::format("{}NAME{} with NAME{}", names.empty() ? "" : ", ", one.codes, one.scale);
  throw Error(source.folder().string(), fmt::format("FP8 or packed codes with scales ({})", names),
              "none");
}

/// Tensors that floats do not need, by what they are.
void drop_sides(const StoredModel& stored, std::set<std::string>& dropped,
                DequantizedModel& model) {
  for (const SideTensor& side : stored.sides) {
    if (side.side == SideScale::input && !side.has_weight) {
      model.kept_scales.push_back(side.tensor.spec.name);
      continue;
    }
    dropped.insert(side.tensor.spec.name);
    model.dropped.push_back({side.tensor.spec.name, std::string(to_string(side.side))});
  }
}

ModelRewrite plan(const ModelDirectory& source, const StoredModel& stored, ElementType type,
                  DequantizedModel& model) {
  std::map<std::string, StoredWeight> weights;
  for (const StoredWeight& weight : stored.weights) {
    StoredWeight& copy = weights.emplace(weight.codes.name, weight).first->second;
    copy.written.type = type;
    model.converted.push_back(copy.written);
  }
  for (const TensorSpec& kept : stored.kept_codes) model.kept_codes.push_back(kept.name);
  std::set<std::string> dropped = stored.scales;
  drop_sides(stored, dropped, model);
  ModelRewrite rewrite;
  for (std::size_t s = 0; s < source.shards().size(); ++s) {
    const WeightShard& shard = source.shards()[s];
    ShardTask task{s, metadata_of(shard, stored.stored), {}};
    for (const TensorSpec& tensor : shard.tensors) {
      const auto found = weights.find(tensor.name);
      if (found != weights.end())
        task.tasks.push_back(dequantize_task(source, found->second, model.non_finite));
      else if (!dropped.contains(tensor.name))
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
  const std::string name = source.config().filename().string();
  const std::string where = source.config().string();
  const bool alone = source.stands_alone();
  const std::string config = alone ? "{}" : read_file(where);
  const StoredModel stored = read_stored_model(source, read_stored_quantization(source));
  require_layout(options.layout, stored.stored);
  const std::optional<ElementType> type = options.type ? options.type : model_type(config, where);
  require(type.has_value(), argument("dtype"),
          fmt::format("bf16, f16 or f32, since {}",
                      alone ? "no configuration names one" : name + " names none"),
          "nothing");
  require_whole(source, stored);
  DequantizedModel model;
  ModelRewrite rewrite = plan(source, stored, *type, model);
  if (!alone) rewrite.texts[name] = without_quantization(config, where);
  rewrite.dropped = own_files();
  rewrite.settings = {{"command", "dequantize"},
                      {"method", stored.stored.method},
                      {"dtype", std::string(to_string(*type))}};
  model.files = rewrite_model(source, rewrite, target, progress);
  return model;
}

}  // namespace fp8lab
