#pragma once
// Memory that starts at a cache line, so that no vector crosses two lines, and non-temporal stores
// fill whole lines.

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace fp8lab {

inline constexpr int kCacheLine = 64;  ///< bytes

/// `std::allocator` with this alignment.
template <typename T>
struct CacheLineAllocator {
  using value_type = T;

  CacheLineAllocator() = default;
  template <typename Other>
  explicit(false) CacheLineAllocator(const CacheLineAllocator<Other>& /*other*/) {}

  T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new (count * sizeof(T), std::align_val_t{kCacheLine}));
  }
  void deallocate(T* memory, std::size_t /*count*/) {
    ::operator delete (memory, std::align_val_t{kCacheLine});
  }
  bool operator==(const CacheLineAllocator&) const = default;
};

template <typename T>
using CacheLineVector = std::vector<T, CacheLineAllocator<T>>;

/// FP8 codes, one per byte.
using CodeVector = CacheLineVector<std::uint8_t>;

}  // namespace fp8lab
