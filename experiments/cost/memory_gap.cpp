#include "cost/memory_gap.hpp"

#include <fmt/format.h>

#include "cost/cost_tables.hpp"

namespace fp8lab::experiments {
namespace {

/// Of a GPU, one byte an element.
double block_weight_gib(const TrainingSetup& setup) {
  double elements = 0.0;
  for (const WeightTensor& weight : weights_of(setup.shape))
    if (weight.is_block_gemm()) elements += static_cast<double>(weight.size());
  return elements / static_cast<double>(setup.parallel.tensor * setup.parallel.pipeline) / kGib;
}

double counted_gib(const TrainingSetup& setup, const char* scheme) {
  return training_cost(setup, find_training_scheme(scheme)).memory() / kGib;
}

double saving_of(double now, double before) { return 100.0 * (1.0 - now / before); }

}  // namespace

std::vector<MemoryGap> memory_gaps() {
  double missing = 0.0;
  for (const Published& row : kPublished)
    missing += row.bf16_memory - counted_gib(find_training_setup(std::string(row.model)), "bf16");
  const double overhead = missing / static_cast<double>(kPublished.size());
  std::vector<MemoryGap> gaps;
  for (const Published& row : kPublished) {
    const std::string model(row.model);
    const TrainingSetup setup = find_training_setup(model);
    gaps.push_back({model, "bf16", counted_gib(setup, "bf16"), 0.0, overhead, row.bf16_memory});
    gaps.push_back({model, "fp8-lm", counted_gib(setup, "fp8-lm"), block_weight_gib(setup),
                    overhead, row.fp8_memory});
  }
  return gaps;
}

Table memory_gap_table(std::string_view model) {
  Table table(
      "memory_published",
      "Memory per GPU compared with FP8-LM's Table 5, with the uncounted parts as assumptions",
      {{"model", "", "shape"},
       {"scheme", "", "how training is stored"},
       {"counted", "GiB", "weights, gradients, states, activations"},
       {"transposed", "GiB", "assumed: FP8 copies of transposed block weights"},
       {"overhead", "GiB", "fitted to the BF16 rows: one constant for all"},
       {"total", "GiB", "of these"},
       {"published", "GiB", "Table 5 of the paper"},
       {"ratio", "1", "total over published"},
       {"counted_saving", "%", "against bf16, counted alone"},
       {"saving", "%", "against bf16, with the assumptions"},
       {"published_saving", "%", "against bf16, of the paper"}});
  const std::vector<MemoryGap> gaps = memory_gaps();
  for (std::size_t i = 0; i < gaps.size(); ++i) {
    const MemoryGap& g = gaps[i];
    if (!model.empty() && g.model != model) continue;
    const MemoryGap& bf16 = gaps[i - i % 2];
    table.add_row({g.model, g.scheme, g.counted, g.transposed, g.overhead, g.total(), g.published,
                   g.total() / g.published, saving_of(g.counted, bf16.counted),
                   saving_of(g.total(), bf16.total()), saving_of(g.published, bf16.published)});
  }
  return table;
}

std::string published_saving_text(const TrainingSetup& setup) {
  if (find_published(setup) == nullptr) return {};
  const std::vector<MemoryGap> gaps = memory_gaps();
  for (std::size_t i = 0; i + 1 < gaps.size(); i += 2)
    if (gaps[i].model == setup.shape.name)
      return fmt::format(
          " (published: {:.1f} %; with the assumptions of memory_published: {:.1f} %)",
          saving_of(gaps[i + 1].published, gaps[i].published),
          saving_of(gaps[i + 1].total(), gaps[i].total()));
  return {};
}

}  // namespace fp8lab::experiments
