#pragma once
// Memory that is aligned for any vector, and not initialised.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace fp8lab::gemm_detail {

template <typename T>
class AlignedArray {
 public:
  AlignedArray() = default;
  explicit AlignedArray(std::int64_t size)
      : data_(static_cast<T*>(::operator new (static_cast<std::size_t>(size) * sizeof(T),
                                              std::align_val_t{kAlignment}))) {}
  [[nodiscard]] T* data() { return data_.get(); }
  [[nodiscard]] const T* data() const { return data_.get(); }

 private:
  static constexpr std::size_t kAlignment = 128;
  struct Free {
    void operator()(T* p) const { ::operator delete (p, std::align_val_t{kAlignment}); }
  };
  std::unique_ptr<T, Free> data_;
};

}  // namespace fp8lab::gemm_detail
