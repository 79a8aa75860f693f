#include "training/collectives/transport.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab {
namespace {

std::uint64_t key_of(int from, int to) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(from)) << 32 |
         static_cast<std::uint32_t>(to);
}

float larger(float a, float b) {
  if (std::isnan(a)) return std::isnan(b) ? std::bit_cast<float>(0x7fffffffU) : b;
  if (std::isnan(b) || a > b) return a;
  return a == b && std::signbit(b) ? a : b;
}

class InProcessTransport final : public Transport {
 public:
  void send(int from, int to, std::span<const std::byte> data) override {
    Message message = mailbox_.buffer(data.size());
    std::copy(data.begin(), data.end(), message.begin());
    mailbox_.put(from, to, std::move(message));
  }
  bool try_receive(int from, int to, Message& message) override {
    return mailbox_.take(from, to, message);
  }
  void wait() override {
    throw Error("collective: every rank waits for a message from another rank");
  }
  void finish() override {
    if (!mailbox_.empty()) throw Error("collective: a message was never received");
  }

 private:
  Mailbox mailbox_;
};

class InProcessFabric final : public Fabric {
 public:
  [[nodiscard]] RankSpan hosted(int ranks) const override { return {0, ranks}; }
  std::unique_ptr<Transport> open(int) override { return std::make_unique<InProcessTransport>(); }
  Outcome combine(const Outcome& local) override { return local; }
  [[nodiscard]] bool concurrent() const override { return true; }
};

}  // namespace

std::uint64_t reduce(const Reduction& reduction, std::span<const std::byte> in,
                     std::span<std::byte> inout) {
  if (reduction.op == ReduceOp::sum) return add_on_wire(reduction.wire, in, inout);
  require(reduction.wire.format == FormatId::f32, "wire", "f32 for max", reduction.wire.name);
  require(in.size() == inout.size() && in.size() % sizeof(float) == 0, "in",
          counted(inout.size(), "byte"), fmt::format("{}", in.size()));
  for (std::size_t at = 0; at < in.size(); at += sizeof(float)) {
    float a = 0.0F;
    float b = 0.0F;
    std::memcpy(&a, &in[at], sizeof a);
    std::memcpy(&b, &inout[at], sizeof b);
    b = larger(a, b);
    std::memcpy(&inout[at], &b, sizeof b);
  }
  return 0;
}

std::uint64_t Transport::apply(const Reduction& reduction, std::span<const std::byte> in,
                               std::span<std::byte> inout) {
  return reduce(reduction, in, inout);
}

void Mailbox::put(int from, int to, Message message) {
  queues_[key_of(from, to)].messages.push_back(std::move(message));
  ++waiting_;
}

Message Mailbox::buffer(std::size_t size) {
  Message message;
  if (!spare_.empty()) {
    message = std::move(spare_.back());
    spare_.pop_back();
  }
  message.resize(size);
  return message;
}

bool Mailbox::take(int from, int to, Message& message) {
  const auto found = queues_.find(key_of(from, to));
  if (found == queues_.end() || found->second.next == found->second.messages.size()) return false;
  Queue& queue = found->second;
  std::swap(message, queue.messages[queue.next]);
  spare_.push_back(std::move(queue.messages[queue.next]));
  if (++queue.next == queue.messages.size()) {
    queue.messages.clear();
    queue.next = 0;
  }
  --waiting_;
  return true;
}

RankCounts& RankCounts::operator+=(const RankCounts& other) {
  bytes_sent += other.bytes_sent;
  messages_sent += other.messages_sent;
  additions += other.additions;
  overflowed += other.overflowed;
  return *this;
}

Fabric& in_process_fabric() {
  static InProcessFabric fabric;
  return fabric;
}

}  // namespace fp8lab
