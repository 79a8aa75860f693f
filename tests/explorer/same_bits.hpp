#pragma once
// Sections of results: a digest of each, or one of them in full.

#include <bit>
#include <cinttypes>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <utility>

namespace fp8lab::explorer {

/// The bits of a number; all NaN alike, since WebAssembly leaves open which one arithmetic gives.
inline std::uint64_t bits(float x) {
  return std::isnan(x) ? 0x7fc00000u : std::bit_cast<std::uint32_t>(x);
}

/// The elements of one section.
class Sink {
 public:
  explicit Sink(bool dumps) : dumps_(dumps) {}

  /// Inputs are there to be read; they are part of the digest too.
  void add(std::initializer_list<std::uint64_t> inputs,
           std::initializer_list<std::uint64_t> results) {
    for (const std::uint64_t word : inputs) mix(word);
    for (const std::uint64_t word : results) mix(word);
    ++count_;
    if (!dumps_) return;
    for (const std::uint64_t word : inputs) std::printf("%" PRIx64 " ", word);
    std::printf("->");
    for (const std::uint64_t word : results) std::printf(" %" PRIx64, word);
    std::printf("\n");
  }
  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] std::uint64_t digest() const { return digest_; }

 private:
  /// FNV-1a, eight bytes at a time, with a shift that brings high bits down.
  void mix(std::uint64_t word) {
    digest_ = (digest_ ^ word) * 0x100000001b3u;
    digest_ ^= digest_ >> 29;
  }
  bool dumps_;
  std::uint64_t count_ = 0;
  std::uint64_t digest_ = 0xcbf29ce484222325u;
};

class Report {
 public:
  /// `dumped`: the section that is written in full; empty for the digests of all.
  explicit Report(std::string dumped) : dumped_(std::move(dumped)) {}

  template <typename Fill>
  void section(const std::string& name, const Fill& fill) const {
    if (!dumped_.empty() && dumped_ != name) return;
    Sink sink(!dumped_.empty());
    fill(sink);
    if (dumped_.empty())
      std::printf("%s %" PRIu64 " %016" PRIx64 "\n", name.c_str(), sink.count(), sink.digest());
  }

 private:
  std::string dumped_;
};

}  // namespace fp8lab::explorer
