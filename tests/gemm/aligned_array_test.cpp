#include "fp8lab/gemm/aligned_array.hpp"

#include <algorithm>
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

/// Fills the pool with one buffer of all that it keeps, and takes that away.
void empty_the_pool() {
  void* all = take_buffer(kKeptBufferBytes);
  give_buffer(all, kKeptBufferBytes);
  CHECK(kept_buffer_bytes() == kKeptBufferBytes);
  CHECK(take_buffer(kKeptBufferBytes) == all);
  CHECK(kept_buffer_bytes() == 0);
  // Given back as another size, which nobody keeps.
  give_buffer(all, kKeptBufferBytes + 1);
}

TEST_CASE("buffers: what is taken is no longer kept, and the least size is", "[gemm]") {
  empty_the_pool();
  constexpr std::size_t kLeast = 8 << 10;
  const auto kept_after = [](std::size_t bytes) {
    const std::size_t before = kept_buffer_bytes();
    give_buffer(take_buffer(bytes), bytes);
    return kept_buffer_bytes() - before;
  };
  CHECK(kept_after(kLeast - 1) == 0);
  CHECK(kept_after(kLeast) == kLeast);
  CHECK(kept_after(kLeast) == 0);  // it was taken from there
  void* one = take_buffer(kLeast);
  CHECK(kept_buffer_bytes() == 0);
  void* two = take_buffer(kLeast);
  CHECK(one != two);
  give_buffer(one, kLeast);
  give_buffer(two, kLeast);
  CHECK(kept_buffer_bytes() == 2 * kLeast);
  // Other sizes do not take them.
  void* other = take_buffer(kLeast + 1);
  CHECK(kept_buffer_bytes() == 2 * kLeast);
  give_buffer(other, kLeast + 1);
  empty_the_pool();
}

TEST_CASE("buffers: sizes are rounded up to an eighth of a power of two", "[gemm]") {
  for (const std::size_t power : {std::size_t{64} << 10, std::size_t{4} << 20})
    for (std::size_t eighths = 8; eighths <= 16; ++eighths) {
      const std::size_t size = power / 8 * eighths;
      const std::size_t before = size - power / 8;
      for (const std::size_t bytes : {size, before + 1}) {
        if (bytes < power) continue;
        empty_the_pool();
        give_buffer(take_buffer(bytes), bytes);
        INFO(bytes << " bytes");
        CHECK(kept_buffer_bytes() == size);
      }
    }
  empty_the_pool();
}

TEST_CASE("buffers: the oldest ones make room, and no more of them than it takes", "[gemm]") {
  empty_the_pool();
  constexpr std::size_t kQuarter = kKeptBufferBytes / 4;
  std::vector<void*> all;
  for (int i = 0; i < 4; ++i) all.push_back(take_buffer(kQuarter));
  for (void* one : all) give_buffer(one, kQuarter);
  CHECK(kept_buffer_bytes() == kKeptBufferBytes);  // as much as may be
  const std::size_t eighth = kQuarter / 2;
  give_buffer(take_buffer(eighth), eighth);
  CHECK(kept_buffer_bytes() == 3 * kQuarter + eighth);  // but for the first one
  CHECK(take_buffer(kQuarter) == all[3]);
  CHECK(take_buffer(kQuarter) == all[2]);
  CHECK(take_buffer(kQuarter) == all[1]);
  CHECK(kept_buffer_bytes() == eighth);
  for (const std::size_t i : {std::size_t{1}, std::size_t{2}, std::size_t{3}})
    give_buffer(all[i], kKeptBufferBytes + 1);
  empty_the_pool();
}

TEST_CASE("buffers: no more than 256 are kept, however small", "[gemm]") {
  empty_the_pool();
  constexpr std::size_t kBytes = 64 << 10;
  std::vector<void*> all;
  for (int i = 0; i < 300; ++i) all.push_back(take_buffer(kBytes));
  for (std::size_t i = 0; i < all.size(); ++i) {
    give_buffer(all[i], kBytes);
    REQUIRE(kept_buffer_bytes() == std::min<std::size_t>(i + 1, 256) * kBytes);
  }
  empty_the_pool();
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
