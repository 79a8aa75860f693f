#pragma once
// Vector files: dot products with the bits that a chip (or a model) gave, one
// case a line. Text, so that they pipe from program to program.
//
//   # fp8lab vectors 1
//   # model: sm90.wgmma.e4m3
//   # input: e4m3            (or: a and b, `e4m3 e5m2`)
//   # terms: 32
//   ... further `# key: value` lines
//   a b c d
//
// a, b: storage codes in hex, element 0 first, 2 digits an element for formats
// of at most 8 bits, 4 for FP16 and BF16, 8 for TF32 (held in binary32, low
// bits ignored). c, d: binary32 bits, 8 digits. d = c + a . b under the model.

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <map>
#include <string>
#include <vector>

#include "fp8lab/formats/format.hpp"

namespace fp8lab {

struct VectorCase {
  std::vector<std::uint32_t> a;  ///< codes of a's format, not storage words
  std::vector<std::uint32_t> b;
  std::uint32_t c = 0;  ///< binary32 bits
  std::uint32_t d = 0;  ///< binary32 bits
  int line = 0;         ///< where the case stands in its file, from 1
};

struct VectorFile {
  std::string model;
  FormatId a_format = FormatId::e4m3fn;
  FormatId b_format = FormatId::e4m3fn;
  int terms = 0;
  std::map<std::string, std::string> header;  ///< every `# key: value`, these four included
  std::vector<VectorCase> cases;
};

/// Reads a vector file. Throws `Error` with file, line and reason if it is
/// empty, lacks the magic line or a header field, names an unknown format, or
/// has a line that is not four hex fields of the stated widths, ended by a
/// newline (a last line without one is truncated).
VectorFile read_vectors(const std::filesystem::path& path);
VectorFile read_vectors(std::istream& in, const std::string& name);

/// Writes the header (magic, model, input, terms, then the other keys) and the cases.
void write_vectors(std::ostream& out, const VectorFile& file);

}  // namespace fp8lab
