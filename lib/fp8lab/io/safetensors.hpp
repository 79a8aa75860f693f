#pragma once
// The .safetensors format (little-endian 64-bit header length, JSON header,
// data): read by mapping, written whole or not at all.

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fp8lab/io/mapped_file.hpp"
#include "fp8lab/tensors/tensor.hpp"

namespace fp8lab {

struct NamedTensor {
  std::string name;
  TensorView tensor;
};

/// One open file; the tensors point into the mapping.
class SafetensorsFile {
 public:
  /// Throws `Error` with file and reason for: a header longer than the file or
  /// than 100 000 000 bytes, or one that is not a JSON object; a duplicate key;
  /// an unknown dtype (the sub-byte ones included); a shape that disagrees with
  /// the offsets; offsets outside the data, overlapping, or with holes between
  /// them. Data at any alignment is accepted, as the format allows.
  explicit SafetensorsFile(const std::filesystem::path& path);

  /// In the order of their data.
  [[nodiscard]] const std::vector<NamedTensor>& tensors() const { return tensors_; }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }

  /// The mapping that the tensors point into.
  [[nodiscard]] const MappedFile& file() const { return *file_; }

  /// Throws `Error` that lists the first names of the file.
  [[nodiscard]] const TensorView& find(std::string_view name) const;

 private:
  std::string name_;
  std::unique_ptr<MappedFile> file_;
  std::vector<NamedTensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> index_;  ///< of names in `tensors_`
  std::map<std::string, std::string> metadata_;
};

/// Writes row-major tensors, widest elements first (then by name) so that each
/// starts at a multiple of its element's size. Throws `Error` for Fortran
/// order, a duplicate or reserved name, or bytes that disagree with the shape.
void write_safetensors(const std::filesystem::path& path, std::vector<NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace fp8lab
