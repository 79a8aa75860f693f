#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "command.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/io/output_file.hpp"
#include "json_number.hpp"
#include "train_log.hpp"
#include "train_options.hpp"
#include "training/train/guard.hpp"
#include "training/train/monitor.hpp"

namespace fp8lab::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// One line on a terminal that is drawn over; a line every tenth elsewhere.
class StepProgress {
 public:
  StepProgress(std::int64_t first, std::int64_t steps, std::int64_t tokens_per_step)
      : first_(first), steps_(steps), tokens_(tokens_per_step) {}
  ~StepProgress() {
    if (terminal_) fmt::print(stderr, "\r\033[K");
  }
  StepProgress(const StepProgress&) = delete;
  StepProgress& operator=(const StepProgress&) = delete;

  void show(std::int64_t done, double loss) const {
    const double seconds = seconds_since(start_);
    const auto run = static_cast<double>(done - first_);
    if (!terminal_ && done % std::max<std::int64_t>(1, steps_ / 10) != 0) return;
    fmt::print(stderr, "{}step {}/{}  loss {:.4f}  {:.0f} tokens/s  {:.0f} s left{}",
               terminal_ ? "\r\033[K" : "", done, steps_, loss,
               run * static_cast<double>(tokens_) / seconds,
               seconds / run * static_cast<double>(steps_ - done), terminal_ ? "" : "\n");
    std::fflush(stderr);
  }

 private:
  std::int64_t first_;
  std::int64_t steps_;
  std::int64_t tokens_;
  bool terminal_ = isatty(STDERR_FILENO) != 0;
  Clock::time_point start_ = Clock::now();
};

/// What became of a run.
struct TrainOutcome {
  std::vector<train::StepRecord> records;
  std::string ended;  ///< why before the last step; empty: it got there
  double rise = 0.0;
  bool diverged = false;
  std::int64_t rollbacks = 0;
  std::int64_t skipped = 0;
};

/// One trainer, with a guard or without, or several ranks.
class Run {
 public:
  explicit Run(const TrainOptions& o) : options_(o) {
    const std::shared_ptr<const train::DataSource> data =
        o.text.empty() ? train::synthetic_language({.vocabulary = o.shape.vocabulary}, o.seed)
                       : train::text_file(o.text, o.seed);
    const std::optional<train::ParallelOptions> ranks = parallel_options(o);
    const std::optional<train::ShadowOptions> shadow = shadow_options(o);
    if (shadow)
      shadowed_ = std::make_unique<train::ShadowedTrainer>(trainer_options(o), data, *shadow);
    else if (ranks)
      parallel_ = std::make_unique<train::ParallelTrainer>(in_process_fabric(), trainer_options(o),
                                                           data, *ranks);
    else
      single_ = std::make_unique<train::Trainer>(trainer_options(o), data);
    if (!o.checkpoint.empty() && std::filesystem::exists(o.checkpoint)) resume();
    if (o.guard)
      guard_ = std::make_unique<train::NanGuard>(
          parallel_ ? train::guarded_run(*parallel_, look_) : train::guarded_run(*single_),
          train::GuardOptions{.snapshot_every = *o.guard});
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  train::GuardedStep step(const train::PassContext& context, bool look) {
    look_ = look;
    if (shadowed_) return {shadowed_->step(context).record, train::GuardOutcome::taken};
    if (guard_) return guard_->step(context);
    if (parallel_) return {parallel_->step(context, look), train::GuardOutcome::taken};
    return {single_->step(context), train::GuardOutcome::taken};
  }
  void save() const {
    if (options_.checkpoint.empty()) return;
    if (parallel_)
      parallel_->save(options_.checkpoint);
    else
      single_->save(options_.checkpoint);
  }
  [[nodiscard]] train::Trainer& trainer() const {
    if (shadowed_) return shadowed_->trainer();
    return parallel_ ? parallel_->first() : *single_;
  }
  [[nodiscard]] std::int64_t steps_done() const { return trainer().steps_done(); }
  [[nodiscard]] const train::ParallelTrainer* parallel() const { return parallel_.get(); }
  [[nodiscard]] const train::NanGuard* guard() const { return guard_.get(); }
  [[nodiscard]] const train::ShadowedTrainer* shadowed() const { return shadowed_.get(); }
  /// Of the last step; none if the kill switch did nothing at it.
  [[nodiscard]] const train::KillEvent* event_at(std::int64_t step) const {
    const bool acted = shadowed_ && !shadowed_->events().empty();
    return acted && shadowed_->events().back().step == step ? &shadowed_->events().back() : nullptr;
  }

 private:
  void resume() {
    if (parallel_)
      parallel_->resume(options_.checkpoint);
    else
      single_->resume(options_.checkpoint);
  }

  const TrainOptions& options_;
  bool look_ = false;  ///< whether reductions of this step are compared
  std::unique_ptr<train::Trainer> single_;
  std::unique_ptr<train::ParallelTrainer> parallel_;
  std::unique_ptr<train::NanGuard> guard_;
  std::unique_ptr<train::ShadowedTrainer> shadowed_;
};

std::string text_of(const train::KillEvent& event) {
  const bool gap = event.indicator == Indicator::loss_gap;
  return fmt::format("the {} is {:.3g} {} at step {}", to_string(event.indicator), event.value,
                     gap ? "nats above the BF16 run's" : "times the BF16 run's", event.step);
}

/// Takes the steps; what they leave goes to `rows`, and to the log once it counts.
class Loop {
 public:
  Loop(Run& run, const TrainOptions& o, train::TrainingMonitor& monitor, TrainLog& log,
       TensorTrace& trace)
      : run_(run),
        options_(o),
        monitor_(monitor),
        log_(log),
        trace_(trace),
        watch_(divergence_options(o)),
        gradient_scale_(gradient_scale_rule(o)),
        progress_(run.steps_done(), o.schedule.steps, run.trainer().tokens_per_step() * o.ranks),
        logged_(run.steps_done()) {
    if (!o.log.empty()) monitor_.log_to(&rows_);
  }

