#pragma once
// NumPy's .npy files, versions 1.0 and 2.0 (NEP 1). They are mapped for reading and
// written atomically.

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "fp8lab/io/files.hpp"
#include "fp8lab/io/output_file.hpp"
#include "fp8lab/tensors/tensor.hpp"

namespace fp8lab {

/// The array in the bytes of an .npy file, by the rules of `NpyFile`. Messages start
/// with `name`.
TensorView parse_npy(std::span<const std::byte> bytes, const std::string& name,
                     std::optional<ElementType> interpret_as = std::nullopt);

/// The bytes before the data of an .npy file: magic, version and header.
/// Throws `Error` if the bytes disagree with the shape.
std::string npy_preamble(const TensorView& tensor);

/// One open .npy file; `tensor()` is a view of the mapping.
class NpyFile {
 public:
  /// Reads `<f2 <f4 <f8 |u1 |i1 <u2 <i2 <u4 <i4 <u8 <i8 |b1`. `interpret_as`
  /// gives the type of `|u1` bytes or `<u2` and `<V2` words (e4m3fn, e5m2, e8m0fnu,
  /// e2m1 ..., one code per byte; e2m1x2, e2m3x4, e3m2x4, packed codes, whose shape is then
  /// that of the codes; bf16, f16). `<V2`, as which NumPy saves ml_dtypes' bfloat16,
  /// needs it. One-byte `V1` (ml_dtypes' FP8 types) is refused, because the file does
  /// not say which FP8 format it has: save `x.view(np.uint8)` instead.
  ///
  /// Throws `Error` with file and reason for a file that is truncated, longer
  /// than its array, big-endian, structured, pickled, of an unknown version, or
  /// whose header is not the literal that NumPy writes.
  explicit NpyFile(const std::filesystem::path& path,
                   std::optional<ElementType> interpret_as = std::nullopt);

  [[nodiscard]] const TensorView& tensor() const { return tensor_; }

 private:
  std::unique_ptr<MappedFile> file_;
  TensorView tensor_;
};

/// Writes version 1.0 (2.0 if the header needs it), with data aligned to 64
/// bytes. Codes of at most 8 bits are written as `|u1`, packed codes with the
/// shape of their bytes, and BF16 as `<V2`. `NpyFile` and `ndarray.view` can
/// read all of these.
void write_npy(const std::filesystem::path& path, const TensorView& tensor);

/// The same, complete but not yet under its name.
std::unique_ptr<OutputFile> prepare_npy(const std::filesystem::path& path,
                                        const TensorView& tensor);

}  // namespace fp8lab
