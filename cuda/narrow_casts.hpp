#pragma once
// Kernels of the conversions to and from FP4, FP6 and UE8M0, by the names of cast_table.hpp.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace fp8lab::cuda {

struct NamedCast {
  std::string_view name;
  /// Converts the codes first, first + 1, ... into `codes` in device memory; `count` even.
  void (*launch)(std::uint64_t first, std::size_t count, std::uint16_t* codes);
};

/// Empty for a toolkit without Blackwell. They run on sm_100 and sm_120 alone.
std::span<const NamedCast> narrow_cast_kernels();

}  // namespace fp8lab::cuda
