#pragma once
// Small folders of models.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fp8lab/io/safetensors.hpp"
#include "fp8lab/scaling/presets.hpp"
#include "training/model_files/layout.hpp"
#include "training/model_files/quantization_config.hpp"

namespace fp8lab::test {

using Bytes = std::vector<std::uint8_t>;

inline TensorView bytes_view(ElementType type, std::vector<std::int64_t> shape,
                             const Bytes& bytes) {
  return view_of(type, std::move(shape), std::span<const std::uint8_t>(bytes));
}

/// A file of weights that each hold one byte.
inline void write_shard(const std::filesystem::path& path, const std::vector<std::string>& names) {
  const Bytes byte{7};
  std::vector<NamedTensor> tensors;
  for (const std::string& name : names)
    tensors.push_back({name, bytes_view(ElementType::u8, {1}, byte)});
  write_safetensors(path, tensors);
}

/// The config.json of a model of binary16 that a preset's weights were written for.
inline std::string config_of(const char* layout, const char* preset) {
  const Layout& known = find_layout(layout);
  return with_quantization(R"({"dtype": "float16", "zebra": 1})", "c", known,
                           make_scheme(known, find_preset(preset), false), {});
}

}  // namespace fp8lab::test
