#pragma once
// All TOML that is read: with a limit of depth, and messages of this project.

#include <toml++/toml.h>
#include <string>
#include <string_view>

namespace fp8lab {

/// The parser has no limit for dotted keys, and values are destroyed and printed by recursion.
inline constexpr int kMostTomlDepth = 64;

/// Throws `Error` that starts with `where` where a key has more parts, or values lie deeper in
/// tables and lists, than `kMostTomlDepth` together. The time is linear in the text, and there is
/// no recursion. Text that is not TOML may pass.
void require_toml_depth(std::string_view text, std::string_view where);

/// Throws `Error` that starts with `WHERE:LINE:COLUMN`, or with `where` for deep nesting.
toml::table parse_toml(std::string_view text, std::string_view where);

}  // namespace fp8lab
