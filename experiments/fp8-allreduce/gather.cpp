#include "fp8-allreduce/gather.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "fp8lab/scaling/scale_rule.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::array<std::string_view, 4> kCasts{"after (BF16 travels)", "before, amax reduced",
                                                 "before, own scales sent along",
                                                 "before, own scales, reduced one assumed"};

/// Codes of all shards on every rank; `scales`: one a hosted rank.
RankBuffers gather_codes(Fabric& fabric, const GatherInput& input, const WireFormat& wire,
                         const std::vector<float>& scales, const Backend& backend,
                         std::uint64_t& bytes_sent) {
  const RankSpan hosted = fabric.hosted(input.ranks);
  RankBuffers buffers;
  for (int i = 0; i < hosted.count; ++i) {
    const Slice own = chunk_of(input.weights.size(), input.ranks, hosted.first + i);
    Message codes(input.weights.size() * wire.bytes);
    to_wire(wire, input.shard(hosted.first + i), scales[static_cast<std::size_t>(i)],
            std::span(codes).subspan(own.first * wire.bytes, own.count * wire.bytes), backend);
    buffers.push_back(std::move(codes));
  }
  bytes_sent +=
      all_gather(fabric, wire, input.ranks, input.weights.size(), buffers).total.bytes_sent;
  return buffers;
}

/// Every rank's value on every rank; empty where none is hosted.
std::vector<float> gather_values(Fabric& fabric, int ranks, const std::vector<float>& values,
                                 std::uint64_t& bytes_sent) {
  const auto count = static_cast<std::size_t>(ranks);
  const RankSpan hosted = fabric.hosted(ranks);
  RankBuffers buffers;
  for (int i = 0; i < hosted.count; ++i) {
    Message message(count * sizeof(float));
    std::memcpy(&message[static_cast<std::size_t>(hosted.first + i) * sizeof(float)],
                &values[static_cast<std::size_t>(i)], sizeof(float));
    buffers.push_back(std::move(message));
  }
  bytes_sent += all_gather(fabric, find_wire_format("f32"), ranks, count, buffers).total.bytes_sent;
  if (buffers.empty()) return {};
  std::vector<float> all(count);
  std::memcpy(all.data(), buffers.front().data(), buffers.front().size());
  return all;
}

/// Codes of the gathered tensor as values; shard r was cast with scales[r].
std::vector<float> dequantized(const GatherInput& input, const WireFormat& wire,
                               const Message& codes, const std::vector<float>& scales) {
  std::vector<float> values(input.weights.size());
  for (int rank = 0; rank < input.ranks; ++rank) {
    const Slice own = chunk_of(values.size(), input.ranks, rank);
    from_wire(wire, std::span(codes).subspan(own.first * wire.bytes, own.count * wire.bytes),
              1.0F / scales[static_cast<std::size_t>(rank)],
              std::span(values).subspan(own.first, own.count));
  }
  return values;
}

Loss gather_loss(const GatherInput& input, const std::vector<float>& values) {
  return loss_of(std::vector<double>(input.weights.begin(), input.weights.end()), values);
}

Gathered gather_then_cast(Fabric& fabric, const GatherInput& input, const WireFormat& wire,
                          const Backend& backend) {
  const WireFormat& bf16 = find_wire_format("bf16");
  Gathered gathered;
  const RankBuffers buffers = gather_codes(
      fabric, input, bf16, hosted_copies(fabric, input.ranks, 1.0F), backend, gathered.bytes_sent);
  if (buffers.empty()) return gathered;
  std::vector<float> weights(input.weights.size());
  from_wire(bf16, buffers.front(), 1.0F, weights);
  const float scale = scale_of(wire, amax(weights, true));
  Message codes(weights.size() * wire.bytes);
  to_wire(wire, weights, scale, codes, backend);
  from_wire(wire, codes, 1.0F / scale, weights);
  gathered.loss = gather_loss(input, weights);
  gathered.codes = std::move(codes);
  return gathered;
}

