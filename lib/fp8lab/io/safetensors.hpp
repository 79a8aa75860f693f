#pragma once
// The .safetensors format (little-endian 64-bit header length, JSON header,
// data). Files are mapped for reading and written atomically.

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fp8lab/io/files.hpp"
#include "fp8lab/io/output_file.hpp"
#include "fp8lab/tensors/tensor.hpp"

namespace fp8lab {

struct NamedTensor {
  std::string name;
  TensorView tensor;
};

/// One open file; its tensors are views of the mapping.
class SafetensorsFile {
 public:
  /// Throws `Error` with file and reason for: a header longer than the file or
  /// than 100 000 000 bytes, or one that is not a JSON object; a duplicate key;
  /// an unknown dtype; a shape that disagrees with
  /// the offsets; offsets outside the data, overlapping, or with holes between
  /// them. Data at any alignment is accepted, as the format allows. F4, F6_E2M3 and F6_E3M2 are
  /// packed codes, whose shape counts codes.
  explicit SafetensorsFile(const std::filesystem::path& path);

  /// The tensors in the order of their data.
  [[nodiscard]] const std::vector<NamedTensor>& tensors() const { return tensors_; }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }

  /// The mapping that owns the bytes of the tensors.
  [[nodiscard]] const MappedFile& file() const { return *file_; }

  /// The tensor called `name`. Throws `Error` that lists the first names of the file.
  [[nodiscard]] const TensorView& find(std::string_view name) const;

 private:
  std::string name_;
  std::unique_ptr<MappedFile> file_;
  std::vector<NamedTensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> index_;  ///< of names in `tensors_`
  std::map<std::string, std::string> metadata_;
};

/// The description of a tensor in a header.
struct TensorSpec {
  std::string name;
  ElementType type = ElementType::f32;
  std::vector<std::int64_t> shape;

  /// Throws `Error` for a shape that a file cannot contain.
  [[nodiscard]] std::uint64_t bytes() const;
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

/// Writes a file part by part, with the tensors in any order. In the file, those with the widest
/// elements come first (then by name), so that each starts at a multiple of its element size.
class SafetensorsWriter {
 public:
  /// Throws `Error` for a duplicate or reserved name, a type without a name in the format, a header
  /// that is too long, or a file that cannot be written.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorSpec> tensors,
                    const std::map<std::string, std::string>& metadata = {});

  /// Writes `bytes` of tensor `name` from `offset` (in bytes) on. Thread-safe. Throws `Error` for a
  /// name that is not in the header and for bytes outside the tensor.
  void write(std::string_view name, std::uint64_t offset, std::span<const std::byte> bytes);

  /// Completes the file. Throws `Error` unless all bytes of the header have been written.
  void commit();

  /// Bytes of the whole file, including the header.
  [[nodiscard]] std::uint64_t file_bytes() const { return file_bytes_; }

 private:
  struct Place {
    std::uint64_t begin = 0;
    std::uint64_t size = 0;
  };

  std::unordered_map<std::string, Place> places_;
  std::uint64_t file_bytes_ = 0;
  std::atomic<std::uint64_t> missing_ = 0;  ///< bytes that are not written yet
  std::string name_;
  OutputFile file_;
};

/// The size in bytes of the file of such tensors.
std::uint64_t safetensors_bytes(std::vector<TensorSpec> tensors,
                                const std::map<std::string, std::string>& metadata);

/// Writes row-major tensors, widest elements first (then by name), so that each
/// starts at a multiple of its element size. Throws `Error` for Fortran
/// order, a duplicate or reserved name, or bytes that disagree with the shape.
void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace fp8lab
