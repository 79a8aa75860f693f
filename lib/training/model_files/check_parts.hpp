#pragma once
// The parts of `check_model`.

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "training/model_files/check_model.hpp"
#include "training/model_files/stored_model.hpp"

namespace fp8lab {

/// A name with a number in it, as in `layers.3.` or `experts.17.`.
struct Numbered {
  std::string before = {};
  std::int64_t number = -1;  ///< -1 for a name without one
  std::string after = {};
};
Numbered split_number(const std::string& name, std::string_view list);

/// A number of config.json under the first of `keys` that it has, at its top or in the part of the
/// language model; 0 for none.
std::int64_t number_in_config(const ModelDirectory& source,
                              std::initializer_list<const char*> keys);

/// What config.json says of the model and of its quantization, against the tensors.
void check_config(const ModelDirectory& source, const StoredModel& model,
                  std::vector<Finding>& findings);

/// Names, shapes and types: all that headers say.
void check_names(const ModelDirectory& source, const StoredModel& model,
                 std::vector<Finding>& findings);

/// The largest value of a weight, for comparison between weights.
struct WeightRange {
  std::string name;
  float largest = 0.0F;
};

/// Scales and codes of one weight.
void check_values(const StoredModel& model, const StoredWeight& weight,
                  const std::vector<float>& scales, const SafetensorsFile& file,
                  const TensorView& codes, std::vector<WeightRange>& ranges,
                  std::vector<Finding>& findings);

/// A tensor of floats that is not quantized: NaN, infinite values, and a matrix of zeros.
void check_floats(const TensorSpec& spec, const SafetensorsFile& file, const TensorView& tensor,
                  std::vector<Finding>& findings);

/// Weights whose values are far larger than those of all others.
void check_ranges(const std::vector<WeightRange>& ranges, std::vector<Finding>& findings);

/// Scales of inputs and of the KV cache, and those of weights that servers join.
void check_sides(const ModelDirectory& source, const StoredModel& model,
                 std::vector<Finding>& findings);

/// Everything that needs the original.
void check_original(const ModelDirectory& source, const StoredModel& model,
                    const std::filesystem::path& original, CheckedModel& checked);

}  // namespace fp8lab
