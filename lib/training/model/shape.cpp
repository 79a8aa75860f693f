#include "training/model/shape.hpp"

#include <fmt/format.h>

#include <toml++/toml.h>
#include <array>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <sstream>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/toml_text.hpp"
#include "fp8lab/tensors/tensor.hpp"

namespace fp8lab {
namespace {

constexpr std::array<std::string_view, 6> kKindNames{"embedding", "norm", "attention",
                                                     "router",    "mlp",  "head"};
constexpr std::int64_t kPaddedVocabulary = 51200;

TrainingSetup gpt(const char* name, std::int64_t hidden, std::int64_t heads, std::int64_t layers,
                  const Parallelism& parallel) {
  TrainingSetup setup;
  setup.shape = {.name = name,
                 .layers = layers,
                 .hidden = hidden,
                 .heads = heads,
                 .kv_heads = heads,
                 .ffn = 4 * hidden,
                 .vocabulary = kPaddedVocabulary};
  setup.parallel = parallel;
  return setup;
}

std::vector<TrainingSetup> make_setups() {
  const ModelShape llama{.name = "llama-7b",
                         .layers = 32,
                         .hidden = 4096,
                         .heads = 32,
                         .kv_heads = 32,
                         .ffn = 11008,
                         .gated = true,
                         .vocabulary = 32000};
  ModelShape mixtral = llama;
  mixtral.name = "mixtral-8x7b";
  mixtral.kv_heads = 8;
  mixtral.ffn = 14336;
  mixtral.experts = 8;
  mixtral.active_experts = 2;
  return {gpt("125m", 768, 12, 12, {}),
          gpt("7b", 4096, 32, 32, {.data = 32, .micro_batch = 2}),
          gpt("13b", 5120, 40, 40, {.tensor = 2, .data = 16, .micro_batch = 2}),
          gpt("175b", 12288, 96, 96, {.tensor = 8, .pipeline = 4, .data = 4}),
          {llama, {}},
          {mixtral, {}}};
}

/// A TOML table whose values must all be asked for.
class Section {
 public:
  Section(const toml::table& table, std::string where) : table_(&table), where_(std::move(where)) {}

  template <class T>
  T value(std::string_view key, std::optional<T> otherwise, std::string_view type) {
    known_.emplace_back(key);
    const toml::node* node = table_->get(key);
    if (node == nullptr && otherwise) return *otherwise;
    require(node != nullptr, where_ + ": " + std::string(key), type, "nothing");
    const std::optional<T> value = node->value_exact<T>();
    require(value.has_value(), where_ + ": " + std::string(key), type, "another type");
    return *value;
  }
  std::int64_t integer(std::string_view key, std::optional<std::int64_t> otherwise = {}) {
    return value<std::int64_t>(key, otherwise, "an integer");
  }
  bool flag(std::string_view key) { return value<bool>(key, false, "true or false"); }

  void allow(std::string_view key) { known_.emplace_back(key); }

  /// Throws for a key that nobody asked for.
  void finish() const {
    for (const auto& [key, node] : *table_) {
      std::string list;
      bool found = false;
      for (const std::string& name : known_) {
        found = found || name == key.str();
        list += (list.empty() ? "" : ", ") + name;
      }
      require(found, where_, fmt::format("keys of {}", list), fmt::format("'{}'", key.str()));
    }
  }

 private:
  const toml::table* table_;
  std::string where_;
  std::vector<std::string> known_;
};

ModelShape read_shape(Section& top, const std::string& default_name) {
  ModelShape s;
  s.name = top.value<std::string>("name", default_name, "text");
  s.layers = top.integer("layers");
  s.hidden = top.integer("hidden");
  s.heads = top.integer("heads");
  s.vocabulary = top.integer("vocabulary");
  s.kv_heads = top.integer("kv_heads", s.heads);
  s.ffn = top.integer("ffn", 4 * s.hidden);
  s.gated = top.flag("gated");
  s.experts = top.integer("experts", 1);
  s.active_experts = top.integer("active_experts", 1);
  s.tied_embeddings = top.flag("tied_embeddings");
  s.sequence = top.integer("sequence", s.sequence);
  return s;
}

Parallelism read_parallelism(const toml::table& document, const std::string& where) {
  Parallelism p;
  const toml::node* node = document.get("parallel");
  if (node == nullptr) return p;
  require(node->is_table(), where + ": parallel", "a table", "another type");
  Section section(*node->as_table(), where + ": [parallel]");
  p.tensor = section.integer("tensor", 1);
  p.pipeline = section.integer("pipeline", 1);
  p.data = section.integer("data", 1);
  p.micro_batch = section.integer("micro_batch", 1);
  section.finish();
  return p;
}

toml::table parse(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  require(in.good() && text.good(), file.string(), "a file that can be read", "none");
  return parse_toml(text.str(), file.string());
}

struct NamedSize {
  std::string_view name;
  std::int64_t value;
};

void append_layer(const ModelShape& s, std::int64_t layer, std::vector<WeightTensor>& weights) {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape, WeightKind kind) {
    weights.push_back({fmt::format("{}{}.weight", prefix, name), std::move(shape), kind});
  };
  add("input_layernorm", {s.hidden}, WeightKind::norm);
  add("self_attn.q_proj", {s.hidden, s.hidden}, WeightKind::attention);
  add("self_attn.k_proj", {s.kv_size(), s.hidden}, WeightKind::attention);
  add("self_attn.v_proj", {s.kv_size(), s.hidden}, WeightKind::attention);
  add("self_attn.o_proj", {s.hidden, s.hidden}, WeightKind::attention);
  add("post_attention_layernorm", {s.hidden}, WeightKind::norm);
  if (s.experts > 1) add("mlp.gate", {s.experts, s.hidden}, WeightKind::router);
  for (std::int64_t e = 0; e < s.experts; ++e) {
    const std::string mlp = s.experts > 1 ? fmt::format("mlp.experts.{}.", e) : "mlp.";
    if (s.gated) add(mlp + "gate_proj", {s.ffn, s.hidden}, WeightKind::mlp);
    add(mlp + "up_proj", {s.ffn, s.hidden}, WeightKind::mlp);
    add(mlp + "down_proj", {s.hidden, s.ffn}, WeightKind::mlp);
  }
}

}  // namespace

