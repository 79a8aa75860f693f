#include "common/cast.hpp"

namespace fp8lab::experiments {

std::vector<CastResult> cast_all(const Backend& backend, const Format& f, const CastPolicy& policy,
                                 std::span<const float> scaled) {
  std::vector<CastResult> results;
  results.reserve(scaled.size());
  for (const float x : scaled) results.push_back(cast(f, policy, x));
  if (f.storage_bits != 8 || !backend.cast) return results;
  std::vector<std::uint8_t> codes(scaled.size());
  if (!try_cast_on(backend, f.id, policy, scaled, codes)) return results;
  for (std::size_t i = 0; i < codes.size(); ++i) results[i].code = codes[i];
  return results;
}

}  // namespace fp8lab::experiments
