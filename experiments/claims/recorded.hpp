#pragma once
// What installed systems did, for claims that speak of them. The values are in recorded.inc;
// tests/systems/claims.py asks the systems again, and fails where one answers otherwise. Rows of a
// chip are in recorded_rows.inc.

#include <string_view>

#include "fp8lab/vectors/vectors.hpp"

namespace fp8lab::experiments {

struct Recorded {
  std::string_view system;  ///< name and version
  std::string_view name;
  double value;
};

/// Throws `Error` where nothing of that name was recorded.
const Recorded& recorded(std::string_view name);

/// Dot products of 32 finite E4M3 pairs as an H200 gave them (recorded_rows.inc). They are rows of
/// tests/golden/silicon/h200_wgmma_e4m3.txt: first all of which a unit that flushes subnormal
/// operands would give other bits, then others without an accumulator.
const VectorFile& recorded_rows();

}  // namespace fp8lab::experiments
