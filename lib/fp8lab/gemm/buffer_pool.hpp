#pragma once
// Buffers of packed operands, kept between products: a new one costs a page fault for every 4 KiB,
// which takes as long as packing it.

#include <cstddef>

namespace fp8lab::gemm_detail {

/// Memory that is aligned for any vector, and not initialised.
void* take_buffer(std::size_t bytes);

/// Gives back what `take_buffer(bytes)` returned. Some buffers are kept for later calls.
void give_buffer(void* buffer, std::size_t bytes) noexcept;

/// Bytes that are kept for later calls at most.
inline constexpr std::size_t kKeptBufferBytes = std::size_t{32} << 20;

/// Bytes that are kept now.
std::size_t kept_buffer_bytes();

}  // namespace fp8lab::gemm_detail
