#pragma once
// wgmma on the host: its operands are read as the hardware would, through the
// descriptors' fields, from a stand-in for shared memory. What is asynchronous on
// the chip is done at the last moment that the waits allow, or, for copies, at the
// first where a test asks for that: a kernel that reads or overwrites too early
// computes wrong sums. Include it before a kernel's header.

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "device_on_host.hpp"
#include "fp8lab/formats/format.hpp"

namespace fp8lab::cuda {

/// Host memory behind the 18 bits of address that a descriptor holds: windows of
/// 192 and 64 KiB, each given to the first array that asks for one.
class SharedWindows {
 public:
  std::uint32_t address(const unsigned char* pointer) {
    const std::scoped_lock lock(mutex_);
    for (std::uint32_t i = 0; i < 2; ++i) {
      if (base_[i] == nullptr) base_[i] = const_cast<unsigned char*>(pointer);
      const std::ptrdiff_t offset = pointer - base_[i];
      if (offset >= 0 && offset < (i == 0 ? kFirstBytes : kAllBytes - kFirstBytes))
        return i * kFirstBytes + static_cast<std::uint32_t>(offset);
    }
    std::abort();  // a kernel with a third array far from the others
  }
  unsigned char* pointer(std::uint32_t address) {
    return base_[address / kFirstBytes] + address % kFirstBytes;
  }
  void forget() { base_ = {}; }

 private:
  static constexpr std::uint32_t kFirstBytes = 192 * 1024;
  static constexpr std::uint32_t kAllBytes = 256 * 1024;
  std::mutex mutex_;
  std::array<unsigned char*, 2> base_{};
};
inline SharedWindows shared_windows;

/// What one thread has started and not waited for, in groups.
class InFlight {
 public:
  void start(std::function<void()> work) { open_.push_back(std::move(work)); }
  void commit() { groups_.push_back(std::exchange(open_, {})); }
  void wait(std::size_t pending) {
    for (; groups_.size() > pending; groups_.pop_front())
      for (const auto& work : groups_.front()) work();
  }

 private:
  std::vector<std::function<void()>> open_;
  std::deque<std::vector<std::function<void()>>> groups_;
};
inline device_on_host::OfThread<InFlight> products_in_flight;
inline device_on_host::OfThread<InFlight> copies_in_flight;
inline bool copies_are_early = false;

inline std::uint32_t shared_address(const unsigned char* pointer) {
  return shared_windows.address(pointer);
}
inline void shared_writes_before_wgmma() {}
inline void wgmma_fence() {}
inline void wgmma_commit() { products_in_flight->commit(); }
template <int kPending>
void wgmma_wait() {
  products_in_flight->wait(kPending);
}
inline void commit_copies() { copies_in_flight->commit(); }
template <int kPending>
void wait_for_copies() {
  copies_in_flight->wait(kPending);
}
template <typename T>
void pin(T&) {}
inline void copy_16_bytes(std::uint32_t to, const std::uint8_t* from) {
  const auto copy = [=] { std::memcpy(shared_windows.pointer(to), from, 16); };
  if (copies_are_early)
    copy();
  else
    copies_in_flight->start(copy);
}

/// Row `row` of an operand with 32 bytes of K, as the documented layouts place it
/// in shared memory behind a descriptor: kTerms elements.
template <std::size_t kTerms = 32>
std::array<Unpacked, kTerms> read_row(std::uint64_t matrix, FormatId id, int row) {
  constexpr std::uint32_t kWidth = 32 / kTerms;
  const auto field = [matrix](int bit) {
    return static_cast<std::uint32_t>((matrix >> bit) & 0x3fffu) << 4;
  };
  const std::uint32_t start = field(0);
  const std::uint32_t leading = field(16);
  const std::uint32_t stride = field(32);
  const bool swizzled = (matrix >> 62) == 1;
  std::array<std::uint32_t, kTerms> codes{};
  for (std::uint32_t byte = 0; byte < 32; ++byte) {
    const auto group = static_cast<std::uint32_t>(row / 8);
    const auto within = static_cast<std::uint32_t>(row % 8);
    std::uint32_t address = start + group * stride;
    if (swizzled) {
      address += within * 128 + byte;
      address ^= (address >> 3) & 0x70u;
    } else {
      address += within * 16 + byte / 16 * leading + byte % 16;
    }
    codes[byte / kWidth] |= std::uint32_t{*shared_windows.pointer(address)} << 8 * (byte % kWidth);
  }
  std::array<Unpacked, kTerms> values;
  for (std::size_t i = 0; i < kTerms; ++i) values[i] = unpack(format(id), codes[i]);
  return values;
}

}  // namespace fp8lab::cuda
