#pragma once
// The `# key: value` lines of a vector file that say how its cases read.

#include <array>
#include <map>
#include <string>
#include <string_view>

#include "fp8lab/vectors/vectors.hpp"

namespace fp8lab {

inline constexpr std::array<std::string_view, 3> kRequiredKeys{"model", "input", "terms"};
inline constexpr std::array<std::string_view, 3> kOptionalKeys{"scales", "nan", "output"};

/// Sets the field of `file` that a line of one of these keys stands for. Throws `Error` with
/// key, expected and got.
void apply_header_line(VectorFile& file, std::string_view key, const std::string& value);

/// Every `# key: value` of a file: its header, and the fields that `VectorFile` holds apart.
std::map<std::string, std::string> header_of(const VectorFile& file);

}  // namespace fp8lab
