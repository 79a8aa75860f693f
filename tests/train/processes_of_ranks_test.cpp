// Ranks of a run in several processes, one after the other: each gets the messages that the others
// sent in a run with all ranks in one process, and must train as its ranks did there.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "io/temporary.hpp"
#include "train/same_bits.hpp"
#include "training/train/parallel_trainer.hpp"
#include "training/train/systems.hpp"

using namespace fp8lab;
using namespace fp8lab::train;

namespace {

/// What was sent in one operation, by sender and receiver, and its outcome over all ranks.
struct KeptOperation {
  std::map<std::pair<int, int>, std::vector<Message>> sent;
  Outcome outcome;
};

/// All ranks, whose operations are kept; or some, which get from `others` what they do not send.
class KeepingFabric final : public Fabric {
 public:
  explicit KeepingFabric(RankSpan hosted, std::vector<KeptOperation> others = {})
      : operations(others.begin(), others.end()), hosted_(hosted), replays_(!others.empty()) {}
  [[nodiscard]] RankSpan hosted(int) const override { return hosted_; }
  std::unique_ptr<Transport> open(int) override {
    if (!replays_) operations.emplace_back();
    REQUIRE(at_ < operations.size());
    return std::make_unique<Kept>(*this, operations[at_++]);
  }
  Outcome combine(const Outcome& local) override {
    if (!replays_) operations[at_ - 1].outcome = local;
    return operations[at_ - 1].outcome;
  }
  [[nodiscard]] bool concurrent() const override { return false; }

  std::vector<KeptOperation> operations;
  std::int64_t wrong = 0;  ///< messages that are not those of the ranks in one process

 private:
  class Kept final : public Transport {
   public:
    Kept(KeepingFabric& fabric, KeptOperation& operation)
        : fabric_(fabric), operation_(operation) {}
    void send(int from, int to, std::span<const std::byte> data) override {
      const Message message(data.begin(), data.end());
      std::vector<Message>& queue = operation_.sent[{from, to}];
      if (!fabric_.replays_) {
        queue.push_back(message);
        return;
      }
      std::size_t& next = sent_[{from, to}];
      if (next == queue.size() || queue[next++] != message) ++fabric_.wrong;
    }
    bool try_receive(int from, int to, Message& message) override {
      const std::vector<Message>& queue = operation_.sent[{from, to}];
      std::size_t& next = received_[{from, to}];
      if (next == queue.size()) return false;
      message = queue[next++];
      return true;
    }
    void wait() override { throw Error("collective: nothing to wait for"); }
    void finish() override {}

   private:
    KeepingFabric& fabric_;
    KeptOperation& operation_;
    std::map<std::pair<int, int>, std::size_t> sent_;
    std::map<std::pair<int, int>, std::size_t> received_;
  };

  RankSpan hosted_;
  bool replays_;
  std::size_t at_ = 0;
};

constexpr int kProcessRanks = 3;

TrainerOptions process_options(const TrainingSystem& system) {
  TrainerOptions options;
  options.model = TransformerShape{
      .vocabulary = 32, .length = 8, .width = 16, .layers = 1, .heads = 2, .hidden = 16};
  options.recipe.blocks = system.blocks;
  options.optimizer = system.optimizer;
  options.sequences = 1;
  options.length = 8;
  options.schedule = {.peak = 3e-3, .warmup = 1, .steps = 6};
  return options;
}

/// Losses, norms and weights of four steps, the third of which is left out.
struct ProcessRun {
  std::vector<double> figures;
  std::vector<float> weights;
  RankMemory memory;
};

ProcessRun run_process(Fabric& fabric, const char* name, const std::string& file = {}) {
  const TrainingSystem& system = find_training_system(name, "system");
  ParallelOptions options{system.reduction, system.whole_tensor_zero};
  options.reduction.ranks = kProcessRanks;
  ParallelTrainer trainer(fabric, process_options(system),
                          synthetic_language({.vocabulary = 32}, 1), options);
  ProcessRun run;
  for (int i = 0; i < 4; ++i) {
    if (i == 2) {
      trainer.skip_step();
      continue;
    }
    const StepRecord record = trainer.step({}, true);
    run.figures.insert(run.figures.end(), {static_cast<double>(record.step), record.loss});
    CHECK(trainer.steps_done() == i + 1);
  }
  for (const auto* p : trainer.first().model().parameters())
    run.weights.insert(run.weights.end(), p->value.begin(), p->value.end());
  run.memory = trainer.memory();
  const bool all = fabric.hosted(kProcessRanks).count == kProcessRanks;
  if (file.empty() || all) return run;
  const std::string refused =
      fmt::format("checkpoint: expected all 3 ranks in this process, got {}",
                  fabric.hosted(kProcessRanks).count);
  CHECK_THROWS_WITH(trainer.save(file), refused);
  CHECK_THROWS_WITH(trainer.resume(file), refused);
  return run;
}

}  // namespace

TEST_CASE("a process trains as its ranks do beside all others", "[train]") {
  const TemporaryFolder folder("processes");
  const std::string file = (folder / "run.safetensors").string();
  for (const char* name : {"fp8-lm", "bf16-fp32"}) {
    KeepingFabric all({0, kProcessRanks});
    const ProcessRun whole = run_process(all, name);
    for (const RankSpan hosted : {RankSpan{0, 1}, {1, 1}, {2, 1}, {0, 2}, {1, 2}, {3, 0}}) {
      INFO(name << ": " << hosted.count << " ranks from " << hosted.first << " on");
      KeepingFabric process(hosted, all.operations);
      const ProcessRun run = run_process(process, name, file);
      CHECK(process.wrong == 0);
      CHECK(run.memory.largest == whole.memory.largest);
      CHECK(run.memory.smallest == whole.memory.smallest);
      CHECK(run.memory.total == whole.memory.total);
      if (hosted.count == 0) continue;  // it has the shapes, but no batches
      CHECK(run.figures == whole.figures);
      CHECK(same_bits(run.weights, whole.weights));
    }
  }
}
