#pragma once
// What a refusal says.

#include <filesystem>
#include <string>

#include "fp8lab/core/error.hpp"

namespace fp8lab::test {

/// The message of the `Error` that `call` ends with; `otherwise` where it ends without.
template <typename Call>
std::string message_of(const Call& call, const char* otherwise = "accepted") {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return otherwise;
}

/// The same with ~ for the folder.
template <typename Call>
std::string message_in(const std::filesystem::path& folder, const Call& call) {
  const std::string text = message_of(call);
  const std::string name = folder.string();
  std::string said;
  std::size_t from = 0;
  for (std::size_t at = 0; (at = text.find(name, from)) != std::string::npos;) {
    said.append(text, from, at - from);
    said += '~';
    from = at + name.size();
  }
  return said.append(text, from);
}

}  // namespace fp8lab::test
