#pragma once
// Memory that is aligned for any vector, and not initialised.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "fp8lab/gemm/buffer_pool.hpp"

namespace fp8lab::gemm_detail {

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
