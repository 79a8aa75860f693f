// Device memory that is taken again: with an allocator on the host.

#include "cuda/block_cache.hpp"

#include <cstdlib>
#include <set>

#include "catch.hpp"

using namespace fp8lab::cuda;

namespace {

std::set<void*> live;
int allocations = 0;
std::size_t left = 0;

void* allocate(std::size_t bytes) {
  if (bytes > left) return nullptr;
  left -= bytes;
  ++allocations;
  return *live.insert(std::malloc(16)).first;
}
void release(void* block) {
  CHECK(live.erase(block) == 1);
  std::free(block);
  left += std::size_t{1} << 20;
}

}  // namespace

TEST_CASE("blocks of one size are taken again, and released at the end", "[cuda]") {
  left = std::size_t{1} << 40;
  allocations = 0;
  {
    BlockCache cache(allocate, release);
    void* const first = cache.take(1000);
    void* const second = cache.take(1000);
    CHECK(first != second);
    cache.give(first, 1000);
    CHECK(cache.kept_bytes() == 1024);
    CHECK(cache.take(600) == first);
    CHECK(cache.take(1025) != first);
    CHECK(allocations == 3);
    cache.give(first, 600);
    cache.give(second, 1000);
    // What is too much to keep goes back at once.
    void* const huge = cache.take(BlockCache::kMost);
    cache.give(huge, BlockCache::kMost);
    CHECK(live.count(huge) == 0);
    CHECK(cache.kept_bytes() == 2048);
    for (int i = 0; i < 1000; ++i) cache.give(cache.take(1024), 1024);
    CHECK(allocations == 4);
    CHECK(live.size() == 3);
  }
  REQUIRE(live.size() == 1);  // one was never given back
  release(*live.begin());
}

TEST_CASE("kept blocks make room where there is no memory left", "[cuda]") {
  left = std::size_t{3} << 20;
  BlockCache cache(allocate, release);
  void* const small = cache.take(std::size_t{1} << 20);
  cache.give(small, std::size_t{1} << 20);
  void* const large = cache.take(std::size_t{3} << 20);
  REQUIRE(large != nullptr);
  CHECK(cache.kept_bytes() == 0);
  CHECK(cache.take(std::size_t{1} << 20) == nullptr);
  cache.give(large, std::size_t{3} << 20);
  CHECK(BlockCache::rounded(1) == 512);
  CHECK(BlockCache::rounded((std::size_t{1} << 20) + 1) == std::size_t{2} << 20);
}
