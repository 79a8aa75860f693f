#pragma once
// What the files of a quantized model say of its weights: `quantization_config` in config.json (at
// its top or inside, as in multimodal models), and ModelOpt's hf_quant_config.json.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "training/model_files/layout.hpp"
#include "training/model_files/name_pattern.hpp"

namespace fp8lab {

/// The form of weights: format of the codes, kind of scales, and the tiles of scales that are
/// neither the tensor's nor a row's.
struct WeightForm {
  FormatId format = FormatId::e4m3fn;
  ScaleKind scales = ScaleKind::plain;
  std::int64_t row_block = 128;
  std::int64_t k_block = 128;
  std::optional<WeightTiles> tiles = {};  ///< of plain scales, where the configuration says it

  friend bool operator==(const WeightForm&, const WeightForm&) = default;
};

/// "FP8 with plain scales", "MXFP4", "NVFP4".
std::string describe(const WeightForm& form);

/// Modules that have a form of their own.
struct FormGroup {
  std::string name = {};  ///< of the group, or of the module
  std::vector<NamePattern> targets = {};
  bool is_default = false;  ///< targets classes of modules, such as Linear
  WeightForm form = {};
  std::string format = {};  ///< that of compressed-tensors; empty where it is not said
  std::optional<bool> static_inputs = {};  ///< whether input scales come from the files
  std::string fault = {};                  ///< why its weights cannot be read; empty where they can
};

struct StoredQuantization {
  const LayoutFamily* family = nullptr;
  WeightForm form = {};  ///< of modules that no group names
  std::string method = {};
  std::string where = {};                 ///< file and key
  std::vector<FormGroup> groups = {};     ///< in the order of the file
  std::vector<NamePattern> ignored = {};  ///< modules that stay as they are
  bool u8_is_e8m0 = false;                ///< bytes of scales are powers of two
  bool power_of_two = false;              ///< scales are powers of two (`scale_fmt: ue8m0`)
  bool has_forms = false;                 ///< whether it says anything of weights
  bool has_experts_alone = false;         ///< nothing but fused experts is quantized
  bool static_inputs = false;             ///< input scales come from the files
  bool has_dynamic_inputs = false;        ///< input scales are computed at run time
  bool says_no_blocks = false;            ///< scales are those of tensors or rows
  bool quantizes_kv = false;              ///< the KV cache is quantized
  bool kv_is_static = false;              ///< scales of the KV cache come from the files
  std::int64_t kv_bits = 0;               ///< of the KV cache's numbers; 0 where it is not said
  std::string kv_scheme = {};             ///< how, in the words of the file; empty for no scheme
  std::string fp8_format = {};            ///< `fmt`; empty where it is not said
  std::string fault = {};                 ///< why no weight can be read; empty where they can

  /// The group of a module: the first one that names it, else the first that targets its class;
  /// null for none.
  [[nodiscard]] const FormGroup* group_of(std::string_view module) const;
  /// The form that the files give to a module: that of its group, else `form`.
  [[nodiscard]] const WeightForm& form_of(std::string_view module) const;
  [[nodiscard]] bool ignores(std::string_view module) const;
};

/// The quantization that a config.json describes: `quantization_config` or `compression_config`, at
/// the top or in a nested object (`text_config`). Unset where it describes none. Throws `Error` for
/// a method or numbers that no layout has, and for two nested ones that differ.
std::optional<StoredQuantization> read_quantization(const std::string& config,
                                                    const std::string& where);

/// The same for a family's second file (`LayoutFamily::own_file`), such as ModelOpt's
/// hf_quant_config.json.
StoredQuantization read_own_file(const LayoutFamily& family, const std::string& text,
                                 const std::string& where);

}  // namespace fp8lab
