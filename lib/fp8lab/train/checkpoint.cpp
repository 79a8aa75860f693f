// Checkpoints in files and snapshots in memory, and the text that tells runs apart.

#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "fp8lab/train/trainer.hpp"

namespace fp8lab::train {
namespace {

constexpr const char* kStep = "trainer.step";
constexpr const char* kFingerprint = "fingerprint";
constexpr const char* kAmaxes = ".amaxes";

std::string text_of(const Recipe& r) {
  return fmt::format("{}/{}/{}/{}x{}/{}/{:a}/{}-{}-{}/{}-{:a}-{}-{}/{}", format(r.format).name,
                     to_string(r.rule), static_cast<int>(r.source), r.row_block, r.k_block,
                     r.power_of_two, r.amax_floor, to_string(r.policy.rounding),
                     static_cast<int>(r.policy.overflow), static_cast<int>(r.policy.subnormals),
                     r.delayed.history, r.delayed.margin, to_string(r.delayed.algorithm),
                     static_cast<int>(r.delayed.zero_amax), r.window);
}

std::string text_of(const GemmSettings& s) {
  return fmt::format("{}/{}-{}-{}-{}-{}-{}/{}/{}", to_string(s.arithmetic),
                     static_cast<int>(s.accumulator.kind), s.accumulator.terms,
                     s.accumulator.alignment_fraction_bits, s.accumulator.output_fraction_bits,
                     to_string(s.accumulator.rounding), s.accumulator.product_fraction_bits,
                     s.promotion_interval, to_string(s.scale_order));
}

nlohmann::json json_of(const LinearRecipe& r) {
  return {{"activation", text_of(r.activation)}, {"weight", text_of(r.weight)},
          {"gradient", text_of(r.gradient)},     {"forward", text_of(r.forward)},
          {"dgrad", text_of(r.dgrad)},           {"wgrad", text_of(r.wgrad)},
          {"bf16_outputs", r.bf16_outputs}};
}

nlohmann::json json_of(const TransformerShape& s) {
  return {"transformer",
          s.vocabulary,
          s.length,
          s.width,
          s.layers,
          s.heads,
          s.hidden,
          static_cast<int>(s.norm),
          static_cast<int>(s.activation)};
}

nlohmann::json json_of(const MlpShape& s) {
  return {"mlp", s.vocabulary, s.context, s.embedding, s.hidden, s.layers};
}

/// Throws `Error` that names the first option that differs.
void require_same(const std::string& path, const std::string& expected, const std::string& got) {
  const nlohmann::json here = nlohmann::json::parse(expected);
  const nlohmann::json there = nlohmann::json::parse(got, nullptr, false);
  if (there.is_discarded()) throw Error(path, "a checkpoint of a training run", "'" + got + "'");
  const nlohmann::json difference = nlohmann::json::diff(here, there);
  if (difference.empty()) return;
  const nlohmann::json::json_pointer at(difference[0]["path"].get<std::string>());
  const auto text = [&](const nlohmann::json& j) { return j.contains(at) ? j[at].dump() : "none"; };
  throw Error(fmt::format("{}: {}", path, at.to_string()), text(here), text(there));
}

}  // namespace

std::string describe(const TrainerOptions& o) {
  const nlohmann::json text{
      {"model", std::visit([](const auto& shape) { return json_of(shape); }, o.model)},
      {"blocks", json_of(o.recipe.blocks)},
      {"head", json_of(o.recipe.head)},
      {"outliers", {o.recipe.outliers.count, o.recipe.outliers.log2_magnitude}},
      {"optimizer",
       {fp8lab::describe(o.optimizer.master), fp8lab::describe(o.optimizer.gradient),
        fp8lab::describe(o.optimizer.m), fp8lab::describe(o.optimizer.v), o.optimizer.beta1,
        o.optimizer.beta2, o.optimizer.eps, o.optimizer.weight_decay,
        static_cast<int>(o.optimizer.decay), o.optimizer.bias_correction}},
      {"schedule", {o.schedule.peak, o.schedule.warmup, o.schedule.steps, o.schedule.final_share}},
      {"batch", {o.sequences, o.length}},
      {"clip_norm", o.clip_norm},
      {"loss_scale", o.loss_scale},
      {"seed", o.seed}};
  return text.dump();
}

std::string Trainer::fingerprint() const {
  return nlohmann::json{{"options", nlohmann::json::parse(describe(options_))},
                        {"data", data_->identity()}}
      .dump();
}

void Trainer::save(const std::filesystem::path& path) const {
  std::vector<NamedTensor> tensors = optimizer_->state();
  tensors.push_back({kStep, view_of<std::int64_t>(ElementType::i64, {}, {&steps_, 1})});
  for (const OperandCast* cast : model_->casts()) {
    if (!cast->has_past()) continue;
    const std::vector<float>& amaxes = cast->amaxes();
    tensors.push_back(
        {cast->name() + kAmaxes,
         view_of<float>(ElementType::f32, {static_cast<std::int64_t>(amaxes.size())}, amaxes)});
  }
  write_safetensors(path, std::move(tensors), {{kFingerprint, fingerprint()}});
}

void Trainer::resume(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  const auto found = file.metadata().find(kFingerprint);
  require(found != file.metadata().end(), path.string(), "a checkpoint of a training run",
          "no fingerprint");
  require_same(path.string(), fingerprint(), found->second);
  optimizer_->restore(file.tensors());
  for (OperandCast* cast : model_->casts())
    if (cast->has_past()) cast->restore(to_float(file.find(cast->name() + kAmaxes)));
  const TensorView& step = file.find(kStep);
  require(step.bytes.size() == sizeof steps_, kStep, "one 64-bit integer",
          fmt::format("{} bytes", step.bytes.size()));
  std::memcpy(&steps_, step.bytes.data(), sizeof steps_);
  load_weights();
}

std::size_t TrainerSnapshot::bytes() const {
  std::size_t bytes = sizeof steps_;
  for (const NamedTensor& tensor : optimizer_.state()) bytes += tensor.tensor.bytes.size();
  for (const OperandCast& cast : casts_) bytes += cast.amaxes().size() * sizeof(float);
  return bytes;
}

TrainerSnapshot Trainer::snapshot() const {
  TrainerSnapshot snapshot(*optimizer_, steps_, fingerprint());
  for (const OperandCast* cast : model_->casts())
    if (cast->has_past()) snapshot.casts_.push_back(*cast);
  return snapshot;
}

void Trainer::restore(const TrainerSnapshot& snapshot) {
  require_same("snapshot", fingerprint(), snapshot.fingerprint_);
  *optimizer_ = snapshot.optimizer_;
  std::size_t i = 0;
  for (OperandCast* cast : model_->casts())
    if (cast->has_past()) *cast = snapshot.casts_[i++];
  steps_ = snapshot.steps_;
  load_weights();
}

}  // namespace fp8lab::train