  /// Runs until the last step, or to where the run has diverged.
  TrainOutcome take_steps() {
    while (outcome_.ended.empty() && run_.steps_done() < options_.schedule.steps) take_step();
    outcome_.rise = watch_.rise();
    outcome_.diverged = !outcome_.ended.empty() || watch_.diverged();
    if (const train::NanGuard* guard = run_.guard()) {
      outcome_.rollbacks = guard->rollbacks();
      outcome_.skipped = guard->skipped_steps();
    }
    log_.close();
    trace_.close();
    return std::move(outcome_);
  }

 private:
  void take_step() {
    const std::int64_t step = run_.steps_done();
    // A step that is taken again leaves the rows that it left before.
    const bool again = step < logged_;
    const bool look = !again && step % options_.monitor_every == 0;
    train::PassContext context{.threads = options_.threads, .on_cast = {}};
    const bool traced = !again && trace_.takes(step);
    if (look || traced)
      context.on_cast = [&](std::string_view name, const FloatMatrix& x, const QuantizedTensor& q) {
        if (look) monitor_.observe(name, x, q);
        if (traced) trace_.add(step, name, x);
      };
    monitor_.set_step(step);
    rows_.str({});
    train::GuardedStep taken;
    try {
      taken = run_.step(context, look);
    } catch (const Error& error) {
      if (run_.guard() == nullptr) throw;
      outcome_.ended = error.what();  // the guard gave up
      return;
    }
    if (taken.outcome == train::GuardOutcome::rolled_back || again) return;
    if (taken.outcome == train::GuardOutcome::skipped)
      monitor_.end_step({{"skipped", 1.0}});
    else
      note(taken.record);
    if (look && gradient_scale_) run_.trainer().set_loss_scale(gradient_scale_->update(monitor_));
    logged_ = run_.steps_done();
    log_.write(rows_.str());
    const bool due = logged_ == options_.schedule.steps || logged_ % options_.save_every == 0;
    if (due && outcome_.ended.empty()) {
      log_.flush();
      run_.save();
    }
  }

