#pragma once
// The parts of `check_model`.

#include <map>
#include <string>
#include <vector>

#include "training/model_files/check_model.hpp"
#include "training/model_files/stored_model.hpp"

namespace fp8lab {

/// Names, shapes, types and the configuration: all that headers and config.json say.
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

/// Weights whose values are far larger than those of all others.
void check_ranges(const std::vector<WeightRange>& ranges, std::vector<Finding>& findings);

/// Scales of inputs and of the KV cache, and those of weights that servers join.
void check_sides(const ModelDirectory& source, const StoredModel& model,
                 std::vector<Finding>& findings);

/// Everything that needs the original.
void check_original(const ModelDirectory& source, const StoredModel& model,
                    const std::filesystem::path& original, CheckedModel& checked);

}  // namespace fp8lab
