#include "fp8lab/gemm/aligned_array.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <mutex>
#include <new>
#include <vector>

namespace fp8lab::gemm_detail {
namespace {

constexpr std::align_val_t kAlignment{128};
/// The allocator itself keeps smaller ones.
constexpr std::size_t kLeastBytes = std::size_t{8} << 10;

/// Sizes are rounded up to an eighth of a power of two, so that similar products share buffers.
std::size_t capacity_of(std::size_t bytes) {
  if (bytes < kLeastBytes) return bytes;
  const std::size_t unit = std::bit_floor(bytes) / 8;
  return (bytes + unit - 1) / unit * unit;
}

struct Buffer {
  void* memory;
  std::size_t bytes;
};

/// Who finds the pool in use does without it: nobody waits, not even the child of a fork that was
/// made while another thread held the lock.
class BufferPool {
 public:
  BufferPool() { kept_.reserve(kMost); }

  void* take(std::size_t bytes) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return nullptr;
    // The latest ones are in cache.
    const auto found = std::find_if(kept_.rbegin(), kept_.rend(),
                                    [&](const Buffer& kept) { return kept.bytes == bytes; });
    if (found == kept_.rend()) return nullptr;
    void* memory = found->memory;
    total_ -= bytes;
    kept_.erase(std::next(found).base());
    return memory;
  }

  /// The oldest ones make room.
  void give(Buffer buffer) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return ::operator delete(buffer.memory, kAlignment);
    while (!kept_.empty() && (total_ + buffer.bytes > kKeptBufferBytes || kept_.size() == kMost)) {
      ::operator delete(kept_.front().memory, kAlignment);
      total_ -= kept_.front().bytes;
      kept_.erase(kept_.begin());
    }
    kept_.push_back(buffer);
    total_ += buffer.bytes;
  }

  std::size_t bytes() {
    const std::scoped_lock lock(mutex_);
    return total_;
  }

 private:
  static constexpr std::size_t kMost = 256;
  std::mutex mutex_;
  std::vector<Buffer> kept_;
  std::size_t total_ = 0;
};

/// Never destroyed: threads may give buffers back while the program ends.
BufferPool& pool() {
  static auto* const buffers = new BufferPool;
  return *buffers;
}

}  // namespace

void* take_buffer(std::size_t bytes) {
  const std::size_t capacity = capacity_of(bytes);
  if (capacity >= kLeastBytes && capacity <= kKeptBufferBytes)
    if (void* memory = pool().take(capacity)) return memory;
  return ::operator new(capacity, kAlignment);
}

void give_buffer(void* buffer, std::size_t bytes) noexcept {
  if (buffer == nullptr) return;
  const std::size_t capacity = capacity_of(bytes);
  if (capacity < kLeastBytes || capacity > kKeptBufferBytes)
    return ::operator delete(buffer, kAlignment);
  pool().give({buffer, capacity});
}

std::size_t kept_buffer_bytes() { return pool().bytes(); }

}  // namespace fp8lab::gemm_detail
