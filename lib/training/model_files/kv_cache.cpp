#include "training/model_files/kv_cache.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "fp8lab/core/argument.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/names.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/io/safetensors.hpp"

namespace fp8lab {
namespace {

struct KvScalesName {
  std::string_view name;
  KvScales scales;
};

constexpr std::array<KvScalesName, 3> kKvScalesNames{
    {{"none", KvScales::none}, {"tensor", KvScales::tensor}, {"head", KvScales::head}}};

constexpr std::string_view kOutput = ".output";

/// `NAME.output` of a sample `NAME.output` or `NAME.output.3`; empty for other names.
std::string_view sampled_output(std::string_view name) {
  const std::size_t end = name.find_last_not_of("0123456789");
  if (end != std::string_view::npos && end + 1 < name.size() && name[end] == '.')
    name = name.substr(0, end);
  return name.ends_with(kOutput) ? name : std::string_view();
}

/// "ATTENTION." and "k" or "v" of the weight of a projection; empty for other weights.
struct Projection {
  std::string_view attention = {};
  std::string_view part = {};
};

Projection projection_of(std::string_view weight) {
  for (const std::string_view part : {"k", "v"}) {
    const std::string ending = fmt::format("attn.{}_proj.weight", part);
    if (weight.ends_with(ending))
      return {weight.substr(0, weight.size() - ending.size() + std::string_view("attn").size()),
              part};
  }
  return {};
}

/// The largest magnitudes of heads, or of all.
class HeadAmax {
 public:
  explicit HeadAmax(std::int64_t heads) : largest_(static_cast<std::size_t>(heads), 0.0F) {}

  void observe(const std::string& name, const TensorView& tensor) {
    require(is_float_of_32_bits_or_fewer(tensor.type), name, "f32, f16 or bf16 elements",
            to_string(tensor.type));
    const auto heads = static_cast<std::int64_t>(largest_.size());
    require(!tensor.shape.empty() && tensor.size() > 0 && tensor.shape.back() % heads == 0, name,
            fmt::format("keys or values [..., {} * head_dim]", heads), shape_text(tensor.shape));
    const std::int64_t width = tensor.shape.back() / heads;
    const std::vector<float> values = to_float(tensor);
    for (std::size_t i = 0; i < values.size(); ++i) {
      require(std::isfinite(values[i]), name, "finite values", fmt::format("{}", values[i]));
      float& largest = largest_[static_cast<std::size_t>(static_cast<std::int64_t>(i) %
                                                         tensor.shape.back() / width)];
      largest = std::max(largest, std::abs(values[i]));
    }
    seen_ = true;
  }

  [[nodiscard]] std::vector<float> scales(const std::string& name) const {
    require(seen_, argument("calibration"), fmt::format("a sample of {}", name), "none");
    const FloatEnvironment environment;
    const auto max_finite = static_cast<float>(format(FormatId::e4m3fn).max_finite());
    std::vector<float> result;
    for (const float largest : largest_) {
      require(largest > 0.0F, fmt::format("samples of {}", name), "values that are not all 0",
              "zeros");
      result.push_back(largest / max_finite);
    }
    return result;
  }

 private:
  std::vector<float> largest_;
  bool seen_ = false;
};

/// How a layout stores the scale of a projection.
TensorSpec spec_of_scale(const Layout& layout, KvScales scales, const Projection& projection,
                         std::int64_t heads) {
  if (layout.kv_scales == KvPlace::projection)
    return {
        fmt::format("{}.{}_proj.{}_scale", projection.attention, projection.part, projection.part),
        ElementType::f32,
        {}};
  const std::vector<std::int64_t> shape = scales == KvScales::head
                                              ? std::vector<std::int64_t>{heads, 1, 1}
                                              : std::vector<std::int64_t>{1};
  return {fmt::format("{}.{}_scale", projection.attention, projection.part), ElementType::f32,
          shape};
}

void require_layout(const Layout& layout, KvScales scales, std::int64_t heads) {
  const bool has_heads = layout.kv_scales == KvPlace::attention;
  require(layout.kv_scales != KvPlace::none, argument("kv-cache"),
          "a layout with scales of the KV cache (compressed-tensors, modelopt)", layout.name);
  require(has_heads || scales == KvScales::tensor, argument("kv-cache"),
          fmt::format("tensor in layout {}", layout.name), "head");
  require(scales == KvScales::tensor || heads > 0, argument("kv-cache"),
          "num_key_value_heads in config.json, for a scale of each head", "none");
}

}  // namespace

KvScales find_kv_scales(std::string_view name) {
  return find_named(kKvScalesNames, "kv-cache", name).scales;
}

bool is_kv_sample(std::string_view name) {
  const std::string_view output = sampled_output(name);
  return output.ends_with("attn.k_proj.output") || output.ends_with("attn.v_proj.output");
}

std::map<std::string, KvScale> calibrate_kv_cache(const ModelDirectory& source,
                                                  const Layout& layout, KvScales scales,
                                                  std::int64_t heads,
                                                  const std::vector<std::filesystem::path>& files) {
  std::map<std::string, KvScale> result;
  if (scales == KvScales::none) return result;
  require_layout(layout, scales, heads);
  std::map<std::string, HeadAmax> observed;
  for (const WeightShard& shard : source.shards())
    for (const TensorSpec& tensor : shard.tensors) {
      const Projection projection = projection_of(tensor.name);
      if (projection.part.empty()) continue;
      result[tensor.name].spec = spec_of_scale(layout, scales, projection, heads);
      observed.emplace(std::string(module_of(tensor.name)),
                       HeadAmax(scales == KvScales::head ? heads : 1));
    }
  require(!result.empty(), argument("kv-cache"), "attentions with k_proj and v_proj", "none");
  for (const std::filesystem::path& path : files) {
    if (path.extension() != ".safetensors") continue;
    const SafetensorsFile file(path);
    for (const NamedTensor& item : file.tensors()) {
      if (!is_kv_sample(item.name)) continue;
      const std::string_view output = sampled_output(item.name);
      const auto found =
          observed.find(std::string(output.substr(0, output.size() - kOutput.size())));
      const std::string where = fmt::format("{}: '{}'", path.string(), item.name);
      require(found != observed.end(), where, "an attention of the model", "another name");
      found->second.observe(where, item.tensor);
      file.file().release(item.tensor.bytes);
    }
  }
  for (auto& [weight, scale] : result) {
    const std::string module(module_of(weight));
    scale.values = observed.at(module).scales(module + std::string(kOutput));
  }
  return result;
}

}  // namespace fp8lab
