// The shapes that cuBLASLt is observed on.

#include "cuda/tool/lt_calls.hpp"

#include <algorithm>

#include "catch.hpp"

using namespace fp8lab;
using namespace fp8lab::cuda;

TEST_CASE("cuBLASLt is asked for the shapes of decoding and of training", "[cuda]") {
  const std::vector<CallShape> shapes = lt_shapes();
  const auto has = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
    return std::ranges::count(shapes, CallShape{m, n, k}) == 1;
  };
  CHECK(has(16, 11008, 4096));    // Llama's up projection, decoding
  CHECK(has(128, 4096, 11008));   // its down projection
  CHECK(has(16, 1024, 4096));     // Mixtral's keys
  CHECK(has(2048, 14336, 4096));  // its up projection: forward,
  CHECK(has(2048, 4096, 14336));  // gradient of inputs,
  CHECK(has(14336, 4096, 2048));  // gradient of weights
  for (const CallShape& shape : shapes) {
    INFO(shape.m << " x " << shape.n << " x " << shape.k);
    CHECK(std::ranges::count(shapes, shape) == 1);
    CHECK(shape.n % 16 == 0);  // what cuBLASLt wants of FP8
    CHECK(shape.k % 16 == 0);
  }
}

TEST_CASE("each shape has calls of four outputs with fast and slow accumulation", "[cuda]") {
  const std::vector<CallShape> calls = lt_calls_of({16, 32, 64});
  REQUIRE(calls.size() == 8);
  for (const CallShape& call : calls) {
    CHECK(call.m == 16);
    CHECK(call.n == 32);
    CHECK(call.k == 64);
    CHECK(std::ranges::count(calls, call) == 1);
  }
}
