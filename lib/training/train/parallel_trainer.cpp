#include "training/train/parallel_trainer.hpp"

#include <algorithm>

namespace fp8lab::train {
namespace {

// A process without ranks takes part in every operation and needs the shapes.
std::vector<std::unique_ptr<Trainer>> make_trainers(int hosted, const TrainerOptions& options,
                                                    const std::shared_ptr<const DataSource>& data) {
  std::vector<std::unique_ptr<Trainer>> trainers;
  for (int i = 0; i < std::max(1, hosted); ++i)
    trainers.push_back(std::make_unique<Trainer>(options, data));
  return trainers;
}

/// Bytes of a tensor's master weight and moments, with their scales.
std::int64_t state_bytes(const AdamWOptions& options, std::size_t elements) {
  std::size_t bytes = 0;
  for (const StateFormat& format : {options.master, options.m, options.v}) {
    const StateTensor state(format, elements);
    bytes += state.code_bytes() + state.scale_bytes();
  }
  return static_cast<std::int64_t>(bytes);
}

}  // namespace

ParallelTrainer::ParallelTrainer(Fabric& fabric, const TrainerOptions& trainer,
                                 const std::shared_ptr<const DataSource>& data,
                                 const ParallelOptions& options)
    : fabric_(fabric),
      options_(options),
      hosted_(fabric.hosted(options.reduction.ranks)),
      trainers_(make_trainers(hosted_.count, trainer, data)),
      reducer_(fabric, options.reduction, first().model().parameters().size()) {
  share_states();
}

void ParallelTrainer::share_states() {
  std::vector<std::int64_t> bytes;
  for (const Parameter<float>* p : first().model().parameters())
    bytes.push_back(state_bytes(first().options().optimizer, p->value.size()));
  const auto ranks = static_cast<std::int64_t>(options_.reduction.ranks);
  const std::int64_t whole = partition_whole_tensors(bytes, 1).largest();
  memory_ = {whole, whole, whole * ranks};
  if (!options_.whole_tensor_zero) return;
  const Partition partition = partition_whole_tensors(bytes, ranks);
  owner_ = partition.rank_of;
  memory_ = {partition.largest(), partition.smallest(), whole};
  for (int i = 0; i < hosted_.count; ++i) {
    const auto rank = static_cast<std::size_t>(hosted_.first) + static_cast<std::size_t>(i);
    std::vector<bool> kept(owner_.size());
    for (std::size_t t = 0; t < owner_.size(); ++t) kept[t] = owner_[t] == rank;
    trainers_[static_cast<std::size_t>(i)]->keep_states(kept);
  }
}

std::vector<std::span<float>> ParallelTrainer::gradients(std::size_t tensor) {
  std::vector<std::span<float>> all;
  for (int i = 0; i < hosted_.count; ++i)
    all.emplace_back(
        trainers_[static_cast<std::size_t>(i)]->model().parameters()[tensor]->gradient);
  return all;
}

/// Owners' new weights to everyone, by a sum in which all others give -0, which changes no bit.
void ParallelTrainer::send_weights() {
  const WireFormat& wire = find_wire_format("f32");
  for (std::size_t tensor = 0; tensor < owner_.size(); ++tensor) {
    const std::size_t elements = first().model().parameters()[tensor]->value.size();
    const std::vector<float> nothing(elements, -0.0F);
    RankBuffers buffers;
    for (int i = 0; i < hosted_.count; ++i) {
      const auto rank = static_cast<std::size_t>(hosted_.first) + static_cast<std::size_t>(i);
      const Parameter<float>* p =
          trainers_[static_cast<std::size_t>(i)]->model().parameters()[tensor];
      buffers.emplace_back(elements * wire.bytes);
      to_wire(wire, owner_[tensor] == rank ? p->value : nothing, 1.0F, buffers.back());
    }
    all_reduce(fabric_,
               {Topology::direct, {wire, ReduceOp::sum}, options_.reduction.ranks, elements},
               buffers);
    for (std::size_t i = 0; i < buffers.size(); ++i)
      from_wire(wire, buffers[i], 1.0F, trainers_[i]->model().parameters()[tensor]->value);
  }
}

StepRecord ParallelTrainer::step(const PassContext& context, bool look) {
  return apply_gradients(compute_gradients(context, look));
}

double ParallelTrainer::compute_gradients(const PassContext& context, bool look) {
  const std::int64_t step = steps_done();
  PassContext silent = context;
  silent.on_cast = {};
  std::vector<float> losses;
  for (int i = 0; i < hosted_.count; ++i)
    losses.push_back(static_cast<float>(trainers_[static_cast<std::size_t>(i)]->compute_gradients(
        step * options_.reduction.ranks + hosted_.first + i, i == 0 ? context : silent)));
  const double loss = reducer_.mean(losses);
  const std::vector<Parameter<float>*> tensors = first().model().parameters();
  for (std::size_t t = 0; t < tensors.size(); ++t)
    reducer_.reduce(t, tensors[t]->value.size(), gradients(t), look, context.backend);
  return loss;
}

StepRecord ParallelTrainer::apply_gradients(double loss) {
  StepRecord record{};
  for (int i = 0; i < hosted_.count; ++i) {
    const StepRecord one = trainers_[static_cast<std::size_t>(i)]->apply_gradients(loss);
    if (i == 0) record = one;
  }
  send_weights();
  if (hosted_.count == 0) first().skip_step();
  return record;
}

void ParallelTrainer::skip_step() {
  for (const auto& trainer : trainers_) trainer->skip_step();
}

ParallelTrainer::Snapshot ParallelTrainer::snapshot() const {
  Snapshot snapshot{{}, reducer_.scalers()};
  for (const auto& trainer : trainers_) snapshot.trainers.push_back(trainer->snapshot());
  return snapshot;
}

void ParallelTrainer::restore(const Snapshot& snapshot) {
  for (std::size_t i = 0; i < trainers_.size(); ++i) trainers_[i]->restore(snapshot.trainers[i]);
  reducer_.set_scalers(snapshot.scalers);
  send_weights();
}

}  // namespace fp8lab::train
