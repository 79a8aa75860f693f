#pragma once
// Training data. Batch i is a pure function of the options and i, so that a run can
// resume from its step number.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "training/train/model.hpp"

namespace fp8lab::train {

class DataSource {
 public:
  DataSource() = default;
  DataSource(const DataSource&) = delete;
  DataSource& operator=(const DataSource&) = delete;
  virtual ~DataSource() = default;

  /// `sequences` sequences of `length` tokens and their successors.
  [[nodiscard]] virtual Batch batch(std::int64_t index, std::int64_t sequences,
                                    std::int64_t length) const = 0;
  [[nodiscard]] virtual std::int64_t vocabulary() const = 0;
  /// A text that differs if the batches differ.
  [[nodiscard]] virtual std::string identity() const = 0;
};

/// A language that a small model learns in stages: first token frequencies, then
/// successors, then copying.
struct LanguageOptions {
  std::int64_t vocabulary = 256;
  double zipf_exponent = 1.1;   ///< of token ranks: probability ~ rank^-exponent
  double markov_share = 0.75;   ///< share of tokens that are successors of the previous token
  std::int64_t successors = 8;  ///< number of successors of a token, Zipf-weighted
  double copy_share = 0.3;      ///< share of tokens that repeat an earlier part of the sequence
  std::int64_t copy_length = 12;
};

/// A source of such data. Throws `Error` for a vocabulary below 2 or shares outside [0, 1].
std::unique_ptr<DataSource> synthetic_language(const LanguageOptions& options, std::uint64_t seed);

/// The bytes of a file, vocabulary 256. Each sequence starts at a random position.
/// Throws `Error` that names the path for a file that cannot be read or is shorter than 2 bytes.
std::unique_ptr<DataSource> text_file(const std::filesystem::path& path, std::uint64_t seed);

}  // namespace fp8lab::train
