#include <fmt/format.h>

#include "fp8lab/accumulate/definition.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/model_text.hpp"
#include "fp8lab/reveal/reveal.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t kMostTreeText = 600;

std::string unit_text(const Revealed& r) {
  std::string out = fmt::format("unit: {}\n", r.model);
  for (const RevealedParameter& p : r.parameters)
    out += p.certain ? fmt::format("  {:<28} {}\n", p.name, p.value)
                     : fmt::format("  {:<28} {} (the probes give the same for: {})\n", p.name,
                                   p.value, p.possible);
  if (r.rounded_to != FormatId::f32)
    out += fmt::format("  sums are rounded to {}, nearest even\n", format(r.rounded_to).name);
  if (!r.instructions.empty())
    out += fmt::format("  as registered: {}\n", fmt::join(r.instructions, ", "));
  return out;
}

}  // namespace

std::string describe(const Revealed& r, bool whole_tree) {
  std::string out =
      fmt::format("kernel of [{}, {}] x [{}, {}], {} x {} -> {}: {} probes in {} rounds\n",
                  r.shape.m, r.shape.k, r.shape.n, r.shape.k, format(r.shape.a_format).name,
                  format(r.shape.b_format).name, format(r.output).name, r.probes, r.rounds);
  if (!r.order.found()) return out + fmt::format("no order: {}\n", r.order.failure);
  if (r.structure) out += fmt::format("order: {}\n", r.structure->text(r.shape.k));
  out += "tree, with equal parts shown once:\n" + compact_text_of(r.order.tree);
  const std::string tree = text_of(r.order.tree);
  if (whole_tree || tree.size() <= kMostTreeText)
    out += fmt::format("tree, in the order of K (`0-31`: terms of one sum):\n  {}\n", tree);
  else
    out += fmt::format("tree, in the order of K: {} characters, not shown\n", tree.size());
  if (!r.model.empty()) out += unit_text(r);
  if (r.checked > 0 && !r.model.empty())
    out +=
        fmt::format("checked: {} of {} outputs of fresh operands equal the model's, bit for bit\n",
                    r.equal, r.checked);
  if (!r.failure.empty()) out += fmt::format("not explained: {}\n", r.failure);
  return out;
}

std::string models_file(const Revealed& r, std::string_view name) {
  require(!r.definition.empty(), "model", "a kernel whose unit was found", r.failure);
  const ModelText text = ModelText::parse("model", r.definition);
  std::string out = fmt::format("[accumulator.{}]\nbase = \"{}\"\n", name, text.base);
  for (const ModelText::Item& item : text.items) {
    const bool number = item.value.find_first_not_of("-0123456789") == std::string::npos;
    out += number ? fmt::format("{} = {}\n", item.parameter, item.value)
                  : fmt::format("{} = \"{}\"\n", item.parameter, item.value);
  }
  return out;
}

}  // namespace fp8lab
