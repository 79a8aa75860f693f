#pragma once
// Device memory that gives itself back, and copies in and out of it. Use a buffer on the thread
// that made it.

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "check.cuh"

namespace fp8lab::cuda {

/// Device memory from this thread's cache (block_cache.hpp). Work of a thread is all on its own
/// stream, so a block may be taken again at once. Throws `Error` where there is none left.
void* take_device_memory(std::size_t bytes);
void give_device_memory(void* block, std::size_t bytes);

template <typename T>
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::size_t size) : size_(size) {
    if (size > 0) data_ = static_cast<T*>(take_device_memory(size * sizeof(T)));
  }
  explicit DeviceBuffer(std::span<const T> values) : DeviceBuffer(values.size()) {
    copy_in(values);
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~DeviceBuffer() {
    if (data_ != nullptr) give_device_memory(data_, bytes());
  }

  [[nodiscard]] T* data() { return data_; }
  [[nodiscard]] const T* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t bytes() const { return size_ * sizeof(T); }

  /// Copies `values` to the buffer, from element `at` on.
  void copy_in(std::span<const T> values, std::size_t at = 0) {
    require(at <= size_ && values.size() <= size_ - at, "values",
            fmt::format("at most {} elements", size_ - std::min(at, size_)),
            fmt::format("{}", values.size()));
    if (!values.empty())
      FP8LAB_CUDA_CHECK(
          cudaMemcpy(data_ + at, values.data(), values.size_bytes(), cudaMemcpyHostToDevice));
  }
  /// The first `count` elements.
  [[nodiscard]] std::vector<T> copy_out(std::size_t count) const {
    std::vector<T> values(count);
    if (count > 0)
      FP8LAB_CUDA_CHECK(
          cudaMemcpy(values.data(), data_, count * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }
  [[nodiscard]] std::vector<T> copy_out() const { return copy_out(size_); }
  /// Fills with a byte; poison before a run shows what was never written.
  void fill(int byte) { FP8LAB_CUDA_CHECK(cudaMemset(data_, byte, bytes())); }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace fp8lab::cuda