std::string_view to_string(WeightKind kind) { return kKindNames[static_cast<std::size_t>(kind)]; }

std::span<const TrainingSetup> training_setups() {
  static const std::vector<TrainingSetup> kSetups = make_setups();
  return kSetups;
}

TrainingSetup find_training_setup(const std::string& name_or_file) {
  std::string known;
  for (const TrainingSetup& setup : training_setups()) {
    if (setup.shape.name == name_or_file) return setup;
    known += setup.shape.name + ", ";
  }
  require(std::filesystem::is_regular_file(name_or_file), "model",
          fmt::format("{}or a TOML file", known), fmt::format("'{}'", name_or_file));
  return read_training_setup(name_or_file);
}

TrainingSetup read_training_setup(const std::filesystem::path& file) {
  const toml::table document = parse(file);
  const std::string where = file.string();
  Section top(document, where);
  TrainingSetup setup;
  setup.shape = read_shape(top, file.stem().string());
  top.allow("parallel");
  top.finish();
  setup.parallel = read_parallelism(document, where);
  try {
    validate(setup);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", where, error.what()));
  }
  return setup;
}

void validate(const TrainingSetup& setup) {
  const ModelShape& s = setup.shape;
  const Parallelism& p = setup.parallel;
  for (const auto& [name, value] :
       std::initializer_list<NamedSize>{{"layers", s.layers},
                                        {"hidden", s.hidden},
                                        {"heads", s.heads},
                                        {"kv_heads", s.kv_heads},
                                        {"ffn", s.ffn},
                                        {"vocabulary", s.vocabulary},
                                        {"experts", s.experts},
                                        {"active_experts", s.active_experts},
                                        {"sequence", s.sequence},
                                        {"tensor", p.tensor},
                                        {"pipeline", p.pipeline},
                                        {"data", p.data},
                                        {"micro_batch", p.micro_batch}})
    require(value >= 1 && value <= std::int64_t{1} << 31, name, "1 to 2^31",
            fmt::format("{}", value));
  require(s.hidden % s.heads == 0, "heads", fmt::format("a divisor of hidden = {}", s.hidden),
          fmt::format("{}", s.heads));
  require(s.heads % s.kv_heads == 0, "kv_heads", fmt::format("a divisor of heads = {}", s.heads),
          fmt::format("{}", s.kv_heads));
  require(s.active_experts <= s.experts, "active_experts",
          fmt::format("at most experts = {}", s.experts), fmt::format("{}", s.active_experts));
  require(s.layers % p.pipeline == 0, "pipeline", fmt::format("a divisor of layers = {}", s.layers),
          fmt::format("{}", p.pipeline));
}

std::int64_t WeightTensor::size() const { return element_count(shape, name); }

std::vector<WeightTensor> weights_of(const ModelShape& s) {
  std::vector<WeightTensor> weights;
  weights.push_back({"model.embed_tokens.weight", {s.vocabulary, s.hidden}, WeightKind::embedding});
  for (std::int64_t layer = 0; layer < s.layers; ++layer) append_layer(s, layer, weights);
  weights.push_back({"model.norm.weight", {s.hidden}, WeightKind::norm});
  if (!s.tied_embeddings)
    weights.push_back({"lm_head.weight", {s.vocabulary, s.hidden}, WeightKind::head});
  return weights;
}

}  // namespace fp8lab
