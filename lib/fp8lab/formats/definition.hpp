#pragma once
// Formats beyond the built-in table: by name, or defined by the user as text. Either is accepted
// wherever the name of a format is.
//
//   e3m4, e4m3b11fnuz, ue5m3, binary8p3se
//   float:e=3,m=4
//   float:e=4,m=3,bias=8,inf=yes,nan=one,negative_zero=no
//
// `float:e=BITS,m=BITS[,PARAMETER=VALUE,...]`, of 3 to 16 bits. `format_parameters` lists them all.
// What is not given is as in IEEE 754, but a format without IEEE 754's NaN has Inf only if the
// text says so. A format is its traits: all names and texts of the same traits give the same
// format, whose name is that of the table, else of `named_formats`, else of P3109, else the
// shortest text.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/formats/format.hpp"

namespace fp8lab {

/// A parameter of a format's text.
struct FormatParameter {
  std::string_view name;
  std::string_view values;  ///< the allowed values, in words
  std::string_view help;
};

std::span<const FormatParameter> format_parameters();

/// A format that has a name of its own and no place in the built-in table.
struct NamedFormat {
  std::string_view name;
  std::string_view text;     ///< the same as text
  std::string_view used_by;  ///< who has it
};

/// Without the formats of IEEE P3109, which are too many to list: `binaryKpP` and s or u (signed or
/// not), e or f (with Inf or not), of K bits and P bits of precision; `binaryKpP` is `binaryKpPse`.
/// Names and values are those of the interim report of June 2026.
std::span<const NamedFormat> named_formats();

/// The format that a name of `named_formats`, a name of P3109 or a text defines; null for any other
/// text. Throws `Error` for parameters that are unknown, contradictory or out of range, for
/// formats with values that binary64 does not represent, and for more than `kMostDefinedFormats` of
/// them in a process. Thread-safe.
const Format* find_defined_format(std::string_view text);

inline constexpr std::size_t kMostDefinedFormats = 4096;

/// Whether a text has the form of a format's text or of a name of P3109, whatever its parts.
bool is_format_definition(std::string_view text);

/// The traits of a format of 3 to 16 bits as text, with all that is not the default.
std::string format_text(const Format& f);

/// The values of a format of at most 16 code bits, indexed by code. Tables of formats that are not
/// built in go on to the last storage word: bits above the code are ignored.
struct FormatTables {
  std::vector<Unpacked> unpacked;
  std::vector<float> values;  ///< empty where binary32 does not represent all of them
};
FormatTables format_tables(const Format& f);

/// The tables of a format that is not built in.
const FormatTables& tables_of_defined(FormatId id);

}  // namespace fp8lab
