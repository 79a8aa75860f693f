#pragma once
// The .safetensors format (little-endian 64-bit header length, JSON header,
// data): read by mapping, written whole or not at all.

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

#include "fp8lab/io/mapped_file.hpp"
#include "fp8lab/io/output_file.hpp"
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
  /// an unknown dtype; a shape that disagrees with
  /// the offsets; offsets outside the data, overlapping, or with holes between
  /// them. Data at any alignment is accepted, as the format allows. F4, F6_E2M3 and F6_E3M2 are
  /// packed codes, whose shape counts codes.
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

/// What a header says of a tensor.
struct TensorSpec {
  std::string name;
  ElementType type = ElementType::f32;
  std::vector<std::int64_t> shape;

  /// Throws `Error` for a shape that no file can hold.
  [[nodiscard]] std::uint64_t bytes() const;
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

/// Writes a file whose tensors come part by part, in any order. They lie widest elements first
/// (then by name), so that each starts at a multiple of its element's size.
class SafetensorsWriter {
 public:
  /// Throws `Error` for a duplicate or reserved name, a type that the format has no name for, a
  /// header that is too long, or a file that cannot be written.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorSpec> tensors,
                    const std::map<std::string, std::string>& metadata = {});

  /// `bytes` of tensor `name`, from `offset` (in bytes) on; from any thread. Throws `Error` for a
  /// name that is not in the header and for bytes outside the tensor.
  void write(std::string_view name, std::uint64_t offset, std::span<const std::byte> bytes);

  /// Takes its place. Throws `Error` unless as many bytes came as the header says.
  void commit();

  /// Of the whole file, header included.
  [[nodiscard]] std::uint64_t file_bytes() const { return file_bytes_; }

 private:
  struct Place {
    std::uint64_t begin = 0;
    std::uint64_t size = 0;
  };

  std::unordered_map<std::string, Place> places_;
  std::uint64_t file_bytes_ = 0;
  std::atomic<std::uint64_t> missing_ = 0;  ///< bytes that are still to come
  std::string name_;
  OutputFile file_;
};

/// How many bytes the file of such tensors has.
std::uint64_t safetensors_bytes(std::vector<TensorSpec> tensors,
                                const std::map<std::string, std::string>& metadata);

/// Writes row-major tensors, widest elements first (then by name) so that each
/// starts at a multiple of its element's size. Throws `Error` for Fortran
/// order, a duplicate or reserved name, or bytes that disagree with the shape.
void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace fp8lab
