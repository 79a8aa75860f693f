#pragma once
// What installed systems did, for claims that speak of them. The values are in recorded.inc;
// tests/systems/claims.py asks the systems again, and fails where one answers otherwise.

#include <string_view>

namespace fp8lab::experiments {

struct Recorded {
  std::string_view system;  ///< name and version
  std::string_view name;
  double value;
};

/// Throws `Error` where nothing of that name was recorded.
const Recorded& recorded(std::string_view name);

}  // namespace fp8lab::experiments
