#pragma once
// One way to load a tensor that a user names, from any file that the project
// reads, and one to save it.
//
//   x.npy                 a .npy file
//   x.npz:w               tensor `w` of an archive; `:w` may be left out if it is alone
//   model.safetensors:w   the same
//   x.bin                 raw little-endian data, described by the sidecar x.bin.json
//
// A sidecar is one JSON object: {"dtype": "e4m3fn", "shape": [64, 128]}. Beside
// a .npy file it may stand too, and says what its uint8 codes are.
//
// Packed codes (F4, F6_E2M3 and F6_E3M2 of .safetensors, or bytes that a dtype or sidecar calls
// e2m1x2, e2m3x4 or e3m2x4) are unpacked: one code a byte.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fp8lab/io/mapped_file.hpp"
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
  /// What the tensor's bytes live in.
  [[nodiscard]] const std::shared_ptr<const void>& owner() const { return owner_; }

  /// Gives back the memory of a part of a mapped file that has been read; does
  /// nothing for data in memory.
  void release(std::span<const std::byte> part) const {
    if (file_) file_->release(part);
  }

 private:
  std::string name_;
  TensorView tensor_;
  std::shared_ptr<const void> owner_;
  std::shared_ptr<const MappedFile> file_;  ///< null for data in memory
};

/// Loads what `name` names; .npy, .safetensors and raw data are mapped, not read.
/// `dtype` says what uint8, uint16 or opaque 16-bit elements really are, and wins
/// over a sidecar. Throws `Error` with the file, the reason and what to do.
Operand load_operand(const std::string& name, std::optional<ElementType> dtype = std::nullopt);

/// Throws `Error` unless `save_tensor` knows the ending of `path` and its folder
/// is there: before the work, not after.
void require_savable(const std::filesystem::path& path);

/// Writes one row-major tensor as .npy, .npz or .safetensors, by the ending of
/// `path`. FP8, FP6, FP4 and BF16 in .npy and .npz get the sidecar PATH.json,
/// without which NumPy's file does not say what it holds. FP4 and FP6 codes are one a byte there,
/// and packed in .safetensors.
void save_tensor(const std::filesystem::path& path, const std::string& name,
                 const TensorView& tensor);

}  // namespace fp8lab
