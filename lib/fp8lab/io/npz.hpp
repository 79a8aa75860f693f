#pragma once
// NumPy's .npz archives: a ZIP file with one .npy per tensor, stored or deflated.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/io/output_file.hpp"
#include "fp8lab/io/safetensors.hpp"
#include "fp8lab/tensors/tensor.hpp"

namespace fp8lab {

/// One tensor of an archive, read into memory: a deflated member cannot be mapped.
struct NpzTensor {
  TensorView tensor;  ///< a view of `bytes`
  std::shared_ptr<const std::vector<std::byte>> bytes;
};

/// One open archive.
class NpzFile {
 public:
  /// Throws `Error` with file and reason for a file that is not a ZIP file, is not
  /// consistent, has a duplicate name, or has members other than .npy.
  explicit NpzFile(const std::filesystem::path& path);
  ~NpzFile();
  NpzFile(const NpzFile&) = delete;
  NpzFile& operator=(const NpzFile&) = delete;

  /// Names without `.npy`, in the order of the archive.
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

  /// Reads a member; `interpret_as` as in `NpyFile`. Throws `Error` for an unknown
  /// name, and for a member that is encrypted, damaged (its CRC is checked) or
  /// declares a size that its packed bytes cannot have.
  [[nodiscard]] NpzTensor read(std::string_view name,
                               std::optional<ElementType> interpret_as = std::nullopt) const;

 private:
  struct Archive;
  std::string path_;
  std::unique_ptr<Archive> archive_;
  std::vector<std::string> names_;
};

/// Writes every tensor as a stored (not deflated) member, atomically. The same
/// tensors give the same bytes. Throws `Error` for a name that is empty, is a
/// duplicate or contains '/'.
void write_npz(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors);

/// The same, complete but not yet under its name.
std::unique_ptr<OutputFile> prepare_npz(const std::filesystem::path& path,
                                        const std::vector<NamedTensor>& tensors);

}  // namespace fp8lab
