#pragma once
// One training run, what its casts lost, and what became of it.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fp8lab/gemm/backend.hpp"
#include "train/variants.hpp"
#include "training/train/data.hpp"
#include "training/train/trainer.hpp"

namespace fp8lab::experiments {

struct StudySettings {
  train::TransformerShape shape;
  std::int64_t sequences = 0;
  train::Schedule schedule;
  train::OutlierChannels outliers;
  AdamWOptions optimizer;  ///< formats of its states; threads are the study's
  Backend backend{};       ///< of products and casts
  std::string bf16_accumulator =
      "fp32";                 ///< of BF16 products: an instruction, a definition, a chip
  std::string text;           ///< a file; empty: the synthetic language
  std::int64_t samples = 0;   ///< steps at which casts are looked at
  double tail_share = 0.2;    ///< of the steps: their mean loss is the run's result
  double follow_nats = 0.02;  ///< a gap up to this is none
  double diverge_nats = 0.2;  ///< a rise above the lowest loss that counts as diverging
};

/// Losses after the run broke off are NaN.
struct TrainingRun {
  std::vector<double> losses;          ///< nats a token, one a step
  double gradient_zero_percent = 0.0;  ///< gradient elements that a cast made zero, mean of samples
  double activation_zero_percent = 0.0;
  double saturated_percent = 0.0;  ///< of all roles
  std::int64_t parameters = 0;
};

/// How its steps run.
train::PassContext pass_context(const StudySettings& settings, int threads = 1);

/// What `train_variant` trains with.
train::TrainerOptions trainer_options(const StudySettings& settings, const Variant& variant,
                                      train::OutlierChannels outliers, std::uint64_t seed);
/// The language or the file of the settings.
std::shared_ptr<const train::DataSource> training_data(const StudySettings& settings,
                                                       std::uint64_t seed);

/// Trains `variant` from `seed`: the same weights and batches for every variant.
/// Ends at the first loss that is not finite.
TrainingRun train_variant(const StudySettings& settings, const Variant& variant,
                          train::OutlierChannels outliers, std::uint64_t seed);

enum class Outcome : std::uint8_t { follows, stalls, diverges };
std::string to_string(Outcome outcome);
/// How many seeds follow, stall and diverge.
using OutcomeCounts = std::array<std::int64_t, 3>;
/// The worst outcome of a seed.
Outcome worst(const OutcomeCounts& counts);

/// What became of runs, by name.
struct NamedOutcomes {
  std::array<std::vector<std::string>, 3> names;  ///< by outcome
  std::vector<std::string> disagree;              ///< of which seeds have different outcomes

  void add(std::string name, std::optional<Outcome> outcome) {
    (outcome ? names[static_cast<std::size_t>(*outcome)] : disagree).push_back(std::move(name));
  }
};
/// The outcomes as an answer: `5 of 7 recipes follow bf16 (a, b, c, d and e); f stalls`.
std::string sentence_of(const NamedOutcomes& outcomes, std::string_view noun,
                        std::string_view reference);

/// Mean loss over the last `tail_share` of the steps; NaN if the run broke off.
double tail_loss(const StudySettings& settings, const std::vector<double>& losses);

/// follows: the tail is at most follow_nats above the reference's. diverges: it
/// broke off, or the tail is diverge_nats above the run's own lowest stretch of the
/// same length. stalls: anything else.
Outcome judge(const StudySettings& settings, const std::vector<double>& losses,
              const std::vector<double>& reference);
inline bool diverged(const StudySettings& settings, const std::vector<double>& losses,
                     const std::vector<double>& reference) {
  return judge(settings, losses, reference) == Outcome::diverges;
}

/// Of a column that counts them.
inline constexpr const char* kDivergedMeaning =
    "seeds whose tail is diverge_nats above their own lowest loss, or that broke off; no gap "
    "includes them";

}  // namespace fp8lab::experiments
