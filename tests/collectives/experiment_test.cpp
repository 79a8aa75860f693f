#include <string>
#include <variant>
#include <vector>

#include "catch.hpp"
#include "experiments/quick_run.hpp"
#include "fp8-allreduce/gather.hpp"
#include "fp8-allreduce/reduce.hpp"
#include "fp8lab/core/error.hpp"

using namespace fp8lab;
using namespace fp8lab::experiments;

namespace {

const std::vector<std::string> kSmall{"elements=100",        "ranks=[2, 5]",
                                      "gather_elements=130", "gather_ranks=[3]",
                                      "desync_ranks=[2]",    "desync_octaves=[-1.0, 0.0, 1.0]"};

double value(const Table& table, std::size_t row, const std::string& column) {
  for (std::size_t c = 0; c < table.columns().size(); ++c)
    if (table.columns()[c].name == column) return std::get<double>(table.rows()[row][c]);
  throw std::out_of_range(column);
}

}  // namespace

TEST_CASE("fp8-allreduce gives the same bits for any thread count", "[collectives]") {
  const Results one = run_quick("fp8-allreduce", 1, kSmall);
  const Results three = run_quick("fp8-allreduce", 3, kSmall);
  CHECK(all_csv(one) == all_csv(three));
  CHECK(one.findings == three.findings);
  CHECK(one.plots.size() == 5);
  for (const Plot& plot : one.plots) {
    INFO(plot.name);
    CHECK(!plot.series.empty());
  }
}

TEST_CASE("fp8-allreduce: FP8 loses more than wider wires and moves less", "[collectives]") {
  const ReduceInput input({3, "test"}, {.elements = 512}, 16);
  Fabric& fabric = in_process_fabric();
  for (const Topology topology : {Topology::ring, Topology::tree, Topology::direct}) {
    INFO(to_string(topology));
    const auto reduced = [&](const char* wire, ReduceScaling scaling) {
      return reduce_mean(fabric, input, find_wire_format(wire), topology, scaling);
    };
    const Reduced fp8 = reduced("e4m3fn", ReduceScaling::unified_over_n);
    const Reduced bf16 = reduced("bf16", ReduceScaling::none);
    const Reduced f32 = reduced("f32", ReduceScaling::none);
    CHECK(fp8.loss.relative_l2 > bf16.loss.relative_l2);
    CHECK(bf16.loss.relative_l2 > f32.loss.relative_l2);
    CHECK(f32.loss.relative_l2 < 1e-6);
    CHECK(2 * fp8.counts.total.bytes_sent == bf16.counts.total.bytes_sent);
    CHECK(fp8.saturated_percent == 0.0);
    CHECK(fp8.scale_counts.total.bytes_sent == 4 * 2 * 15);
  }
  const Reduced direct = reduce_mean(fabric, input, find_wire_format("e4m3fn"), Topology::direct,
                                     ReduceScaling::unified_over_n);
  const Reduced ring = reduce_mean(fabric, input, find_wire_format("e4m3fn"), Topology::ring,
                                   ReduceScaling::unified_over_n);
  CHECK(direct.loss.relative_l2 < ring.loss.relative_l2);
}

TEST_CASE("fp8-allreduce: ranks that disagree about the scale do harm", "[collectives]") {
  const ReduceInput input({3, "test"}, {.elements = 256}, 4);
  const GatherInput weights({3, "weights"}, 400, 4, 1.0);
  const WireFormat& wire = find_wire_format("e4m3fn");
  Fabric& fabric = in_process_fabric();
  const Loss agreed = reduce_with_one_off(fabric, input, wire, Topology::ring, 0.0);
  CHECK(agreed.relative_l2 ==
        reduce_mean(fabric, input, wire, Topology::ring, ReduceScaling::unified_over_n)
            .loss.relative_l2);
  CHECK(reduce_with_one_off(fabric, input, wire, Topology::ring, 2.0).relative_l2 >
        2.0 * agreed.relative_l2);
  const Gathered before = gather_weights(fabric, weights, wire, GatherCast::before);
  CHECK(gather_with_one_off(fabric, weights, wire, 0.0).relative_l2 == before.loss.relative_l2);
  CHECK(gather_with_one_off(fabric, weights, wire, 1.0).relative_l2 >
        2.0 * before.loss.relative_l2);
  CHECK(gather_weights(fabric, weights, wire, GatherCast::before_lost).loss.relative_l2 >
        gather_weights(fabric, weights, wire, GatherCast::before_own).loss.relative_l2);
  CHECK(gather_weights(fabric, weights, wire, GatherCast::after).bytes_sent == 2 * 3 * 400);
  CHECK(before.bytes_sent == 3 * 400 + 2 * 3 * 4);
}

TEST_CASE("fp8-allreduce: the table has what was asked for", "[collectives]") {
  const Results results = run_quick("fp8-allreduce", 2, kSmall);
  const Table& reduction = table_named(results, "reduction");
  CHECK(reduction.rows().size() == 2 * 3 * (2 * 4 + 3));
  for (std::size_t row = 0; row < reduction.rows().size(); ++row)
    CHECK(value(reduction, row, "relative_l2") > 0.0);
  CHECK_THROWS_WITH(run_quick("fp8-allreduce", 1, {"ranks=[0]"}), contains("ranks"));
  CHECK_THROWS_WITH(run_quick("fp8-allreduce", 1, {"topologies=star"}), contains("'star'"));
  CHECK_THROWS_WITH(run_quick("fp8-allreduce", 1, {"wires=e2m1"}), contains("wire"));
  CHECK_THROWS_WITH(run_quick("fp8-allreduce", 1, {"schemes=best"}), contains("'best'"));
}
