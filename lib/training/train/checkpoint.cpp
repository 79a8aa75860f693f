// Checkpoints in files and snapshots in memory, and the text that tells runs apart.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <nlohmann/json.hpp>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/io/checksum.hpp"
#include "fp8lab/io/safetensors.hpp"
#include "training/train/checkpoint_file.hpp"
#include "training/train/trainer.hpp"

namespace fp8lab::train {
namespace {

constexpr const char* kStep = "trainer.step";
constexpr const char* kFingerprint = "fingerprint";
constexpr const char* kAmaxes = ".amaxes";
constexpr const char* kVersionKey = "fp8lab.checkpoint";
constexpr const char* kVersion = "2";
constexpr const char* kChecksum = "crc32";
constexpr std::int64_t kMostSteps = 1'000'000'000;

std::string text_of(const Recipe& r) {
  return fmt::format(
      "{}/{}/{}/{}x{}/{}/{:a}/{}-{}-{}-{}-{}-{:a}/{}-{:a}-{}-{}/{}", format(r.format).name,
      to_string(r.rule), static_cast<int>(r.source), r.row_block, r.k_block, r.power_of_two,
      r.amax_floor, to_string(r.policy.rounding), static_cast<int>(r.policy.overflow),
      static_cast<int>(r.policy.subnormals), to_string(r.policy.infinity), to_string(r.policy.nan),
      r.policy.max_magnitude, r.delayed.history, r.delayed.margin, to_string(r.delayed.algorithm),
      static_cast<int>(r.delayed.zero_amax), r.window);
}

std::string text_of(const GemmSettings& s) {
  std::string accumulator;
  for (const ModelParameter& one : parameters_of(s.accumulator))
    // As in checkpoints from before there was this parameter.
    if (one.name != "zero_sign" || s.accumulator.zero_sign != ZeroSign::kept)
      accumulator += (accumulator.empty() ? "" : "-") + one.text;
  return fmt::format("{}/{}/{}/{}", to_string(s.arithmetic), accumulator, s.promotion_interval,
                     to_string(s.scale_order));
}

nlohmann::json json_of(const LinearRecipe& r) {
  nlohmann::json json{{"activation", text_of(r.activation)}, {"weight", text_of(r.weight)},
                      {"gradient", text_of(r.gradient)},     {"forward", text_of(r.forward)},
                      {"dgrad", text_of(r.dgrad)},           {"wgrad", text_of(r.wgrad)},
                      {"bf16_outputs", r.bf16_outputs}};
  if (r.gradient_clip > 0.0) json["gradient_clip"] = r.gradient_clip;
  if (r.weight_for_dgrad) json["weight_for_dgrad"] = text_of(*r.weight_for_dgrad);
  if (r.activation_for_wgrad) json["activation_for_wgrad"] = text_of(*r.activation_for_wgrad);
  if (r.gradient_for_wgrad) json["gradient_for_wgrad"] = text_of(*r.gradient_for_wgrad);
  return json;
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
  const auto here = parse_json<nlohmann::json>(expected, path);
  const auto read = parse_if_json<nlohmann::json>(got, path);
  if (!read) throw Error(path, "a checkpoint of a training run", "'" + got.substr(0, 200) + "'");
  const nlohmann::json& there = *read;
  const nlohmann::json difference = nlohmann::json::diff(here, there);
  if (difference.empty()) return;
  const nlohmann::json::json_pointer at(difference[0]["path"].get<std::string>());
  const auto text = [&](const nlohmann::json& j) {
    return j.contains(at) ? json_text(j[at]) : "none";
  };
  throw Error(fmt::format("{}: {}", path, at.to_string()), text(here), text(there));
}

/// Of everything in a checkpoint, in the order of the names.
std::string checksum_of(std::vector<NamedTensor> tensors, std::string_view fingerprint) {
  std::sort(tensors.begin(), tensors.end(),
            [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
  std::deque<std::string> heads;
  std::vector<std::string_view> parts{kVersion, "\n", fingerprint, "\n"};
  for (const NamedTensor& item : tensors) {
    heads.push_back(fmt::format("{} {} {}\n", item.name, to_string(item.tensor.type),
                                shape_text(item.tensor.shape)));
    parts.push_back(heads.back());
    parts.emplace_back(reinterpret_cast<const char*>(item.tensor.bytes.data()),
                       item.tensor.bytes.size());
  }
  return crc32_text(parts);
}

const std::string& metadata_of(const std::string& path, const SafetensorsFile& file,
                               const char* key) {
  const auto found = file.metadata().find(key);
  require(found != file.metadata().end(), path, "a checkpoint of a training run",
          fmt::format("no {}", key));
  return found->second;
}

/// Throws `Error` unless the file is as it was written. Its fingerprint.
const std::string& require_whole(const std::string& path, const SafetensorsFile& file) {
  const std::string& fingerprint = metadata_of(path, file, kFingerprint);
  const auto version = file.metadata().find(kVersionKey);
  if (version == file.metadata().end() || version->second != kVersion)
    throw Error(path,
                fmt::format("a checkpoint of format {} (start again with another file, or finish "
                            "with the version that wrote this one)",
                            kVersion),
                version == file.metadata().end() ? "format 1, which has no checksum"
                                                 : fmt::format("'{}'", version->second));
  const std::string& expected = metadata_of(path, file, kChecksum);
  const std::string got = checksum_of(file.tensors(), fingerprint);
  require(got == expected, path + ": crc32", expected + " as recorded (the file is damaged)", got);
  return fingerprint;
}

}  // namespace

void write_checkpoint(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                      const std::string& fingerprint) {
  const std::string checksum = checksum_of(tensors, fingerprint);
  write_safetensors(path, tensors,
                    {{kFingerprint, fingerprint}, {kVersionKey, kVersion}, {kChecksum, checksum}});
}

void require_checkpoint(const std::string& path, const SafetensorsFile& file,
                        const std::string& fingerprint) {
  require_same(path, fingerprint, require_whole(path, file));
}

namespace {

std::int64_t step_of(const std::string& path, const TensorView& tensor) {
  std::int64_t step = 0;
  require(tensor.type == ElementType::i64 && tensor.bytes.size() == sizeof step,
          path + ": " + kStep, "one i64",
          fmt::format("{} {}", to_string(tensor.type), shape_text(tensor.shape)));
  std::memcpy(&step, tensor.bytes.data(), sizeof step);
  require(step >= 0 && step <= kMostSteps, path + ": " + kStep, fmt::format("0 to {}", kMostSteps),
          fmt::format("{}", step));
  return step;
}

const TensorView& tensor_of(const std::string& path, std::span<const NamedTensor> tensors,
                            const std::string& name) {
  const auto found = std::ranges::find(tensors, name, &NamedTensor::name);
  if (found == tensors.end()) throw Error(path, "a tensor " + name, "none");
  return found->tensor;
}

std::vector<float> amaxes_of(const std::string& path, std::span<const NamedTensor> tensors,
                             const std::string& name) {
  std::vector<float> amaxes = to_float(tensor_of(path, tensors, name));
  const std::string where = fmt::format("{}: {}", path, name);
  for (const float amax : amaxes)
    require(!(amax < 0.0F), where, "numbers that are not negative", fmt::format("{}", amax));
  return amaxes;
}

}  // namespace

std::string describe(const TrainerOptions& o) {
  nlohmann::json text{
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
  for (const auto& [name, recipe] : o.recipe.layers) text["layers"][name] = json_of(recipe);
  return json_text(text);
}

std::string Trainer::fingerprint() const {
  const nlohmann::json fingerprint{
      {"options", parse_json<nlohmann::json>(describe(options_), "options")},
      {"data", data_->identity()}};
  return json_text(fingerprint);
}

void Trainer::require_all_states(std::string_view what) const {
  require(updated_.size() == model_->parameters().size(), what, "a trainer that holds all states",
          fmt::format("one with {} of {}", updated_.size(), model_->parameters().size()));
}

std::vector<NamedTensor> Trainer::state() const {
  std::vector<NamedTensor> tensors = optimizer_->state();
  tensors.push_back({kStep, view_of<std::int64_t>(ElementType::i64, {}, {&steps_, 1})});
  for (const OperandCast* cast : model_->casts()) {
    if (!cast->has_past()) continue;
    const std::vector<float>& amaxes = cast->amaxes();
    tensors.push_back(
        {cast->name() + kAmaxes,
         view_of<float>(ElementType::f32, {static_cast<std::int64_t>(amaxes.size())}, amaxes)});
  }
  return tensors;
}

void Trainer::restore_state(const std::string& where, std::span<const NamedTensor> tensors) {
  const std::int64_t step = step_of(where, tensor_of(where, tensors, kStep));
  optimizer_->restore(tensors);
  for (OperandCast* cast : model_->casts())
    if (cast->has_past()) cast->restore(amaxes_of(where, tensors, cast->name() + kAmaxes));
  steps_ = step;
  load_weights();
}

void Trainer::take_over(const Trainer& other) {
  const AdamWOptions& own = options_.optimizer;
  for (const StateFormat& format : {own.master, own.m, own.v})
    require(format == StateFormat{}, "states", "f32", fp8lab::describe(format));
  require(updated_.size() == other.updated_.size(), "model", "one of as many parameters",
          fmt::format("{} for {}", other.updated_.size(), updated_.size()));
  std::deque<std::vector<float>> values;
  std::vector<NamedTensor> tensors = other.optimizer_->state();
  std::erase_if(tensors, [](const NamedTensor& t) { return t.name != "optimizer.steps"; });
  for (std::size_t i = 0; i < updated_.size(); ++i) {
    const Parameter<float>& p = *updated_[i];
    require(p.shape == other.updated_[i]->shape, p.name, shape_text(p.shape),
            shape_text(other.updated_[i]->shape));
    const auto add = [&](const char* state, auto copy) {
      values.emplace_back(p.value.size());
      (other.optimizer_.get()->*copy)(i, values.back());
      tensors.push_back({p.name + state, view_of<float>(ElementType::f32, p.shape, values.back())});
    };
    add(".master", &AdamW::copy_weights);
    add(".m", &AdamW::copy_m);
    add(".v", &AdamW::copy_v);
  }
  optimizer_->restore(tensors);
  steps_ = other.steps_;
  load_weights();
}

void Trainer::save(const std::filesystem::path& path) const {
  require_all_states("checkpoint");
  write_checkpoint(path, state(), fingerprint());
}

void Trainer::resume(const std::filesystem::path& path) {
  require_all_states("checkpoint");
  const SafetensorsFile file(path);
  require_checkpoint(path.string(), file, fingerprint());
  restore_state(path.string(), file.tensors());
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
