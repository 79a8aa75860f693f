#pragma once
// Loads a tensor that a user names from any file format of the project, and saves
// tensors.
//
//   x.npy                 a .npy file
//   x.npz:w               tensor `w` of an archive; `:w` is optional if it is the only one
//   model.safetensors:w   the same
//   x.bin                 raw little-endian data, described by the sidecar x.bin.json
//
// A sidecar is one JSON object: {"dtype": "e4m3fn", "shape": [64, 128]}. A .npy file
// may have one too, which gives the format of its uint8 codes.
//
// Packed codes (F4, F6_E2M3 and F6_E3M2 of .safetensors, or bytes with the dtype e2m1x2, e2m3x4 or
// e3m2x4) are unpacked to one code per byte.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fp8lab/io/files.hpp"
#include "fp8lab/tensors/tensor.hpp"

namespace fp8lab {

/// A loaded tensor. Copies share the data.
class Operand {
 public:
  Operand(std::string name, TensorView tensor, std::shared_ptr<const void> owner,
          std::shared_ptr<const MappedFile> file = nullptr)
      : name_(std::move(name)),
        tensor_(std::move(tensor)),
        owner_(std::move(owner)),
        file_(std::move(file)) {}

  [[nodiscard]] const std::string& name() const { return name_; }  ///< as the user wrote it
  [[nodiscard]] const TensorView& tensor() const { return tensor_; }

  /// Releases the memory of a part of a mapped file that has been read. No effect for
  /// data in memory.
  void release(std::span<const std::byte> part) const {
    if (file_) file_->release(part);
  }

 private:
  std::string name_;
  TensorView tensor_;
  std::shared_ptr<const void> owner_;
  std::shared_ptr<const MappedFile> file_;  ///< null for data in memory
};

/// Loads the tensor `name`; .npy, .safetensors and raw data are mapped, not read.
/// `dtype` gives the type of uint8, uint16 or opaque 16-bit elements and overrides a
/// sidecar. Throws `Error` with the file, the reason and a remedy.
Operand load_operand(const std::string& name, std::optional<ElementType> dtype = std::nullopt);

/// Throws `Error` unless `save_tensor` supports the ending of `path` and its folder takes files: it
/// is tried. Call it before long work.
void require_savable(const std::filesystem::path& path);

/// Writes one row-major tensor as .npy, .npz or .safetensors, by the ending of
/// `path`. FP8, FP6, FP4 and BF16 in .npy and .npz get the sidecar PATH.json, since
/// NumPy's files do not contain these types. FP4 and FP6 codes are one per byte there, and packed
/// in .safetensors.
void save_tensor(const std::filesystem::path& path, const std::string& name,
                 const TensorView& tensor);

}  // namespace fp8lab
