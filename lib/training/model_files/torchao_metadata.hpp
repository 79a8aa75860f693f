#pragma once
// What torchao's reader of .safetensors wants in a file's metadata: how it makes its tensor classes
// of codes and scales. Read in torchao 0.18.0, prototype/safetensors/safetensors_utils.py.

#include <map>
#include <string>

#include "training/model_files/quantize_model.hpp"

namespace fp8lab {

/// Of every shard alike: the reader merges the metadata of all of them, and the last list of names
/// stays.
std::map<std::string, std::string> torchao_metadata(const WeightScheme& scheme,
                                                    const QuantizedModel& model);

}  // namespace fp8lab
