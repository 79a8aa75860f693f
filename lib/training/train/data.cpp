#include "training/train/data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "fp8lab/io/files.hpp"

namespace fp8lab::train {
namespace {

void append(Batch& batch, const std::vector<std::int32_t>& tokens) {
  batch.inputs.insert(batch.inputs.end(), tokens.begin(), tokens.end() - 1);
  batch.targets.insert(batch.targets.end(), tokens.begin() + 1, tokens.end());
}

void require_share(const char* name, double share) {
  require(share >= 0.0 && share <= 1.0, name, "0 .. 1", fmt::format("{:g}", share));
}

/// Draws ranks with probability ~ (rank + 1)^-exponent.
class Zipf {
 public:
  Zipf(std::int64_t count, double exponent) {
    double sum = 0.0;
    for (std::int64_t rank = 1; rank <= count; ++rank)
      cumulative_.push_back(sum += std::pow(static_cast<double>(rank), -exponent));
  }
  [[nodiscard]] std::int32_t draw(double uniform) const {
    const auto at =
        std::upper_bound(cumulative_.begin(), cumulative_.end() - 1, uniform * cumulative_.back());
    return static_cast<std::int32_t>(at - cumulative_.begin());
  }

 private:
  std::vector<double> cumulative_;
};

class SyntheticLanguage final : public DataSource {
 public:
  SyntheticLanguage(const LanguageOptions& options, std::uint64_t seed)
      : options_(options),
        seed_(seed),
        tokens_(options.vocabulary, options.zipf_exponent),
        ranks_(options.successors, options.zipf_exponent) {
    // Successors are drawn as tokens are, so that frequencies stay Zipf's.
    const RandomStream random(seed, "language.successors");
    const std::int64_t count = options.vocabulary * options.successors;
    for (std::int64_t i = 0; i < count; ++i)
      successors_.push_back(tokens_.draw(random.uniform(static_cast<std::uint64_t>(i))));
  }

  [[nodiscard]] Batch batch(std::int64_t index, std::int64_t sequences,
                            std::int64_t length) const override {
    Batch batch{sequences, length, {}, {}};
    for (std::int64_t s = 0; s < sequences; ++s)
      append(batch, sequence(index * sequences + s, length + 1));
    return batch;
  }
  [[nodiscard]] std::int64_t vocabulary() const override { return options_.vocabulary; }
  [[nodiscard]] std::string identity() const override {
    return fmt::format("language {} {:a} {:a} {} {:a} {} seed {}", options_.vocabulary,
                       options_.zipf_exponent, options_.markov_share, options_.successors,
                       options_.copy_share, options_.copy_length, seed_);
  }

 private:
  [[nodiscard]] std::vector<std::int32_t> sequence(std::int64_t index, std::int64_t size) const {
    const RandomStream random(seed_, fmt::format("language.sequence{}", index));
    std::vector<std::int32_t> tokens;
    std::int64_t copy_left = 0;
    std::int64_t copy_from = 0;
    const double start = options_.copy_share / static_cast<double>(options_.copy_length);
    for (std::int64_t t = 0; t < size; ++t) {
      const auto draw = static_cast<std::uint64_t>(4 * t);
      if (copy_left == 0 && t > options_.copy_length && random.uniform(draw) < start) {
        copy_left = options_.copy_length;
        copy_from = static_cast<std::int64_t>(
            random.below(draw + 1, static_cast<std::uint64_t>(t - options_.copy_length)));
      }
      if (copy_left > 0) {
        --copy_left;
        tokens.push_back(tokens[static_cast<std::size_t>(copy_from++)]);
      } else if (t > 0 && random.uniform(draw + 2) < options_.markov_share) {
        const std::int64_t rank = ranks_.draw(random.uniform(draw + 3));
        tokens.push_back(
            successors_[static_cast<std::size_t>(tokens.back() * options_.successors + rank)]);
      } else {
        tokens.push_back(tokens_.draw(random.uniform(draw + 3)));
      }
    }
    return tokens;
  }

  LanguageOptions options_;
  std::uint64_t seed_;
  Zipf tokens_;
  Zipf ranks_;
  std::vector<std::int32_t> successors_;  ///< [vocabulary, successors]
};

class TextFile final : public DataSource {
 public:
  TextFile(const std::filesystem::path& path, std::uint64_t seed)
      : bytes_(read_file(path)), random_(seed, "text.position") {
    require(bytes_.size() >= 2, path.string(), "at least 2 bytes",
            fmt::format("{}", bytes_.size()));
  }

  [[nodiscard]] Batch batch(std::int64_t index, std::int64_t sequences,
                            std::int64_t length) const override {
    Batch batch{sequences, length, {}, {}};
    for (std::int64_t s = 0; s < sequences; ++s) {
      std::uint64_t at =
          random_.below(static_cast<std::uint64_t>(index * sequences + s), bytes_.size());
      std::vector<std::int32_t> tokens;
      for (std::int64_t t = 0; t <= length; ++t, at = (at + 1) % bytes_.size())
        tokens.push_back(static_cast<unsigned char>(bytes_[at]));
      append(batch, tokens);
    }
    return batch;
  }
  [[nodiscard]] std::int64_t vocabulary() const override { return 256; }
  [[nodiscard]] std::string identity() const override {
    return fmt::format("text of {} bytes, hash {:016x}, seed {}", bytes_.size(),
                       RandomStream::hash(bytes_), random_.seed());
  }

 private:
  std::string bytes_;
  RandomStream random_;
};

}  // namespace

std::unique_ptr<DataSource> synthetic_language(const LanguageOptions& options, std::uint64_t seed) {
  require(options.vocabulary >= 2, "vocabulary", "at least 2",
          fmt::format("{}", options.vocabulary));
  require(options.successors >= 1, "successors", "at least 1",
          fmt::format("{}", options.successors));
  require(options.copy_length >= 1, "copy_length", "at least 1",
          fmt::format("{}", options.copy_length));
  require_share("markov_share", options.markov_share);
  require_share("copy_share", options.copy_share);
  return std::make_unique<SyntheticLanguage>(options, seed);
}

std::unique_ptr<DataSource> text_file(const std::filesystem::path& path, std::uint64_t seed) {
  return std::make_unique<TextFile>(path, seed);
}

}  // namespace fp8lab::train
