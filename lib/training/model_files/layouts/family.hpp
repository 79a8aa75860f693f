#pragma once
// What one system says of the quantized weights in its folders. A family reads and writes the
// configuration of its layouts, names the tensors, and knows which weights its loaders misread.
// What layouts differ in by a value is a field of `Layout`; what takes work is a member here.

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "training/model_files/layout.hpp"
#include "training/model_files/stored_quantization.hpp"

namespace fp8lab {

struct QuantizedModel;

/// How a layout names the tensors of a weight: endings that follow the name of a module, or of a
/// fused parameter.
struct StoredNames {
  std::string_view codes;
  std::string_view scale;
  std::string_view tensor_scale;  ///< the upper one of two levels; empty where there is none
  std::string_view written;       ///< the ending of the weight in floats
  bool divides = false;           ///< the upper level is divided by: it multiplied into codes
  bool is_fused = false;          ///< a parameter of several experts, not a module's weight
  bool turns = false;             ///< gpt-oss: the weight in floats is [experts, k, rows]
  bool for_tensor_cores = false;  ///< scales of groups may lie as tensor cores read them
};

/// A `quant_method`, and the reader of a configuration that names it.
struct QuantMethod {
  std::string_view name;
  void (*read)(const nlohmann::ordered_json& config, StoredQuantization& stored);
};

class LayoutFamily {
 public:
  LayoutFamily() = default;
  LayoutFamily(const LayoutFamily&) = delete;
  LayoutFamily& operator=(const LayoutFamily&) = delete;
  virtual ~LayoutFamily() = default;

  /// The layouts that are written; none for a family that is read alone.
  [[nodiscard]] virtual std::span<const Layout> layouts() const { return {}; }
  [[nodiscard]] virtual std::span<const QuantMethod> methods() const = 0;
  /// The names that are read. Of two that fit a weight, the first one wins.
  [[nodiscard]] virtual std::span<const StoredNames> names() const { return {}; }
  /// Reads what stands outside of the quantization's own object, in the whole of config.json.
  virtual void read_beside(const nlohmann::ordered_json& config, StoredQuantization& stored) const;
  /// The file that describes a model, and the member of it that describes its quantized weights.
  [[nodiscard]] virtual std::string_view config_file() const { return "config.json"; }
  [[nodiscard]] virtual std::string_view config_key() const { return "quantization_config"; }
  /// The name of a second file that repeats the configuration; empty where there is none.
  [[nodiscard]] virtual std::string_view own_file() const { return {}; }

  /// The value of `config_key` for a model. `kept`: the modules that stay as they are.
  [[nodiscard]] virtual nlohmann::ordered_json describe(const Layout& layout,
                                                        const ModelSchemes& schemes,
                                                        const std::vector<std::string>& kept) const;
  /// Members that config.json has beside it: an object.
  [[nodiscard]] virtual nlohmann::ordered_json beside(const Layout& layout,
                                                      const ModelSchemes& schemes) const;
  /// The contents of `own_file`.
  [[nodiscard]] virtual nlohmann::ordered_json own_config(
      const ModelSchemes& schemes, const std::vector<std::string>& kept) const;
  /// Metadata of every shard.
  [[nodiscard]] virtual std::map<std::string, std::string> metadata(
      const QuantizedModel& model) const;
  /// Whether an item of a shard's metadata describes quantized tensors.
  [[nodiscard]] virtual bool is_own_metadata(const std::string& key,
                                             const std::string& value) const;

  /// What the loader is told of a preset beyond formats and tiles.
  virtual void complete(const Preset& preset, WeightScheme& scheme) const;
  /// Throws `Error`, about `argument`, for inputs of weights with plain scales that loaders cast
  /// in another way than the scheme says. By default any fit, as where the configuration describes
  /// the inputs too.
  virtual void require_input(const WeightScheme& scheme, const std::string& argument) const;
  /// Why a loader would misread a weight of this size; empty where it does not.
  [[nodiscard]] virtual std::string shape_fault(const Layout& layout, const WeightScheme& scheme,
                                                std::int64_t rows, std::int64_t k) const;
  /// Whether a tensor is converted. By default what the rule selects is, but for embeddings and
  /// weights with a fault.
  [[nodiscard]] virtual LayerDecision decide(const LayerRule& rule, const Layout& layout,
                                             const WeightScheme& scheme,
                                             const TensorSpec& tensor) const;
};

/// Whether a tensor is one expert's, or those of all.
bool is_of_experts(const TensorSpec& tensor);

/// All families, in the order of lists.
std::span<const LayoutFamily* const> layout_families();

/// The names of all second files of configurations.
std::set<std::string> own_files();

/// All names that are read, of all families: names of modules' weights come before those of fused
/// parameters. Names say what scales mean, whatever the configuration says.
std::span<const StoredNames> stored_names();

}  // namespace fp8lab
