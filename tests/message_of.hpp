#pragma once
// What a refusal says.

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

}  // namespace fp8lab::test
