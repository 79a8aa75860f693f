// Checkpoints of data-parallel runs: one file for all ranks.

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "training/train/checkpoint_file.hpp"
#include "training/train/parallel_trainer.hpp"

namespace fp8lab::train {
namespace {

constexpr const char* kMu = "reducer.mu";
constexpr const char* kClean = "reducer.clean_steps";

std::string prefix_of(std::size_t rank) { return fmt::format("rank.{}.", rank); }

/// Of each tensor mu and the mu that its growth counts from; clean steps, and those that count.
struct ScalerStates {
  std::vector<double> mu;
  std::vector<std::int64_t> clean;

  explicit ScalerStates(const std::vector<AutoScaler>& scalers) {
    for (const AutoScaler& scaler : scalers) {
      const AutoScaler::State state = scaler.state();
      mu.insert(mu.end(), {state.mu, state.base});
      clean.insert(clean.end(), {state.clean, state.counted});
    }
  }
};

template <typename T>
std::vector<T> pairs_of(const std::string& where, const TensorView& tensor, ElementType type,
                        std::size_t count) {
  const std::vector<std::int64_t> shape{static_cast<std::int64_t>(count), 2};
  require(tensor.type == type && tensor.shape == shape, where,
          fmt::format("{} {}", to_string(type), shape_text(shape)),
          fmt::format("{} {}", to_string(tensor.type), shape_text(tensor.shape)));
  std::vector<T> values(2 * count);
  std::memcpy(values.data(), tensor.bytes.data(), values.size() * sizeof(T));
  return values;
}

std::vector<AutoScaler> scalers_of(const std::string& path, const SafetensorsFile& file,
                                   std::vector<AutoScaler> scalers) {
  const auto mu = pairs_of<double>(fmt::format("{}: {}", path, kMu), file.find(kMu),
                                   ElementType::f64, scalers.size());
  const auto clean = pairs_of<std::int64_t>(fmt::format("{}: {}", path, kClean), file.find(kClean),
                                            ElementType::i64, scalers.size());
  for (std::size_t t = 0; t < scalers.size(); ++t)
    scalers[t].set_state({mu[2 * t], mu[2 * t + 1], clean[2 * t], clean[2 * t + 1]});
  return scalers;
}

/// What `rank` finds in the file, by the names that its trainer knows. Without ZeRO the optimizer's
/// states are the first rank's.
std::vector<NamedTensor> tensors_of(std::span<const NamedTensor> all, std::size_t rank,
                                    const std::vector<NamedTensor>& shared) {
  const std::string prefix = prefix_of(rank);
  std::vector<NamedTensor> own;
  for (const NamedTensor& tensor : all)
    if (tensor.name.starts_with(prefix))
      own.push_back({tensor.name.substr(prefix.size()), tensor.tensor});
  own.insert(own.end(), shared.begin(), shared.end());  // the first of a name is found
  return own;
}

}  // namespace

std::string ParallelTrainer::fingerprint() const {
  const ReductionOptions& r = options_.reduction;
  auto json = parse_json<nlohmann::json>(trainers_.front()->fingerprint(), "options");
  json["ranks"] = {{"count", r.ranks},
                   {"topology", to_string(r.topology)},
                   {"wire", r.wire.name},
                   {"scaling", to_string(r.scaling)},
                   {"mu",
                    {r.auto_scaling.threshold, r.auto_scaling.steps_to_double,
                     r.auto_scaling.clean_steps, to_string(r.auto_scaling.growth)}},
                   {"whole_tensor_zero", options_.whole_tensor_zero}};
  return json_text(json);
}

void ParallelTrainer::require_all_ranks() const {
  require(hosted_.count == options_.reduction.ranks, "checkpoint",
          fmt::format("all {} ranks in this process", options_.reduction.ranks),
          fmt::format("{}", hosted_.count));
}

void ParallelTrainer::save(const std::filesystem::path& path) const {
  require_all_ranks();
  std::vector<NamedTensor> tensors;
  for (std::size_t rank = 0; rank < trainers_.size(); ++rank) {
    const std::size_t shared =
        rank > 0 && owner_.empty() ? trainers_[rank]->optimizer().state().size() : 0;
    const std::vector<NamedTensor> own = trainers_[rank]->state();  // optimizer's states first
    for (std::size_t i = shared; i < own.size(); ++i)
      tensors.push_back({prefix_of(rank) + own[i].name, own[i].tensor});
  }
  const ScalerStates scalers(reducer_.scalers());
  const auto count = static_cast<std::int64_t>(reducer_.scalers().size());
  tensors.push_back({kMu, view_of<double>(ElementType::f64, {count, 2}, scalers.mu)});
  tensors.push_back({kClean, view_of<std::int64_t>(ElementType::i64, {count, 2}, scalers.clean)});
  write_checkpoint(path, tensors, fingerprint());
}

void ParallelTrainer::resume(const std::filesystem::path& path) {
  require_all_ranks();
  const SafetensorsFile file(path);
  const std::string name = path.string();
  require_checkpoint(name, file, fingerprint());
  const std::vector<NamedTensor> first = tensors_of(file.tensors(), 0, {});
  for (std::size_t rank = 0; rank < trainers_.size(); ++rank)
    trainers_[rank]->restore_state(name, rank == 0 || !owner_.empty()
                                             ? tensors_of(file.tensors(), rank, {})
                                             : tensors_of(file.tensors(), rank, first));
  reducer_.set_scalers(scalers_of(name, file, reducer_.scalers()));
  send_weights();
}

}  // namespace fp8lab::train