/// Casts with `casts` (one a hosted rank) and reads with `reads` (one a rank).
Gathered cast_then_gather(Fabric& fabric, const GatherInput& input, const WireFormat& wire,
                          const std::vector<float>& casts, const std::vector<float>& reads,
                          const Backend& backend) {
  Gathered gathered;
  RankBuffers buffers = gather_codes(fabric, input, wire, casts, backend, gathered.bytes_sent);
  if (buffers.empty()) return gathered;
  gathered.loss = gather_loss(input, dequantized(input, wire, buffers.front(), reads));
  gathered.codes = std::move(buffers.front());
  return gathered;
}

std::vector<float> own_amaxes(const Fabric& fabric, const GatherInput& input) {
  return hosted_amaxes(fabric, input.ranks, [&](int rank) { return input.shard(rank); });
}

/// max finite / amax over all shards, as every rank computes it after a max all-reduce.
float agreed_scale(Fabric& fabric, const GatherInput& input, const WireFormat& wire,
                   CollectiveCounts* counts = nullptr) {
  return scale_of(
      wire, all_reduce_max(fabric, Topology::ring, input.ranks, own_amaxes(fabric, input), counts));
}

}  // namespace

std::string_view to_string(GatherCast cast) { return kCasts[static_cast<std::size_t>(cast)]; }

GatherInput::GatherInput(const RandomStream& random, std::size_t elements, int rank_count,
                         double octaves)
    : ranks(rank_count), weights(elements) {
  constexpr double kSigma = 0.02;
  for (int rank = 0; rank < ranks; ++rank) {
    const Slice own = chunk_of(elements, ranks, rank);
    // Far from the counters of the weights.
    const std::uint64_t draw = (std::uint64_t{1} << 40) + static_cast<std::uint64_t>(rank);
    const double sigma = kSigma * std::exp2(octaves * random.normal(draw));
    for (std::size_t i = own.first; i < own.first + own.count; ++i)
      weights[i] = static_cast<float>(sigma * random.normal(i));
  }
}

std::span<const float> GatherInput::shard(int rank) const {
  const Slice own = chunk_of(weights.size(), ranks, rank);
  return std::span(weights).subspan(own.first, own.count);
}

Gathered gather_weights(Fabric& fabric, const GatherInput& input, const WireFormat& wire,
                        GatherCast cast, const Backend& backend) {
  const auto ranks = static_cast<std::size_t>(input.ranks);
  if (cast == GatherCast::after) return gather_then_cast(fabric, input, wire, backend);
  CollectiveCounts amax_counts;
  const float agreed = agreed_scale(fabric, input, wire, &amax_counts);
  if (cast == GatherCast::before) {
    Gathered gathered =
        cast_then_gather(fabric, input, wire, hosted_copies(fabric, input.ranks, agreed),
                         std::vector<float>(ranks, agreed), backend);
    gathered.bytes_sent += amax_counts.total.bytes_sent;
    return gathered;
  }
  std::vector<float> own = own_amaxes(fabric, input);
  for (float& value : own) value = scale_of(wire, value);
  if (cast == GatherCast::before_lost)
    return cast_then_gather(fabric, input, wire, own, std::vector<float>(ranks, agreed), backend);
  std::uint64_t scale_bytes = 0;
  const std::vector<float> all = gather_values(fabric, input.ranks, own, scale_bytes);
  Gathered gathered = cast_then_gather(fabric, input, wire, own, all, backend);
  gathered.bytes_sent += scale_bytes;
  return gathered;
}

Loss gather_with_one_off(Fabric& fabric, const GatherInput& input, const WireFormat& wire,
                         double octaves, const Backend& backend) {
  const float agreed = agreed_scale(fabric, input, wire);
  return cast_then_gather(fabric, input, wire, first_off(fabric, input.ranks, agreed, octaves),
                          std::vector<float>(static_cast<std::size_t>(input.ranks), agreed),
                          backend)
      .loss;
}

}  // namespace fp8lab::experiments
