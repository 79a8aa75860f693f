#pragma once
// Outputs whose activation no two libraries compute with the same bits: which codes are as good as
// the golden ones.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fp8lab/product/product.hpp"

namespace fp8lab {

/// An output with every code that lies in reach of its golden value replaced by the golden code.
struct WithinReach {
  std::vector<std::byte> codes;
  std::uint64_t replaced = 0;
};

/// `finished` has the values that `golden` was cast from, and their reach.
WithinReach within_reach(const OutputCast& output, const Finished& finished,
                         std::span<const std::byte> golden, std::span<const std::byte> got);

}  // namespace fp8lab
