#pragma once
// Arrays that begin at a cache line, and the memory that they give back for the next ones.

#include <cstddef>
#include <cstdint>
#include <memory>

namespace fp8lab::gemm_detail {

/// Memory that is aligned for any vector, and not initialised.
void* take_buffer(std::size_t bytes);

/// Gives back what `take_buffer(bytes)` returned. Some buffers are kept for later calls.
void give_buffer(void* buffer, std::size_t bytes) noexcept;

/// Bytes that are kept for later calls at most.
inline constexpr std::size_t kKeptBufferBytes = std::size_t{32} << 20;

/// Bytes that are kept now.
std::size_t kept_buffer_bytes();

template <typename T>
class AlignedArray {
 public:
  AlignedArray() = default;
  explicit AlignedArray(std::int64_t size)
      : data_(static_cast<T*>(take_buffer(static_cast<std::size_t>(size) * sizeof(T))),
              {static_cast<std::size_t>(size) * sizeof(T)}) {}
  [[nodiscard]] T* data() { return data_.get(); }
  [[nodiscard]] const T* data() const { return data_.get(); }

 private:
  struct Give {
    std::size_t bytes = 0;
    void operator()(T* p) const { give_buffer(p, bytes); }
  };
  std::unique_ptr<T, Give> data_;
};

}  // namespace fp8lab::gemm_detail