  void note(const train::StepRecord& r) {
    outcome_.records.push_back(r);
    watch_.observe(r.loss);
    monitor_.end_step(
        {{"loss", r.loss}, {"gradient_norm", r.gradient_norm}, {"learning_rate", r.learning_rate}});
    progress_.show(run_.steps_done(), r.loss);
    const train::KillEvent* event = run_.event_at(r.step);
    if (event != nullptr && event->action == KillAction::stop)
      outcome_.ended = "kill switch: " + text_of(*event);
    else if (event == nullptr && !std::isfinite(r.loss))
      outcome_.ended = fmt::format("the loss of step {} is not finite", r.step);
    else if (options_.stop_when && watch_.diverged())
      outcome_.ended = fmt::format(
          "at step {} the loss is {:.4g} nats above its lowest value; the limit is {:g}", r.step,
          watch_.rise(), *options_.stop_when);
  }

  Run& run_;
  const TrainOptions& options_;
  train::TrainingMonitor& monitor_;
  TrainLog& log_;
  TensorTrace& trace_;
  std::ostringstream rows_;
  train::DivergenceWatch watch_;
  std::optional<train::GradientScaleRule> gradient_scale_;
  StepProgress progress_;
  TrainOutcome outcome_;
  std::int64_t logged_;  ///< steps whose rows are written
};

void print_ranks(const train::ParallelTrainer& ranks) {
  const train::GradientReducer& r = ranks.reducer();
  const train::ReductionOptions& o = r.options();
  fmt::print(
      "{}, gradients {} {}: {:.1f} dB, {:.3g} % underflow, {:.3g} % saturated, smallest mu "
      "{:.4g}\n",
      counted(o.ranks, "rank"), o.wire.name, to_string(o.scaling), r.sqnr_db(),
      r.underflow_percent(), r.saturated_percent(), r.smallest_mu());
  fmt::print("{} bytes sent by the busiest rank, states of {} to {} bytes per rank\n",
             r.bytes_sent(), ranks.memory().smallest, ranks.memory().largest);
}

void print_events(const train::ShadowedTrainer& run) {
  if (run.events().empty()) fmt::print("kill switch: no alarm\n");
  for (const train::KillEvent& event : run.events())
    fmt::print("kill switch: {}: {}\n", text_of(event),
               event.action == KillAction::stop
                   ? "the run ends"
                   : fmt::format("back to the state after {}, {}", counted(event.back_to, "step"),
                                 event.action == KillAction::bf16 ? "and on in BF16"
                                                                  : "without the batches since"));
}

nlohmann::json json_of(const train::ShadowedTrainer& run) {
  nlohmann::json events = nlohmann::json::array();
  for (const train::KillEvent& event : run.events())
    events.push_back({{"step", event.step},
                      {"indicator", to_string(event.indicator)},
                      {"value", json_number(event.value)},
                      {"action", to_string(event.action)},
                      {"back_to", event.back_to}});
  return events;
}

void print_for_people(const Run& run, const TrainOutcome& outcome, const TrainOptions& o,
                      const train::TrainingMonitor& monitor) {
  constexpr std::size_t kMostWarnings = 10;
  const std::vector<train::StepRecord>& records = outcome.records;
  fmt::print("{} parameters, {} of {} steps done\n", run.trainer().parameter_count(),
             run.steps_done(), o.schedule.steps);
  if (!records.empty())
    fmt::print("loss {:.4f} at step {}, {:.4f} at step {}\n", records.front().loss,
               records.front().step, records.back().loss, records.back().step);
  if (run.parallel() != nullptr) print_ranks(*run.parallel());
  if (run.guard() != nullptr)
    fmt::print("{} rollbacks to a snapshot, {} steps left out\n", outcome.rollbacks,
               outcome.skipped);
  if (run.shadowed() != nullptr) print_events(*run.shadowed());
  if (o.raise_gradient_scale)
    fmt::print("loss scale {:g} at the start, {:g} at the end\n", o.loss_scale,
               run.trainer().options().loss_scale);
  fmt::print("{} warnings\n", monitor.warnings().size());
  for (std::size_t i = 0; i < std::min(kMostWarnings, monitor.warnings().size()); ++i) {
    const train::MonitorWarning& w = monitor.warnings()[i];
    fmt::print("  step {}: {}: {} {:.4g} above {:.4g}\n", w.step, w.tensor, to_string(w.kind),
               w.value, w.threshold);
  }
  if (outcome.diverged)
    fmt::print("diverged: {}\n",
               !outcome.ended.empty()
                   ? outcome.ended
                   : fmt::format(
                         "it ends {:.4g} nats above its lowest loss or the loss of a uniform guess",
                         outcome.rise));
}

nlohmann::json json_of(const Run& run, const TrainOutcome& outcome, const TrainOptions& o,
                       const train::TrainingMonitor& monitor) {
  nlohmann::json losses = nlohmann::json::array();
  for (const train::StepRecord& r : outcome.records) losses.push_back(json_number(r.loss));
  nlohmann::json json{{"parameters", run.trainer().parameter_count()},
                      {"steps_done", run.steps_done()},
                      {"losses", losses},
                      {"warnings", monitor.warnings().size()},
                      {"diverged", outcome.diverged},
                      {"rise", json_number(outcome.rise)}};
  if (!outcome.ended.empty()) json["ended"] = outcome.ended;
  if (run.guard() != nullptr) {
    json["rollbacks"] = outcome.rollbacks;
    json["skipped"] = outcome.skipped;
  }
  if (o.raise_gradient_scale) json["loss_scale"] = run.trainer().options().loss_scale;
  if (run.shadowed() != nullptr) json["kill_switch"] = json_of(*run.shadowed());
  if (const train::ParallelTrainer* ranks = run.parallel()) {
    const train::GradientReducer& r = ranks->reducer();
    json["ranks"] = {{"count", r.options().ranks},
                     {"wire", r.options().wire.name},
                     {"scaling", to_string(r.options().scaling)},
                     {"sqnr_db", json_number(r.sqnr_db())},
                     {"underflow_percent", r.underflow_percent()},
                     {"saturated_percent", r.saturated_percent()},
                     {"smallest_mu", r.smallest_mu()},
                     {"bytes_sent", r.bytes_sent()},
                     {"state_bytes_largest", ranks->memory().largest},
                     {"state_bytes_smallest", ranks->memory().smallest},
                     {"state_bytes_total", ranks->memory().total}};
  }
  return json;
}

/// Two runs that wrote one file would each lose what the other wrote.
struct TrainLocks {
  explicit TrainLocks(const TrainOptions& o) {
    if (!o.log.empty()) log.emplace(o.log);
    if (!o.trace.empty()) require_writable_file(o.trace);
    if (o.checkpoint.empty()) return;
    checkpoint.emplace(o.checkpoint);
    require_writable_file(o.checkpoint);
  }

  std::optional<OutputLock> log;
  std::optional<OutputLock> checkpoint;
};

int run(TrainOptions o) {
  if (o.attribute) {
    o.threads = team_size(o.threads);
    return run_attribution(o);
  }
  const TrainLocks locks(o);
  o.threads = team_size(o.threads);
  Run trained(o);
  train::TrainingMonitor monitor(monitor_options(o), trained.steps_done());
  TrainLog log(o.log, trained.steps_done());
  TensorTrace trace(o.trace, o.schedule.steps);
  const TrainOutcome outcome = Loop(trained, o, monitor, log, trace).take_steps();
  if (o.json)
    fmt::print("{}\n", json_text(json_of(trained, outcome, o, monitor), 2));
  else
    print_for_people(trained, outcome, o, monitor);
  return outcome.diverged ? kMismatch : kPass;
}

}  // namespace

void add_train(Command& app, Action& action) {
  auto o = std::make_shared<TrainOptions>();
  Command* command = app.add_subcommand(
      "train",
      "Train a small transformer whose matrix products are emulated under a recipe; exit code 1 if "
      "it diverges");
  add_train_options(*command, *o);
  command->callback([o, &action] { action = [o] { return run(*o); }; });
}

}  // namespace fp8lab::cli
