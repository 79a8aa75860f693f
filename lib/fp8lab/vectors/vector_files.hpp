#pragma once
// Golden vectors in common file formats, by the ending of the file name.
//
//   .npz          members, n cases of `terms` operand pairs:
//                   a, b    [n, terms]  storage codes: uint8; uint16 for FP16 and BF16;
//                                       uint32 for TF32 (binary32 words)
//                   sa, sb  [n, blocks] scale codes: uint8; only with block scales
//                   c, d    [n]         float32; d = c + a . b under the model
//                   header  [bytes]     uint8, a JSON object: model, input, terms and the other
//                                       `# key: value` lines of the text form, all strings
//                 z = numpy.load(f); z["a"].view(ml_dtypes.float8_e4m3fn);
//                 json.loads(bytes(z["header"]))
//   .safetensors  the same tensors, a and b as F8_E4M3, F8_E5M2, F16, BF16, (TF32) F32, or U8
//                 if there is no such type (E2M1), scales as U8; the header as metadata
//   .jsonl        JSON-lines: the header object, then one object per case:
//                 {"a": [56, ...], "b": [...], "c": 0, "d": 1073741824}: storage codes, and the
//                 binary32 bits of c and d as unsigned integers, to preserve NaN; scales as
//                 "sa" and "sb"
//   others        the text form of vectors.hpp

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/vectors/vectors.hpp"

namespace fp8lab {

inline constexpr std::array<std::string_view, 3> kRequiredKeys{"model", "input", "terms"};
inline constexpr std::array<std::string_view, 3> kOptionalKeys{"scales", "nan", "output"};

/// Sets the field of `file` that a line of one of these keys stands for. Throws `Error` with
/// key, expected and got.
void apply_header_line(VectorFile& file, std::string_view key, const std::string& value);

/// Every `# key: value` of a file: its header, and the fields that `VectorFile` holds apart.
std::map<std::string, std::string> header_of(const VectorFile& file);

/// Reads a vector file of any of these forms. `line` of a case is its line in text and
/// JSON-lines, and its index from 1 in the others. Throws `Error` with file and reason for
/// missing members, wrong types or shapes, and values that are not codes of their format.
VectorFile load_vectors(const std::filesystem::path& path);

/// The same for the text of a file that is neither .npz nor .safetensors.
VectorFile parse_vectors(const std::filesystem::path& path, std::string text);

/// Whether `load_vectors` reads a file of this name as .npz or .safetensors.
bool holds_arrays(const std::filesystem::path& path);

/// The cases of a file as row-major arrays, as .npz stores them.
struct VectorArrays {
  std::vector<std::byte> a;  ///< [n, terms] storage words, little endian
  std::vector<std::byte> b;
  std::vector<std::uint8_t> scales_a;  ///< [n, blocks] codes
  std::vector<std::uint8_t> scales_b;
  std::vector<std::uint32_t> c;  ///< [n] binary32 bits
  std::vector<std::uint32_t> d;
};
VectorArrays arrays_of(const VectorFile& file);

/// Writes a vector file atomically. Throws `Error`.
void save_vectors(const std::filesystem::path& path, const VectorFile& file);

}  // namespace fp8lab
