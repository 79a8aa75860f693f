#include "fp8lab/model_files/dequantize_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>

#include "fp8lab/core/error.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/model_files/layout.hpp"
#include "fp8lab/model_files/quantization_config.hpp"
#include "fp8lab/model_files/weight_cast.hpp"

namespace fp8lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.json";
constexpr std::array<std::string_view, 2> kInputScales{"input_scale", "activation_scale"};

bool is_fp8(const TensorSpec& tensor) {
  return tensor.type == ElementType::e4m3fn || tensor.type == ElementType::e5m2 ||
         tensor.type == ElementType::e4m3fnuz || tensor.type == ElementType::e5m2fnuz;
}

/// Blocks of the tiles that scales of such a shape belong to.
struct Blocks {
  std::int64_t row_block = 1;
  std::int64_t k_block = 1;
};

std::int64_t ceil_div(std::int64_t size, std::int64_t block) { return (size + block - 1) / block; }

Blocks blocks_of(const TensorSpec& codes, const TensorSpec& scale,
                 const StoredQuantization& stored) {
  const std::int64_t rows = codes.shape[0];
  const std::int64_t k = codes.shape[1];
  const std::int64_t count = element_count(scale.shape, scale.name);
  if (count == 1) return {std::max<std::int64_t>(1, rows), std::max<std::int64_t>(1, k)};
  const bool a_row =
      scale.shape == std::vector{rows} || scale.shape == std::vector{rows, std::int64_t{1}};
  if (a_row) return {1, std::max<std::int64_t>(1, k)};
  const std::vector blocks{ceil_div(rows, stored.row_block), ceil_div(k, stored.k_block)};
  require(scale.shape == blocks, fmt::format("tensor '{}'", scale.name),
          fmt::format("scales [1], [{}], [{}, 1] or {}", rows, rows, shape_text(blocks)),
          shape_text(scale.shape));
  return {stored.row_block, stored.k_block};
}

/// All that belongs to a weight of the source.
struct StoredWeight {
  TensorSpec codes;
  TensorSpec scale;
  std::size_t scale_shard = 0;
  Blocks blocks;
  TensorSpec written;
};

std::vector<float> read_scales(const ModelDirectory& source, const StoredWeight& weight,
                               const SafetensorsFile& file) {
  const TensorSpec& spec = weight.scale;
  for (const NamedTensor& item : file.tensors())
    if (item.name == spec.name) return to_float(item.tensor);
  return to_float(source.open(weight.scale_shard)->find(spec.name));
}

/// Rows of some MB: whole blocks of them, or part of the only one.
std::int64_t rows_at_a_time(const StoredWeight& weight) {
  constexpr std::int64_t kElements = std::int64_t{1} << 22;
  const std::int64_t block = weight.blocks.row_block;
  const std::int64_t unit = block >= weight.codes.shape[0] ? 1 : block;
  const std::int64_t row = std::max<std::int64_t>(1, weight.codes.shape[1]);
  return std::max<std::int64_t>(1, kElements / (row * unit)) * unit;
}

void write_rows(const StoredWeight& weight, const std::vector<float>& scales,
                const SafetensorsFile& file, const TensorView& tensor, SafetensorsWriter& out) {
  const std::int64_t k = weight.codes.shape[1];
  const std::int64_t columns = ceil_div(k, weight.blocks.k_block);
  const std::size_t width = element_bytes(weight.written.type);
  const std::int64_t step = rows_at_a_time(weight);
  std::vector<std::byte> bytes;
  for (std::int64_t row = 0; row < weight.codes.shape[0]; row += step) {
    const std::int64_t rows = std::min(step, weight.codes.shape[0] - row);
    const std::int64_t row_block = std::min(weight.blocks.row_block, rows);
    const auto first = static_cast<std::size_t>(row / weight.blocks.row_block * columns);
    const auto count = static_cast<std::size_t>(ceil_div(rows, row_block) * columns);
    const auto size = static_cast<std::size_t>(rows * k);
    const auto at = static_cast<std::size_t>(row * k);
    const std::span<const std::byte> part = tensor.bytes.subspan(at, size);
    bytes.resize(size * width);
    dequantize_weight({{tensor.type, {rows, k}, part},
                       std::span(scales).subspan(first, count),
                       row_block,
                       weight.blocks.k_block},
                      weight.written.type, bytes);
    out.write(weight.written.name, at * width, bytes);
    file.file().release(part);
  }
}

TensorTask dequantize_task(const ModelDirectory& source, const StoredWeight& weight) {
  const auto work = [&source, weight](const SafetensorsFile& file, const TensorView& tensor,
                                      SafetensorsWriter& out) {
    write_rows(weight, read_scales(source, weight, file), file, tensor, out);
  };
  return {weight.codes, {weight.written}, work};
}

/// Finds the weights, and which tensors are nothing but their scales.
class WeightFinder {
 public:
  WeightFinder(const ModelDirectory& source, const Layout& layout, const StoredQuantization& stored,
               ElementType type)
      : source_(source), layout_(layout), stored_(stored), type_(type) {}

  /// The module of a tensor that holds codes in the layout; empty for others.
  [[nodiscard]] std::string module_of_codes(const TensorSpec& tensor) const {
    const std::string ending = fmt::format(".{}", layout_.codes);
    if (!is_fp8(tensor) || tensor.shape.size() != 2 || !tensor.name.ends_with(ending)) return {};
    return tensor.name.substr(0, tensor.name.size() - ending.size());
  }

  /// Unset where no scale belongs to the codes.
  std::optional<StoredWeight> find(const TensorSpec& codes) {
    const std::string module = module_of_codes(codes);
    if (module.empty()) return std::nullopt;
    const std::string name = fmt::format("{}.{}", module, layout_.scale);
    const WeightPlace* place = source_.find(name);
    if (place == nullptr) return std::nullopt;
    const TensorSpec& scale = source_.at(*place);
    const bool floats = scale.type == ElementType::f32 || scale.type == ElementType::bf16 ||
                        scale.type == ElementType::f16 || scale.type == ElementType::e8m0fnu;
    require(floats, fmt::format("tensor '{}'", name), "f32, bf16, f16 or e8m0fnu scales",
            to_string(scale.type));
    used_.insert(name);
    for (const std::string_view input : kInputScales)
      used_.insert(fmt::format("{}.{}", module, input));
    return StoredWeight{codes,
                        scale,
                        place->shard,
                        blocks_of(codes, scale, stored_),
                        {module + ".weight", type_, codes.shape}};
  }

  [[nodiscard]] bool is_used(const std::string& name) const { return used_.contains(name); }

 private:
  const ModelDirectory& source_;
  const Layout& layout_;
  const StoredQuantization& stored_;
  ElementType type_;
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
  require(type.has_value(), "--dtype", "bf16, f16 or f32, since config.json names none", "nothing");
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
