#pragma once
// JSON of others that is written back: no number may become another one.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace fp8lab {

/// As `parse_json`, but an integer beyond 64 bits, which the library would round to a real number,
/// is kept as a binary value with its digits. JSON itself has no binary values.
nlohmann::ordered_json parse_exact_json(std::string_view text, const std::string& where);

/// The text of such a value, as the library writes it with this indent, with those digits.
std::string exact_json(const nlohmann::ordered_json& value, int indent);

}  // namespace fp8lab
