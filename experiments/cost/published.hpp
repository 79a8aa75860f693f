#pragma once
// FP8-LM's own figures (arXiv 2310.18313, Tables 5 and 7): read there, not
// measured here. GB of the paper are taken as GiB; its volumes fit that.

#include <array>
#include <string_view>

#include "training/model/shape.hpp"

namespace fp8lab::experiments {

/// A model of the paper under BF16 and under its own scheme, with the same micro-batch.
struct Published {
  std::string_view model;
  double bf16_memory;  ///< GiB a GPU
  double fp8_memory;
  double bf16_traffic;  ///< GiB, all-gather of weights and reduce-scatter of gradients
  double fp8_traffic;
  double bf16_activation_traffic;  ///< GiB; 0 where the paper gives none
  double fp8_activation_traffic;
};

inline constexpr std::array<Published, 3> kPublished{{{"7b", 69.6, 49.4, 37.2, 13.9, 0.0, 0.0},
                                                      {"13b", 68.2, 48.9, 34.3, 12.4, 4.7, 3.1},
                                                      {"175b", 66.1, 40.3, 23.4, 8.2, 5.9, 3.9}}};

/// The paper's row for this shape with this parallelism; none if it has none.
const Published* find_published(const TrainingSetup& setup);

/// GPT-175B: one row of Table 5 each.
struct PublishedRun {
  double micro_batch;
  double memory;      ///< GiB a GPU
  double throughput;  ///< samples a second
};
inline constexpr PublishedRun kBf16Run{1.0, 66.1, 22.4};
inline constexpr PublishedRun kFp8RunAlike{1.0, 40.3, 27.1};
inline constexpr PublishedRun kFp8RunLarger{4.0, 57.7, 39.3};

}  // namespace fp8lab::experiments
