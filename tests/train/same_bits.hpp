#pragma once
// Whether two tensors hold the same bits, without printing them.

#include <cstring>
#include <vector>

namespace fp8lab::train {

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace fp8lab::train
