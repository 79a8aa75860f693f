#pragma once
// How messages get from rank to rank. A process may hold one rank or many; the
// steps of a rank are the same either way.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fp8lab/collectives/wire.hpp"

namespace fp8lab {

enum class ReduceOp : std::uint8_t {
  sum,  ///< `add_codes`
  max,  ///< binary32 only; a NaN loses against a number, as in CUDA's fmaxf; +0 is above -0
};

/// What a hop does to two elements.
struct Reduction {
  WireFormat wire = kWireFormats[0];
  ReduceOp op = ReduceOp::sum;
  Backend backend{};  ///< casts the sums that a rank adds for all (`Topology::direct`)
};

/// inout[i] = in[i] op inout[i]; returns how many sums overflowed. The order of the
/// operands does not matter. Throws `Error` for sizes that disagree and for max of
/// another wire than binary32.
std::uint64_t reduce(const Reduction& reduction, std::span<const std::byte> in,
                     std::span<std::byte> inout);

using Message = std::vector<std::byte>;

/// Messages of one operation. From one rank to another they arrive in the order
/// in which they were sent.
class Transport {
 public:
  virtual ~Transport() = default;

  /// Copies `data` and returns at once.
  virtual void send(int from, int to, std::span<const std::byte> data) = 0;
  /// Replaces `message` by the next one from `from` to `to`, if it is there yet.
  virtual bool try_receive(int from, int to, Message& message) = 0;
  /// Blocks until another message is there. Throws `Error` where none can come.
  virtual void wait() = 0;
  /// Ends the operation: every message sent has been received. Throws `Error`
  /// if one was not.
  virtual void finish() = 0;
  /// `reduce`, by the transport's own means where it has any.
  virtual std::uint64_t apply(const Reduction& reduction, std::span<const std::byte> in,
                              std::span<std::byte> inout);

 protected:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
};

/// Queues of messages, one a pair of ranks.
class Mailbox {
 public:
  void put(int from, int to, Message message);
  /// A buffer of `size` bytes, an old one if there is one.
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

/// What one rank did, or all of them in sum.
struct RankCounts {
  std::uint64_t bytes_sent = 0;
  std::uint64_t messages_sent = 0;
  std::uint64_t additions = 0;   ///< elements received and reduced
  std::uint64_t overflowed = 0;  ///< of their sums, see `add_codes`; direct: final casts

  RankCounts& operator+=(const RankCounts& other);
  friend bool operator==(const RankCounts&, const RankCounts&) = default;
};

struct CollectiveCounts {
  RankCounts total;                 ///< over all ranks
  std::uint64_t busiest_bytes = 0;  ///< sent by the rank that sent most
};

/// A process's share of an operation that may span several.
struct Outcome {
  CollectiveCounts counts;
  std::uint64_t digest_min = ~std::uint64_t{0};  ///< of the ranks' results
  std::uint64_t digest_max = 0;
};

/// Where ranks live. Ranks of an operation are numbered from 0, however many
/// processes share them.
class Fabric {
 public:
  virtual ~Fabric() = default;

  /// The ranks that this process holds of an operation of `ranks`; rank 0 is
  /// always in the first process.
  [[nodiscard]] virtual RankSpan hosted(int ranks) const = 0;
  virtual std::unique_ptr<Transport> open(int ranks) = 0;
  /// The same on every process: sums, maxima and minima over all of them. No
  /// process returns before all have called.
  virtual Outcome combine(const Outcome& local) = 0;
  /// Whether threads may run operations side by side; where not, every process
  /// must run the same operations in the same order.
  [[nodiscard]] virtual bool concurrent() const = 0;

 protected:
  Fabric() = default;
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;
};

/// All ranks in this process: the simulation.
Fabric& in_process_fabric();

}  // namespace fp8lab
