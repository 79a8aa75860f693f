#pragma once
// The transport of messages between ranks. A process may run one rank or many; the
// steps of a rank do not depend on it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "training/collectives/wire.hpp"

namespace fp8lab {

enum class ReduceOp : std::uint8_t {
  sum,  ///< `add_codes`
  max,  ///< binary32 only; NaN is ignored, as in CUDA's fmaxf; +0 is above -0
};

/// The operation of a hop on two elements.
struct Reduction {
  WireFormat wire = kWireFormats[0];
  ReduceOp op = ReduceOp::sum;
  Backend backend{};  ///< casts the sums of rank 0 (`Topology::direct`)
};

/// inout[i] = in[i] op inout[i]. Returns the number of sums that overflowed. The order
/// of the operands does not matter. Throws `Error` for different sizes, and for max on
/// another wire than binary32.
std::uint64_t reduce(const Reduction& reduction, std::span<const std::byte> in,
                     std::span<std::byte> inout);

using Message = std::vector<std::byte>;

/// The messages of one operation. Messages between two ranks arrive in the order in
/// which they were sent.
class Transport {
 public:
  virtual ~Transport() = default;

  /// Copies `data` and returns at once.
  virtual void send(int from, int to, std::span<const std::byte> data) = 0;
  /// Replaces `message` by the next one from `from` to `to`, if it has arrived.
  virtual bool try_receive(int from, int to, Message& message) = 0;
  /// Blocks until another message arrives. Throws `Error` if none can arrive.
  virtual void wait() = 0;
  /// Ends the operation. Throws `Error` if a message that was sent has not been
  /// received.
  virtual void finish() = 0;
  /// `reduce`, in the transport's own implementation if it has one.
  virtual std::uint64_t apply(const Reduction& reduction, std::span<const std::byte> in,
                              std::span<std::byte> inout);

 protected:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
};

/// Queues of messages, one for each pair of ranks.
class Mailbox {
 public:
  void put(int from, int to, Message message);
  /// A buffer of `size` bytes; reuses an old one if there is one.
  Message buffer(std::size_t size);
  bool take(int from, int to, Message& message);
  [[nodiscard]] bool empty() const { return waiting_ == 0; }

 private:
  struct Queue {
    std::vector<Message> messages;
    std::size_t next = 0;
  };
  std::unordered_map<std::uint64_t, Queue> queues_;
  std::vector<Message> spare_;
  std::size_t waiting_ = 0;
};

/// Ranks [first, first + count).
struct RankSpan {
  int first = 0;
  int count = 0;
};

/// Counts of one rank, or totals of all ranks.
struct RankCounts {
  std::uint64_t bytes_sent = 0;
  std::uint64_t messages_sent = 0;
  std::uint64_t additions = 0;   ///< elements received and reduced
  std::uint64_t overflowed = 0;  ///< sums that overflowed, see `add_codes`; direct: final casts

  RankCounts& operator+=(const RankCounts& other);
  friend bool operator==(const RankCounts&, const RankCounts&) = default;
};

struct CollectiveCounts {
  RankCounts total;                 ///< over all ranks
  std::uint64_t busiest_bytes = 0;  ///< largest number sent by one rank
};

/// The result of an operation in one process.
struct Outcome {
  CollectiveCounts counts;
  std::uint64_t digest_min = ~std::uint64_t{0};  ///< of the ranks' results
  std::uint64_t digest_max = 0;
};

/// The processes of the ranks. Ranks of an operation are numbered from 0 over all
/// processes.
class Fabric {
 public:
  virtual ~Fabric() = default;

  /// The ranks of this process in an operation of `ranks`. Rank 0 is always in the
  /// first process.
  [[nodiscard]] virtual RankSpan hosted(int ranks) const = 0;
  virtual std::unique_ptr<Transport> open(int ranks) = 0;
  /// Sums, maxima and minima over all processes, the same on each. No process
  /// returns before all have called.
  virtual Outcome combine(const Outcome& local) = 0;
  /// Whether threads may run operations concurrently. If not, every process must run
  /// the same operations in the same order.
  [[nodiscard]] virtual bool concurrent() const = 0;

 protected:
  Fabric() = default;
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;
};

/// The fabric with all ranks in this process, for simulation.
Fabric& in_process_fabric();

}  // namespace fp8lab
