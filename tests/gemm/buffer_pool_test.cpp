#include "fp8lab/gemm/buffer_pool.hpp"

#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "catch.hpp"

namespace fp8lab::gemm_detail {
namespace {

TEST_CASE("buffers: a size that was given back is used again, the latest first", "[gemm]") {
  constexpr std::size_t kBytes = 3 << 20;
  void* first = take_buffer(kBytes);
  void* second = take_buffer(kBytes);
  CHECK(first != second);
  CHECK(reinterpret_cast<std::uintptr_t>(first) % 128 == 0);
  give_buffer(first, kBytes);
  give_buffer(second, kBytes);
  void* again = take_buffer(kBytes - 1000);  // sizes are rounded up
  CHECK(again == second);
  give_buffer(again, kBytes - 1000);
  CHECK(kept_buffer_bytes() >= 2 * kBytes);
}

TEST_CASE("buffers: what is kept has a bound, and huge and small ones are not kept", "[gemm]") {
  std::vector<std::pair<void*, std::size_t>> taken;
  for (std::size_t mib = 1; mib <= 12; ++mib) taken.emplace_back(take_buffer(mib << 20), mib << 20);
  for (const auto& [buffer, bytes] : taken) {
    std::memset(buffer, 1, bytes);
    give_buffer(buffer, bytes);
    CHECK(kept_buffer_bytes() <= kKeptBufferBytes);
  }
  const std::size_t before = kept_buffer_bytes();
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{100}, 2 * kKeptBufferBytes})
    give_buffer(take_buffer(bytes), bytes);
  give_buffer(nullptr, 1 << 20);
  CHECK(kept_buffer_bytes() == before);
}

TEST_CASE("buffers: no two threads hold the same one", "[gemm]") {
  constexpr std::size_t kBytes = 128 << 10;
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < wrong.size(); ++i)
    threads.emplace_back([&wrong, i] {
      for (int round = 0; round < 200; ++round) {
        auto* bytes = static_cast<unsigned char*>(take_buffer(kBytes));
        std::memset(bytes, static_cast<int>(i), kBytes);
        for (std::size_t at = 0; at < kBytes; at += 4096) wrong[i] += bytes[at] != i;
        give_buffer(bytes, kBytes);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const int count : wrong) CHECK(count == 0);
}

}  // namespace
}  // namespace fp8lab::gemm_detail
