#include "claims/recorded.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "fp8lab/core/error.hpp"

namespace fp8lab::experiments {
namespace {

constexpr auto kRecorded = std::to_array<Recorded>({
#include "claims/recorded.inc"
});

}  // namespace

const Recorded& recorded(std::string_view name) {
  const auto found = std::ranges::find(kRecorded, name, &Recorded::name);
  if (found == kRecorded.end())
    throw Error("recorded", "a value of recorded.inc", "'" + std::string(name) + "'");
  return *found;
}

}  // namespace fp8lab::experiments
