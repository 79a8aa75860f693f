#pragma once
// Vector files: dot products with the bits of a chip or a model, one case per line.
// They are text, so that programs can pipe them.
//
//   # fp8lab vectors 1
//   # model: sm90.wgmma.e4m3
//   # input: e4m3            (or: a and b, `e4m3 e5m2`)
//   # terms: 32
//   # scales: ue8m0 32       (only with block scales: ue8m0 or ue4m3, blocks of 16 or 32)
//   # nan: any               (only if the bits of NaN are not known: any NaN matches one in d)
//   # output: f16            (only if d is an FP16 value); further `# key: value` lines
//   a b c d                  (with block scales: a b sa sb c d)
//   # crc32: 01234567        (optional last line: checksum of all bytes before this line)
//
// a, b: storage codes in hex, element 0 first: 2 digits per element for formats of at
// most 8 bits, including E2M1; 4 for FP16 and BF16; 8 for TF32 and XF32 (stored in
// binary32, low bits ignored). sa, sb: codes of the scales, 2 digits each, block 0 first; the last
// block may be short. c, d: binary32 bits, 8 digits; in files with FP16 outputs also FP16 bits, 4
// digits. d = c + a . b under the model; c is not scaled.

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/scale_code.hpp"

namespace fp8lab {

struct VectorCase {
  std::vector<std::uint32_t> a;  ///< codes of a's format, not storage words
  std::vector<std::uint32_t> b;
  std::uint32_t c = 0;                      ///< binary32 bits
  std::uint32_t d = 0;                      ///< binary32 bits
  int line = 0;                             ///< line of the case in its file, from 1
  std::vector<std::uint8_t> scales_a = {};  ///< codes, one per block; empty without block scales
  std::vector<std::uint8_t> scales_b = {};
};

/// The format and the block of a file's scales.
struct ScaleBlocks {
  ScaleFormat format = ScaleFormat::ue8m0;
  int block = 32;  ///< elements along k that share a scale

  friend bool operator==(const ScaleBlocks&, const ScaleBlocks&) = default;
};

struct VectorFile {
  std::string model;
  FormatId a_format = FormatId::e4m3fn;
  FormatId b_format = FormatId::e4m3fn;
  int terms = 0;
  std::map<std::string, std::string> header;  ///< all `# key: value` lines of the file
  std::vector<VectorCase> cases;
  std::optional<ScaleBlocks> scales = std::nullopt;
  bool any_nan = false;                    ///< a NaN in d stands for any NaN
  FormatId output_format = FormatId::f32;  ///< format of the values d: f32 or f16

  /// Number of scales of an operand of one case.
  [[nodiscard]] std::size_t scale_count() const {
    return scales ? static_cast<std::size_t>((terms + scales->block - 1) / scales->block) : 0;
  }
};

/// Whether `got` equals the `expected` d of a case, bit for bit. If the file says so, any NaN
/// matches a NaN. Two NaNs of FP16 outputs match if they have the same FP16 code.
bool is_same_result(const VectorFile& file, std::uint32_t expected, std::uint32_t got);

/// Throws `Error` unless a case has the scales that its file states.
void require_scales(const VectorFile& file, const VectorCase& one);

/// Throws `Error` unless d, binary32 bits, is a value of the file's output format.
void require_output_value(const VectorFile& file, std::uint32_t d);

/// Reads a vector file. Throws `Error` with file, line and reason if it is empty, lacks the
/// first line or a header field, names an unknown format, has a line that is not four hex
/// fields (six with scales) of the stated widths and a newline (a truncated file), a d that
/// is not a value of the output format, or a wrong checksum.
VectorFile read_vectors(const std::filesystem::path& path);
VectorFile read_vectors(std::istream& in, const std::string& name);

/// Writes the header (magic, model, input, terms, then the other keys) and the cases. Throws
/// `Error` for a case without the scales that the file's header states.
void write_vectors(std::ostream& out, const VectorFile& file);

}  // namespace fp8lab
