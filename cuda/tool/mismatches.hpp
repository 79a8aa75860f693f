#pragma once
// Outputs that differ from what a probe is held to: a few on the screen, all of them, up to a
// limit, in a file that `fp8lab replay` reads.

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "probes/instructions.hpp"

namespace fp8lab::cuda {

/// Mismatches of different kinds have different causes: one kind that is always wrong must not hide
/// the others. `zero_sign`: both outputs are zeros; `zero`: one of them is.
enum class MismatchKind : std::uint8_t { nan, infinity, zero_sign, zero, subnormal, finite };
inline constexpr std::size_t kMismatchKinds = 6;
MismatchKind kind_of_mismatch(std::uint32_t chip, std::uint32_t expected);

/// Rows of one kind in a file of mismatches: a kind with many must not push out one with few.
inline constexpr std::size_t kMostKept = 4'000;

class Mismatches {
 public:
  explicit Mismatches(const ProbedInstruction& probe) : probe_(probe) {}

  /// Takes one output. `inputs` makes its inputs where they are wanted: when all outputs are wrong
  /// few are. `steps`: instructions that were chained.
  void add(std::uint32_t chip, std::uint32_t expected, int steps,
           const std::function<VectorCase()>& inputs);

  [[nodiscard]] std::uint64_t count() const { return count_; }
  /// For people, in a line: how many of each kind there are.
  [[nodiscard]] std::string kinds() const;
  /// At most 24 lines: how many of each kind, and the first of each with its inputs, reduced by
  /// `run` (what the chip gives for one case of `steps` instructions) as far as it goes.
  void print(const std::function<std::uint32_t(const VectorCase&, int steps)>& run) const;
  /// Vector files FOLDER/NAME.txt and NAME.chained.txt, those that have rows. `header` goes into
  /// their heads. Throws `Error` if they cannot be written.
  void write(const std::filesystem::path& folder,
             const std::map<std::string, std::string>& header) const;

  /// What was kept, the single ones and the chained ones.
  [[nodiscard]] const std::vector<VectorCase>& kept(bool chained) const {
    return kept_[chained ? 1 : 0];
  }

 private:
  struct First {
    VectorCase one;
    std::uint32_t expected = 0;
    int steps = 1;
    std::uint64_t count = 0;
  };
  const ProbedInstruction& probe_;
  std::uint64_t count_ = 0;
  std::array<First, kMismatchKinds> first_{};
  std::array<std::vector<VectorCase>, 2> kept_;
  std::array<std::array<std::size_t, kMismatchKinds>, 2> kept_of_kind_{};
};

}  // namespace fp8lab::cuda
