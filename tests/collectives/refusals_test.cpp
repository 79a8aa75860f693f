// What collectives refuse, word for word, and limits that they allow.

#include <limits>
#include <vector>

#include "catch.hpp"
#include "message_of.hpp"
#include "training/collectives/collectives.hpp"
#include "training/collectives/scales.hpp"

using namespace fp8lab;
using fp8lab::test::message_of;

TEST_CASE("collectives: what is refused, word for word, and what is not", "[collectives]") {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  const WireFormat& fp8 = find_wire_format("e4m3fn");
  Fabric& fabric = in_process_fabric();
  RankBuffers two(2, Message(4));
  Message four(4);
  Message six(6);
  std::vector<float> values(4);
  CHECK(message_of([&] { (void)unified_scale({}); }) == "scales: expected at least one, got none");
  CHECK(message_of([&] {
          (void)unified_scale(std::vector<float>{2.0F, 0.0F});
        }) == "scales: expected positive, finite numbers, got 0");
  CHECK(message_of([&] {
          (void)unified_scale(std::vector<float>{2.0F, -1.5F});
        }) == "scales: expected positive, finite numbers, got -1.5");
  CHECK(message_of([&] {
          (void)unified_scale(std::vector<float>{kInfinite, 2.0F});
        }) == "scales: expected positive, finite numbers, got inf");
  CHECK(message_of([&] { requantize(find_wire_format("bf16"), four, 1.0F, 1.0F); }) ==
        "wire: expected e4m3fn or e5m2, got bf16");
  CHECK(message_of([&] { requantize(fp8, four, 1.0F, -1.0F); }) ==
        "scale: expected a positive, finite number, got -1");
  CHECK(message_of([&] { requantize(fp8, four, 1.0F, kInfinite); }) ==
        "scale: expected a positive, finite number, got inf");
  CHECK(message_of([&] { (void)mean_scale(1.0F, 0); }) == "ranks: expected at least 1, got 0");
  CHECK(message_of([&] { (void)mean_scale(1.0F, 1); }) == "accepted");
  CHECK(message_of([&] { (void)find_topology("star"); }) ==
        "topology: expected ring, tree or direct, got 'star'");
  CHECK(message_of([&] { Schedule::all_reduce(Topology::ring, 0, 0, 4); }) ==
        "ranks: expected at least 1, got 0");
  CHECK(message_of([&] { Schedule::all_reduce(Topology::ring, 2, 2, 4); }) ==
        "rank: expected 0 to 1, got 2");
  CHECK(message_of([&] { Schedule::all_reduce(Topology::tree, -1, 2, 4); }) ==
        "rank: expected 0 to 1, got -1");
  CHECK(message_of([&] { Schedule::all_gather(3, 3, 4); }) == "rank: expected 0 to 2, got 3");
  CHECK(message_of([&] { Schedule::all_gather(2, 3, 4); }) == "accepted");
  CHECK(message_of([&] { all_reduce(fabric, {.ranks = 0, .elements = 4}, two); }) ==
        "ranks: expected at least 1, got 0");
  CHECK(message_of([&] { all_reduce(fabric, {.ranks = 3, .elements = 4}, two); }) ==
        "buffers: expected one per rank of this process = 3, got 2");
  CHECK(message_of([&] { all_reduce(fabric, {.ranks = 2, .elements = 5}, two); }) ==
        "buffers: expected 5 bytes each, got 4");
  CHECK(message_of([&] { all_gather(fabric, fp8, 0, 4, two); }) ==
        "ranks: expected at least 1, got 0");
  CHECK(message_of([&] { all_gather(fabric, fp8, 3, 4, two); }) ==
        "buffers: expected one per rank of this process = 3, got 2");
  CHECK(message_of([&] { all_gather(fabric, find_wire_format("f16"), 2, 3, two); }) ==
        "buffers: expected 6 bytes each, got 4");
  CHECK(message_of([&] { all_gather(fabric, find_wire_format("f16"), 2, 2, two); }) == "accepted");
  CHECK(message_of([&] {
          reduce({find_wire_format("f16"), ReduceOp::max}, four, four);
        }) == "wire: expected f32 for max, got f16");
  CHECK(message_of([&] {
          reduce({find_wire_format("f32"), ReduceOp::max}, four, six);
        }) == "in: expected 6 bytes, got 4");
  CHECK(message_of([&] {
          reduce({find_wire_format("f32"), ReduceOp::max}, six, six);
        }) == "in: expected 6 bytes, got 6");
  CHECK(message_of([&] { to_wire(fp8, std::vector<float>(4), 0.0F, four); }) ==
        "scale: expected a positive, finite number, got 0");
  CHECK(message_of([&] { to_wire(fp8, std::vector<float>(4), kInfinite, four); }) ==
        "scale: expected a positive, finite number, got inf");
  CHECK(message_of([&] { to_wire(fp8, std::vector<float>(3), 1.0F, four); }) ==
        "out: expected 3 bytes for 3 elements of e4m3fn, got 4");
  CHECK(message_of([&] { from_wire(fp8, four, -1.0F, values); }) ==
        "inverse_scale: expected a positive, finite number, got -1");
  CHECK(message_of([&] { from_wire(find_wire_format("f16"), four, 1.0F, values); }) ==
        "in: expected 8 bytes for 4 elements of f16, got 4");
  CHECK(message_of([&] { from_wire(fp8, four, 1.0F, values); }) == "accepted");
  CHECK(message_of([&] { add_on_wire(fp8, four, six); }) ==
        "term: expected 6 bytes for 6 elements of e4m3fn, got 4");
  CHECK(message_of([&] { add_on_wire(fp8, six, four); }) ==
        "term: expected 4 bytes for 4 elements of e4m3fn, got 6");
  CHECK(message_of([&] { add_on_wire(find_wire_format("f32"), six, six); }) ==
        "term: expected 4 bytes for 1 element of f32, got 6");
}
