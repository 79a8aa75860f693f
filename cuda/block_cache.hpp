#pragma once
// Blocks of memory that are taken again after they were given back: a training step asks the device
// for the same few sizes over and over, and asking the driver each time costs more than a small
// product.

#include <cstddef>
#include <map>
#include <vector>

namespace fp8lab::cuda {

/// One thread's blocks: whoever works on one stream may reuse a block at once, since the stream
/// keeps the order.
class BlockCache {
 public:
  using Allocate = void* (*)(std::size_t bytes);  ///< null where there is no memory left
  using Release = void (*)(void* block);

  BlockCache(Allocate allocate, Release release) : allocate_(allocate), release_(release) {}
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;
  ~BlockCache() { clear(); }

  /// At least `bytes` bytes; null where there is no memory left, even after all kept blocks were
  /// released. Sizes are rounded up to powers of two below 1 MiB, to whole MiB above.
  void* take(std::size_t bytes) {
    const std::size_t size = rounded(bytes);
    std::vector<void*>& blocks = kept_[size];
    if (!blocks.empty()) {
      void* const block = blocks.back();
      blocks.pop_back();
      bytes_ -= size;
      return block;
    }
    void* block = allocate_(size);
    if (block != nullptr || bytes_ == 0) return block;
    clear();
    return allocate_(size);
  }

  /// Gives back a block that was taken for `bytes` bytes. Large ones are not kept beyond `kMost`.
  void give(void* block, std::size_t bytes) {
    const std::size_t size = rounded(bytes);
    if (bytes_ + size > kMost) return release_(block);
    kept_[size].push_back(block);
    bytes_ += size;
  }

  /// Releases everything that is kept.
  void clear() {
    for (auto& [size, blocks] : kept_)
      for (void* const block : blocks) release_(block);
    kept_.clear();
    bytes_ = 0;
  }

  [[nodiscard]] std::size_t kept_bytes() const { return bytes_; }

  static std::size_t rounded(std::size_t bytes) {
    constexpr std::size_t kLarge = std::size_t{1} << 20;
    if (bytes > kLarge) return (bytes + kLarge - 1) / kLarge * kLarge;
    std::size_t size = 512;
    while (size < bytes) size *= 2;
    return size;
  }

  static constexpr std::size_t kMost = std::size_t{1} << 30;

 private:
  Allocate allocate_;
  Release release_;
  std::map<std::size_t, std::vector<void*>> kept_;
  std::size_t bytes_ = 0;
};

}  // namespace fp8lab::cuda
