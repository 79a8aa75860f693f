#include "lab/mpi/fabric.hpp"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <list>
#include <map>
#include <utility>

#include "fp8lab/core/error.hpp"
#include "lab/mpi/operation.hpp"

namespace fp8lab::mpi {
namespace {

constexpr int kTag = 8;

/// The ranks of an operation, dealt to processes in blocks.
struct Placement {
  int ranks = 1;
  int processes = 1;

  [[nodiscard]] int process_of(int rank) const {
    return static_cast<int>(std::int64_t{rank} * processes / ranks);
  }
  /// The first rank of `process`: the smallest r with r P / N >= process.
  [[nodiscard]] int first_of(int process) const {
    return static_cast<int>((std::int64_t{process} * ranks + processes - 1) / processes);
  }
};

/// The user-defined reductions that a fabric has needed so far.
class Operations {
 public:
  const Operation& of(const Reduction& reduction) {
    const auto key = std::pair(reduction.wire.format, reduction.op);
    const auto [found, made] = operations_.try_emplace(key, nullptr);
    if (made) found->second = std::make_unique<Operation>(reduction, true);
    return *found->second;
  }

 private:
  std::map<std::pair<FormatId, ReduceOp>, std::unique_ptr<Operation>> operations_;
};

/// Messages between processes carry the two ranks before the data.
class MpiTransport final : public Transport {
 public:
  using Header = std::array<std::int32_t, 2>;

  MpiTransport(Placement placement, int process, Operations& operations)
      : placement_(placement), process_(process), operations_(operations) {}

  void send(int from, int to, std::span<const std::byte> data) override {
    const int target = placement_.process_of(to);
    if (target == process_) {
      Message message = mailbox_.buffer(data.size());
      std::copy(data.begin(), data.end(), message.begin());
      mailbox_.put(from, to, std::move(message));
      return;
    }
    Pending& sent = pending_.emplace_back();
    const Header header{from, to};
    sent.message.resize(sizeof header + data.size());
    std::memcpy(sent.message.data(), header.data(), sizeof header);
    std::copy(data.begin(), data.end(), sent.message.begin() + sizeof header);
    check(MPI_Isend(sent.message.data(), mpi_count(sent.message.size()), MPI_BYTE, target, kTag,
                    MPI_COMM_WORLD, &sent.request),
          "MPI_Isend");
  }

  bool try_receive(int from, int to, Message& message) override {
    return mailbox_.take(from, to, message);
  }

  void wait() override {
    MPI_Status status;
    check(MPI_Probe(MPI_ANY_SOURCE, kTag, MPI_COMM_WORLD, &status), "MPI_Probe");
    receive(status);
    drop_sent();
  }

  void finish() override {
    for (Pending& sent : pending_) check(MPI_Wait(&sent.request, MPI_STATUS_IGNORE), "MPI_Wait");
    pending_.clear();
    if (!mailbox_.empty()) throw Error("collective: a message was never received");
  }

  std::uint64_t apply(const Reduction& reduction, std::span<const std::byte> in,
                      std::span<std::byte> inout) override {
    const Operation& operation = operations_.of(reduction);
    const std::uint64_t before = overflowed_so_far();
    check(MPI_Reduce_local(in.data(), inout.data(), mpi_count(inout.size() / reduction.wire.bytes),
                           operation.element(), operation.op()),
          "MPI_Reduce_local");
    return overflowed_so_far() - before;
  }

 private:
  struct Pending {
    Message message;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  void receive(const MPI_Status& status) {
    int size = 0;
    check(MPI_Get_count(&status, MPI_BYTE, &size), "MPI_Get_count");
    Message packet(static_cast<std::size_t>(size));
    check(MPI_Recv(packet.data(), size, MPI_BYTE, status.MPI_SOURCE, kTag, MPI_COMM_WORLD,
                   MPI_STATUS_IGNORE),
          "MPI_Recv");
    Header header{};
    std::memcpy(header.data(), packet.data(), sizeof header);
    packet.erase(packet.begin(), packet.begin() + sizeof header);
    mailbox_.put(header[0], header[1], std::move(packet));
  }

  void drop_sent() {
    pending_.remove_if([](Pending& sent) {
      int done = 0;
      check(MPI_Test(&sent.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      return done != 0;
    });
  }

  Placement placement_;
  int process_;
  Operations& operations_;
  Mailbox mailbox_;
  std::list<Pending> pending_;  // a list: MPI reads a message where it lies
};

class MpiFabric final : public Fabric {
 public:
  explicit MpiFabric(const Session& session) : session_(session) {}

  [[nodiscard]] RankSpan hosted(int ranks) const override {
    const Placement placement{ranks, session_.size()};
    const int first = placement.first_of(session_.rank());
    return {first, placement.first_of(session_.rank() + 1) - first};
  }

  std::unique_ptr<Transport> open(int ranks) override {
    return std::make_unique<MpiTransport>(Placement{ranks, session_.size()}, session_.rank(),
                                          operations_);
  }

  /// Also keeps operations apart: nobody sends for the next one before all have
  /// received everything of this one.
  Outcome combine(const Outcome& local) override {
    const RankCounts& t = local.counts.total;
    std::array<std::uint64_t, 4> sums{t.bytes_sent, t.messages_sent, t.additions, t.overflowed};
    std::array<std::uint64_t, 2> largest{local.counts.busiest_bytes, local.digest_max};
    std::uint64_t smallest = local.digest_min;
    all_reduce(sums.data(), 4, MPI_SUM);
    all_reduce(largest.data(), 2, MPI_MAX);
    all_reduce(&smallest, 1, MPI_MIN);
    return {{{sums[0], sums[1], sums[2], sums[3]}, largest[0]}, smallest, largest[1]};
  }

  [[nodiscard]] bool concurrent() const override { return false; }

 private:
  static void all_reduce(std::uint64_t* values, int count, MPI_Op op) {
    check(MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_UINT64_T, op, MPI_COMM_WORLD),
          "MPI_Allreduce");
  }

  const Session& session_;
  Operations operations_;
};

}  // namespace

std::unique_ptr<Fabric> make_fabric(const Session& session) {
  return std::make_unique<MpiFabric>(session);
}

void all_reduce_by_mpi(const Session&, const WireFormat& wire, OperandOrder order,
                       std::span<std::byte> data) {
  require(data.size() % wire.bytes == 0, "data", fmt::format("a multiple of {} bytes", wire.bytes),
          fmt::format("{}", data.size()));
  const Operation operation({wire, ReduceOp::sum}, order == OperandOrder::any);
  check(MPI_Allreduce(MPI_IN_PLACE, data.data(), mpi_count(data.size() / wire.bytes),
                      operation.element(), operation.op(), MPI_COMM_WORLD),
        "MPI_Allreduce");
}

}  // namespace fp8lab::mpi
