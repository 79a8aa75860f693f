#include "reveal.hpp"

#include <fmt/format.h>

#include <cstring>
#include <string>

#include "fp8lab/core/error.hpp"
#include "fp8lab/reveal/reveal.hpp"

namespace fp8lab::python {
namespace {

template <typename Word>
nb::object words_array(const std::vector<std::byte>& bytes, std::size_t calls, std::size_t rows,
                       std::size_t k) {
  std::vector<Word> words(bytes.size() / sizeof(Word));
  std::memcpy(words.data(), bytes.data(), bytes.size());
  return nb::cast(array_of(std::move(words), {calls, rows, k}));
}

nb::object words_array(FormatId id, const std::vector<std::byte>& bytes, const ProbeCalls& calls,
                       std::int64_t rows) {
  const auto size = [](std::int64_t x) { return static_cast<std::size_t>(x); };
  switch (format(id).storage_bits) {
    case 8:
      return words_array<std::uint8_t>(bytes, size(calls.calls), size(rows), size(calls.k));
    case 16:
      return words_array<std::uint16_t>(bytes, size(calls.calls), size(rows), size(calls.k));
    default:
      return words_array<std::uint32_t>(bytes, size(calls.calls), size(rows), size(calls.k));
  }
}

nb::dict to_dict(const Revealed& r) {
  nb::dict d;
  d["text"] = describe(r);
  d["failure"] = r.failure;
  d["explained"] = r.explained();
  d["tree"] = r.order.found() ? nb::cast(text_of(r.order.tree)) : nb::none();
  d["compact"] = r.order.found() ? nb::cast(compact_text_of(r.order.tree)) : nb::none();
  d["order"] = r.structure ? nb::cast(r.structure->text(r.shape.k)) : nb::none();
  d["model"] = r.model;
  d["definition"] = r.definition;
  nb::list instructions;
  for (const std::string& name : r.instructions) instructions.append(name);
  d["instructions"] = nb::tuple(instructions);
  nb::dict parameters;
  for (const RevealedParameter& p : r.parameters)
    parameters[p.name.c_str()] = nb::make_tuple(p.value, p.possible);
  d["parameters"] = parameters;
  d["promotion_interval"] = r.structure ? r.structure->promotion_interval : 0;
  const SplitK split = r.structure ? r.structure->split : SplitK{};
  d["split"] =
      nb::make_tuple(split.parts, split.tile, to_string(split.cut), to_string(split.order));
  d["output"] = format(r.output).name;
  d["rounded_to"] = format(r.rounded_to).name;
  d["checked"] = r.checked;
  d["equal"] = r.equal;
  d["rounds"] = r.rounds;
  d["probes"] = r.probes;
  d["models_file"] = r.definition.empty() ? std::string() : models_file(r, "revealed");
  return d;
}

nb::dict run(const nb::callable& kernel, std::int64_t m, std::int64_t n, std::int64_t k,
             std::string_view a_format, std::string_view b_format, std::uint64_t seed) {
  const ProbeShape shape{m, n, k, find_format(a_format).id, find_format(b_format).id};
  return to_dict(reveal(
      shape,
      [&](const ProbeCalls& calls) {
        const nb::object result = kernel(words_array(calls.a_format, calls.a, calls, calls.m),
                                         words_array(calls.b_format, calls.b, calls, calls.n));
        const auto pair = nb::cast<nb::tuple>(result);
        const auto values = nb::cast<Vector<const float>>(pair[0]);
        return ProbeOutputs{{values.data(), values.data() + values.size()},
                            find_format(nb::cast<std::string>(pair[1])).id};
      },
      seed));
}

}  // namespace

void bind_reveal(nb::module_& m) {
  m.def("reveal", run, "kernel"_a, nb::kw_only(), "m"_a, "n"_a, "k"_a, "a_format"_a, "b_format"_a,
        "seed"_a);
}

}  // namespace fp8lab::python
