#pragma once
// The instructions that take any two of E4M3, E5M2, E3M2, E2M3 and E2M1 (PTX: f8f6f4, mxf8f6f4):
// their formats and names, one for each of 25 pairs.

#include <array>
#include <cstddef>
#include <string_view>

#include "fp8lab/formats/format.hpp"

namespace fp8lab {

inline constexpr std::array kPairedFormats{FormatId::e4m3fn, FormatId::e5m2, FormatId::e3m2,
                                           FormatId::e2m3, FormatId::e2m1};
inline constexpr std::size_t kPairs = kPairedFormats.size() * kPairedFormats.size();

struct FormatPair {
  FormatId a;
  FormatId b;
};
constexpr FormatPair format_pair(std::size_t i) {
  return {kPairedFormats[i / kPairedFormats.size()], kPairedFormats[i % kPairedFormats.size()]};
}

/// A text that is put together while compiling.
class PairName {
 public:
  constexpr PairName() = default;
  /// `prefix`, the format of both operands or those of a and b, `suffix`.
  constexpr PairName(std::string_view prefix, FormatPair pair, std::string_view suffix) {
    add(prefix);
    add(instruction_word(pair.a));
    if (pair.a != pair.b) {
      add(".");
      add(instruction_word(pair.b));
    }
    add(suffix);
  }
  [[nodiscard]] constexpr std::string_view view() const { return {text_.data(), size_}; }

 private:
  static constexpr std::string_view instruction_word(FormatId id) {
    return id == FormatId::e4m3fn ? "e4m3" : format(id).name;
  }
  constexpr void add(std::string_view part) {
    for (const char letter : part) text_[size_++] = letter;
  }

  std::array<char, 48> text_{};
  std::size_t size_ = 0;
};

constexpr std::array<PairName, kPairs> pair_names(std::string_view prefix,
                                                  std::string_view suffix = "") {
  std::array<PairName, kPairs> names;
  for (std::size_t i = 0; i < kPairs; ++i) names[i] = PairName(prefix, format_pair(i), suffix);
  return names;
}

}  // namespace fp8lab
