#include "fp8lab/linear/operand_cast.hpp"

#include <fmt/format.h>

#include <utility>

#include "fp8lab/core/error.hpp"

namespace fp8lab::train {
namespace {

/// Before the cast asks for the same of "x": here the layer has a name.
void require_divisible(const std::string& name, const Recipe& recipe, const FloatMatrix& x) {
  const auto require_multiple = [&](std::int64_t size, std::int64_t of, const char* dimension) {
    require(size % of == 0, name, fmt::format("{} divisible by {} for its recipe", dimension, of),
            size);
  };
  require_multiple(x.rows, recipe.rows_multiple, "rows");
  require_multiple(x.k, recipe.k_multiple, "k");
}

}  // namespace

OperandCast::OperandCast(std::string name, const Recipe& recipe)
    : name_(std::move(name)), quantizer_(recipe) {}

bool OperandCast::has_past() const {
  return recipe().source == ScaleSource::delayed || recipe().source == ScaleSource::ms_amp;
}

QuantizedTensor OperandCast::cast(const FloatMatrix& x, bool with_transpose,
                                  const PassContext& context) {
  require_divisible(name_, recipe(), x);
  // As `Quantizer` takes it: TransformerEngine's amax drops NaN, MS-AMP's does not.
  if (has_past()) amaxes_.push_back(amax(x.values, recipe().source == ScaleSource::delayed));
  QuantizedTensor q = quantizer_.quantize(x, with_transpose, context.threads, {}, context.backend);
  if (context.on_cast) context.on_cast(name_, x, q);
  return q;
}

void OperandCast::restore(const std::vector<float>& amaxes) {
  require(has_past() || amaxes.empty(), name_,
          "no amaxes, since the recipe uses only the current tensor",
          std::to_string(amaxes.size()));
  quantizer_ = Quantizer(recipe());
  for (const float& amax : amaxes) quantizer_.observe({{&amax, 1}, 1, 1});
  amaxes_ = amaxes;
}

TwoCasts::TwoCasts(const std::string& name, const Recipe& first,
                   const std::optional<Recipe>& second, const std::string& second_product)
    : first_(name, first) {
  if (second) second_.emplace(name + "." + second_product, *second);
}

QuantizedTensor TwoCasts::cast(const FloatMatrix& x, OperandUse use, const PassContext& context) {
  if (!use.first && !use.second) return {};
  if (!second_) return first_.cast(x, use.second, context);
  QuantizedTensor q;
  if (use.first) q = first_.cast(x, false, context);
  if (use.second) q.transposed = second_->cast(x, true, context).transposed;
  return q;
}

void TwoCasts::list(std::vector<OperandCast*>& casts) {
  casts.push_back(&first_);
  if (second_) casts.push_back(&*second_);
}

}  // namespace fp8lab::train
