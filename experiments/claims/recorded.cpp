#include "claims/recorded.hpp"

#include <algorithm>
#include <array>
#include <sstream>
#include <string>

#include "fp8lab/core/error.hpp"

namespace fp8lab::experiments {
namespace {

constexpr auto kRecorded = std::to_array<Recorded>({
#include "claims/recorded.inc"
});

constexpr std::string_view kRecordedRows =
#include "claims/recorded_rows.inc"
    ;

}  // namespace

const Recorded& recorded(std::string_view name) {
  const auto found = std::ranges::find(kRecorded, name, &Recorded::name);
  if (found == kRecorded.end())
    throw Error("recorded", "a value of recorded.inc", "'" + std::string(name) + "'");
  return *found;
}

const VectorFile& recorded_rows() {
  static const VectorFile kFile = [] {
    std::istringstream text{std::string(kRecordedRows)};
    return read_vectors(text, "recorded_rows.inc");
  }();
  return kFile;
}

}  // namespace fp8lab::experiments
