#include "fp8lab/accumulate/definition.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/near_names.hpp"

namespace fp8lab {
namespace {

using enum AccumulationKind;

constexpr std::string_view kArgument = "model";
constexpr std::string_view kOutputBits = "output_fraction_bits";
constexpr std::string_view kOutputFormat = "output_format";
constexpr int kHalfFractionBits = 10;

constexpr std::array<AccumulatorKindBase, kAccumulationKinds> kKinds{
    {{fused_dot_product, "fused", "sm90.wgmma.e4m3"},
     {sequential, "", "sequential14.rne"},
     {float32, "", "fp32"},
     {exact, "", "exact"},
     {fp16_halves, "halves", "sm90.mma.e4m3"},
     {exact_dot_product, "", "gfx908.mfma.f16"},
     {flushed_pairwise_sum, "", "gfx90a.mfma.f16"},
     {two_stage_dot_product, "two_stage", "gfx942.mfma.f16"},
     {even_odd_dot_product, "even_odd", "gfx942.mfma.fp8"},
     {fused_multiply_add, "fma", "gfx942.mfma.f32"},
     {scaled_dot_product, "scaled", "sm100.tcgen05.mxf8f6f4.e4m3"},
     {scaled_group_dot_product, "scaled_group", "sm100.tcgen05.mxf4nvf4"}}};

const InstructionModel* registered(std::string_view name) {
  for (const InstructionModel& model : instruction_models())
    if (model.name == name) return &model;
  return nullptr;
}

const AccumulatorKindBase* kind_named(std::string_view name) {
  for (const AccumulatorKindBase& one : kKinds)
    if (to_string(one.kind) == name || (!one.alias.empty() && one.alias == name)) return &one;
  return nullptr;
}

/// The instruction that a definition starts from. "exact" and "float32" are found as kinds.
const InstructionModel& base_named(std::string_view name) {
  if (const InstructionModel* model = registered(name)) return *model;
  if (const AccumulatorKindBase* kind = kind_named(name)) return *registered(kind->instruction);
  std::vector<std::string_view> kinds;
  std::vector<std::string_view> all;
  for (const AccumulatorKindBase& one : kKinds) kinds.push_back(to_string(one.kind));
  for (const InstructionModel& model : instruction_models()) all.push_back(model.name);
  all.insert(all.end(), kinds.begin(), kinds.end());
  throw Error("base",
              fmt::format("an instruction (`fp8lab list models`), or one of {}{}",
                          fmt::join(kinds, ", "), did_you_mean(all, name)),
              fmt::format("'{}'", name));
}

bool has(const std::vector<std::string_view>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Throws unless every parameter that was given makes a difference.
void require_used(const AccumulatorModel& model, const std::vector<std::string_view>& given) {
  const std::vector<std::string_view> used = parameters_that_matter(model);
  for (const std::string_view name : given) {
    if (has(used, name)) continue;
    const bool half = model.output_format == FormatId::f16;
    throw Error(name,
                half && name == kOutputBits
                    ? "nothing: an f16 output has 10 fraction bits"
                    : fmt::format("one of {}, the parameters of {}{}", fmt::join(used, ", "),
                                  to_string(model.kind),
                                  model.output_format == FormatId::f16 ? " with f16 output" : ""),
                "a value");
  }
}

/// FP16 has its own fraction bits; whoever leaves it must say how many follow.
void settle_output(const InstructionModel& base, const std::vector<std::string_view>& given,
                   AccumulatorModel& model) {
  if (model.output_format == FormatId::f16 && has(given, kOutputFormat))
    model.output_fraction_bits = kHalfFractionBits;
  const bool widened =
      base.accumulator.output_format == FormatId::f16 && model.output_format == FormatId::f32;
  require(!widened || has(given, kOutputBits), kOutputBits,
          fmt::format("a value, since {} has f16 output", base.name), "none");
}

InstructionModel model_of(const ModelText& text) {
  const InstructionModel& base = base_named(text.base);
  InstructionModel model = base;
  std::vector<std::string_view> given;
  for (const ModelText::Item& item : text.items) {
    const AccumulatorParameter& parameter = find_accumulator_parameter(item.parameter);
    require(!has(given, parameter.name), parameter.name, "to be given once",
            fmt::format("twice, as {} too", parameter.alias));
    given.push_back(parameter.name);
    parameter.set(model, parameter.name, item.value);
  }
  settle_output(base, given, model.accumulator);
  require_used(model.accumulator, given);
  validate(model.accumulator);
  require_formats(model.accumulator, model.a_format, model.b_format);
  model.standing = Standing::definition;
  model.evidence = {};
  return model;
}

void require_free(std::string_view name) {
  const bool taken = registered(name) != nullptr || kind_named(name) != nullptr;
  require(!taken, "name", "a name that no instruction or kind has", fmt::format("'{}'", name));
}

/// A model with the texts that it points to.
struct Kept {
  std::string text;
  std::string source;
  InstructionModel model;
};

std::unique_ptr<const Kept> make(std::string_view text) {
  try {
    const ModelText parts = ModelText::parse(kArgument, text);
    if (!parts.name.empty()) require_free(parts.name);
    auto kept = std::make_unique<Kept>(Kept{std::string(text),
                                            fmt::format("defined by the user from {}", parts.base),
                                            model_of(parts)});
    kept->model.name = kept->text;
    kept->model.source = kept->source;
    return kept;
  } catch (const Error& error) {
    const std::string_view reason = error.what();
    if (reason.starts_with("model: ")) throw;
    throw Error(fmt::format("model {}: {}", text, reason));
  }
}

std::string text_of(const InstructionModel& model, std::string_view base) {
  ModelText text{.name = {}, .base = std::string(base), .items = {}};
  for (const std::string_view name : parameters_that_matter(model.accumulator)) {
    const AccumulatorParameter& parameter = find_accumulator_parameter(name);
    text.set(parameter.alias.empty() ? parameter.name : parameter.alias, parameter.get(model));
  }
  return text.text();
}

}  // namespace

std::span<const AccumulatorKindBase> accumulator_kinds() { return kKinds; }

std::vector<std::string_view> parameters_that_matter(const AccumulatorModel& model) {
  std::vector<std::string_view> names = unit_of(model.kind).parameters(model);
  names.insert(names.end(), {"a_format", "b_format"});
  return names;
}

bool equal_but_for_zero_sign(const AccumulatorModel& one, const AccumulatorModel& other) {
  AccumulatorModel changed = one;
  changed.zero_sign = other.zero_sign;
  return changed == other;
}

bool is_definition(std::string_view text) {
  return text.find_first_of(":=") != std::string_view::npos ||
         (kind_named(text) != nullptr && registered(text) == nullptr);
}

const InstructionModel& defined_model(std::string_view text) {
  static std::mutex mutex;
  static std::map<std::string_view, std::unique_ptr<const Kept>> models;
  {
    const std::scoped_lock lock(mutex);
    if (const auto found = models.find(text); found != models.end()) return found->second->model;
  }
  std::unique_ptr<const Kept> made = make(text);
  const std::scoped_lock lock(mutex);
  const std::string_view key = made->text;
  return models.try_emplace(key, std::move(made)).first->second->model;
}

std::string definition_of(const AccumulatorModel& model, FormatId a, FormatId b) {
  validate(model);
  InstructionModel whole = base_named(to_string(model.kind));
  whole.accumulator = model;
  whole.a_format = a;
  whole.b_format = b;
  return text_of(whole, to_string(model.kind));
}

}  // namespace fp8lab
