#pragma once
// How often a tensor comes from memory, counted by the pages that are touched.

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

namespace fp8lab::experiments {

/// A copy of a tensor in memory of its own, whose pages fault when they are read.
/// The pages read last, up to a window, stay readable, as in a cache that gives
/// up the oldest page first: what is read again while it is there costs nothing.
class PageCountedTensor {
 public:
  struct Window;  ///< of the fault handler

  /// Throws `Error` for no values, no window, or memory that cannot be had.
  PageCountedTensor(std::span<const float> values, std::size_t window_bytes);
  ~PageCountedTensor();
  PageCountedTensor(const PageCountedTensor&) = delete;
  PageCountedTensor& operator=(const PageCountedTensor&) = delete;

  /// The values; only `reads` may run what reads them.
  [[nodiscard]] std::span<const float> values() const { return values_; }

  /// Pages that `work` brought in over the pages of the tensor: 1 if each was
  /// needed once. `work` reads on the calling thread. One count at a time runs
  /// in a process; others wait.
  double reads(const std::function<void()>& work);

 private:
  std::unique_ptr<Window> window_;
  std::span<const float> values_;
};

}  // namespace fp8lab::experiments
