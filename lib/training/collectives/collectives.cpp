#include "training/collectives/collectives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab {
namespace {

/// One rank on its way through its schedule.
class RankRun {
 public:
  RankRun(int rank, const Reduction& reduction, Schedule schedule, Message& data)
      : rank_(rank), reduction_(reduction), schedule_(std::move(schedule)), data_(data) {}

  [[nodiscard]] bool done() const { return position_ == schedule_.size(); }
  [[nodiscard]] const RankCounts& counts() const { return counts_; }

  /// Goes on until a message is missing; says whether any step was made.
  bool advance(Transport& transport) {
    bool moved = false;
    while (!done() && take(transport, schedule_[position_])) {
      ++position_;
      moved = true;
    }
    return moved;
  }

 private:
  std::span<std::byte> bytes_of(const Slice& slice) {
    const std::size_t size = reduction_.wire.bytes;
    return std::span(data_).subspan(slice.first * size, slice.count * size);
  }

  bool take(Transport& transport, const Step& step) {
    if (step.slice.count == 0) return true;
    const std::span<std::byte> own = bytes_of(step.slice);
    if (step.kind == Step::Kind::send) {
      transport.send(rank_, step.peer, own);
      counts_.bytes_sent += own.size();
      ++counts_.messages_sent;
      return true;
    }
    if (step.kind == Step::Kind::narrow) {
      counts_.overflowed +=
          to_wire(reduction_.wire, accumulator_, 1.0F, own, reduction_.backend).overflowed;
      return true;
    }
    if (!transport.try_receive(step.peer, rank_, received_)) return false;
    require(received_.size() == own.size(), "message", counted(own.size(), "byte"),
            fmt::format("{}", received_.size()));
    use(transport, step, own);
    return true;
  }

  void use(Transport& transport, const Step& step, std::span<std::byte> own) {
    if (step.kind == Step::Kind::copy) {
      std::copy(received_.begin(), received_.end(), own.begin());
      return;
    }
    counts_.additions += step.slice.count;
    if (step.kind == Step::Kind::add)
      counts_.overflowed += transport.apply(reduction_, received_, own);
    else
      accumulate(transport, own);
  }

  void accumulate(Transport& transport, std::span<const std::byte> own) {
    const WireFormat& wire = reduction_.wire;
    if (accumulator_.empty()) {
      accumulator_.resize(own.size() / wire.bytes);
      from_wire(wire, own, 1.0F, accumulator_);
    }
    std::vector<float> values(accumulator_.size());
    from_wire(wire, received_, 1.0F, values);
    transport.apply({find_wire_format("f32"), reduction_.op}, std::as_bytes(std::span(values)),
                    std::as_writable_bytes(std::span(accumulator_)));
  }

  int rank_;
  const Reduction& reduction_;
  Schedule schedule_;
  Message& data_;
  std::size_t position_ = 0;
  Message received_;
  std::vector<float> accumulator_;  // of the rank that adds for all
  RankCounts counts_;
};

/// 64-bit FNV-1a.
std::uint64_t digest(std::span<const std::byte> data) {
  std::uint64_t h = 0xcbf29ce484222325U;
  for (const std::byte b : data) h = (h ^ std::to_integer<std::uint64_t>(b)) * 0x100000001b3U;
  return h;
}

Outcome outcome_of(const std::vector<RankRun>& runs, const RankBuffers& buffers) {
  Outcome outcome;
  for (const RankRun& run : runs) {
    outcome.counts.total += run.counts();
    outcome.counts.busiest_bytes = std::max(outcome.counts.busiest_bytes, run.counts().bytes_sent);
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (i > 0 && buffers[i] == buffers[i - 1]) continue;
    const std::uint64_t bits = digest(buffers[i]);
    outcome.digest_min = std::min(outcome.digest_min, bits);
    outcome.digest_max = std::max(outcome.digest_max, bits);
  }
  return outcome;
}

/// Carries out `schedule_of(rank)` on every hosted rank.
template <typename ScheduleOf>
CollectiveCounts run(Fabric& fabric, const Reduction& reduction, int ranks, std::size_t elements,
                     RankBuffers& buffers, std::string_view name, ScheduleOf schedule_of) {
  require(ranks >= 1, "ranks", "at least 1", fmt::format("{}", ranks));
  const RankSpan hosted = fabric.hosted(ranks);
  require(buffers.size() == static_cast<std::size_t>(hosted.count), "buffers",
          fmt::format("one per rank of this process = {}", hosted.count),
          fmt::format("{}", buffers.size()));
  for (const Message& buffer : buffers)
    require(buffer.size() == elements * reduction.wire.bytes, "buffers",
            fmt::format("{} bytes each", elements * reduction.wire.bytes),
            fmt::format("{}", buffer.size()));

  std::vector<RankRun> runs;
  runs.reserve(buffers.size());
  for (int i = 0; i < hosted.count; ++i)
    runs.emplace_back(hosted.first + i, reduction, schedule_of(hosted.first + i),
                      buffers[static_cast<std::size_t>(i)]);
  const std::unique_ptr<Transport> transport = fabric.open(ranks);
  const auto done = [](const RankRun& rank) { return rank.done(); };
  while (!std::all_of(runs.begin(), runs.end(), done)) {
    bool moved = false;
    for (RankRun& rank : runs)
      if (rank.advance(*transport)) moved = true;
    if (!moved) transport->wait();
  }
  transport->finish();
  const Outcome outcome = fabric.combine(outcome_of(runs, buffers));
  if (outcome.digest_min != outcome.digest_max)
    throw Error(fmt::format("{}: the {} ranks ended with different bytes", name, ranks));
  return outcome.counts;
}

}  // namespace

CollectiveCounts all_reduce(Fabric& fabric, const AllReduce& operation, RankBuffers& buffers) {
  return run(fabric, operation.reduction, operation.ranks, operation.elements, buffers,
             "all_reduce", [&](int rank) {
               return Schedule::all_reduce(operation.topology, rank, operation.ranks,
                                           operation.elements);
             });
}

CollectiveCounts all_gather(Fabric& fabric, const WireFormat& wire, int ranks, std::size_t elements,
                            RankBuffers& buffers) {
  return run(fabric, {wire, ReduceOp::sum}, ranks, elements, buffers, "all_gather",
             [&](int rank) { return Schedule::all_gather(rank, ranks, elements); });
}

float all_reduce_max(Fabric& fabric, Topology topology, int ranks, const std::vector<float>& values,
                     CollectiveCounts* counts) {
  const AllReduce operation{topology, {find_wire_format("f32"), ReduceOp::max}, ranks, 1};
  RankBuffers buffers;
  for (const float value : values) {
    Message message(sizeof value);
    std::memcpy(message.data(), &value, sizeof value);
    buffers.push_back(std::move(message));
  }
  const CollectiveCounts done = all_reduce(fabric, operation, buffers);
  if (counts != nullptr) *counts = done;
  float largest = 0.0F;
  if (!buffers.empty()) std::memcpy(&largest, buffers.front().data(), sizeof largest);
  return largest;
}

}  // namespace fp8lab
