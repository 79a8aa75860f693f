// The standard operators, but for that they remember what they could not give.

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "process.hpp"

namespace {

std::atomic<std::size_t> missing{0};

void* allocate(std::size_t size, std::size_t alignment) {
  const std::size_t bytes = size == 0 ? alignment : (size + alignment - 1) / alignment * alignment;
  const bool plain = alignment <= alignof(std::max_align_t);
  void* memory = nullptr;
  if (bytes >= size) memory = plain ? std::malloc(bytes) : std::aligned_alloc(alignment, bytes);
  if (memory != nullptr) return memory;
  missing = size;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t size) { return allocate(size, 1); }
void* operator new[](std::size_t size) { return allocate(size, 1); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace fp8lab::cli {

std::size_t bytes_missing() { return missing; }

}  // namespace fp8lab::cli
