#include "fp8lab/vectors/separate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "fp8lab/accumulate/definition.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/vectors/case_builder.hpp"
#include "fp8lab/vectors/cases.hpp"
#include "fp8lab/vectors/reduce.hpp"
#include "fp8lab/vectors/replay.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t kReductions = 20000;

/// Both models on the formats that the hardware one of them reads.
std::array<InstructionModel, 2> on_common_formats(InstructionModel first, InstructionModel second) {
  const auto adopt = [](InstructionModel& one, const InstructionModel& other) {
    if (one.standing != Standing::definition) return;
    one.a_format = other.a_format;
    one.b_format = other.b_format;
  };
  adopt(first, second);
  adopt(second, first);
  require(first.a_format == second.a_format && first.b_format == second.b_format, "separate",
          fmt::format("two models that read the same formats; {} reads {} and {}", first.name,
                      format(first.a_format).name, format(first.b_format).name),
          fmt::format("{}, which reads {} and {}", second.name, format(second.a_format).name,
                      format(second.b_format).name));
  return {first, second};
}

/// One step of the model with more terms; two sequential ones need several.
int default_terms(const AccumulatorModel& first, const AccumulatorModel& second) {
  const int terms = std::max(first.terms, second.terms);
  return terms > 1 ? terms : 32;
}

/// One negative product that is smaller than every output but zero: a sum that rounds to zero.
VectorCase small_product(const InstructionModel& model, int terms, std::uint64_t seed,
                         std::uint64_t index) {
  const int smallest = model.accumulator.output_format == FormatId::f16 ? -24 : -149;
  detail::Builder build(model, terms, detail::Draws(RandomStream(seed, "small products"), index));
  build.set_power(build.any_index(), true, smallest - build.draws.between(1, 8));
  return build.out;
}

}  // namespace

Separation separate(const InstructionModel& first, const InstructionModel& second,
                    std::size_t count, std::uint64_t seed, int terms, std::size_t budget) {
  const std::array<InstructionModel, 2> models = on_common_formats(first, second);
  Separation separation;
  VectorFile& file = separation.file;
  file.model = first.name;
  file.a_format = models[0].a_format;
  file.b_format = models[0].b_format;
  file.terms = terms > 0 ? terms : default_terms(first.accumulator, second.accumulator);
  file.output_format = first.accumulator.output_format;
  file.header["separates_from"] = second.name;
  file.header["seed"] = fmt::format("{}", seed);
  if (first.accumulator == second.accumulator) return separation;
  // Both have them, or neither: what reads scales has nothing to say of a file without.
  file.scales = common_scales(first, second);
  const auto differ = [&](const VectorCase& one) {
    return result_bits(first.accumulator, file, one) != result_bits(second.accumulator, file, one);
  };
  // The sign of zero is rare in cases made for anything else.
  const bool signs_alone =
      !file.scales && equal_but_for_zero_sign(first.accumulator, second.accumulator);
  constexpr std::array kKinds{CaseKind::adversarial, CaseKind::random, CaseKind::special};
  for (; file.cases.size() < count && separation.tried < budget; ++separation.tried) {
    const std::size_t i = separation.tried;
    const CaseKind kind = kKinds[i / 2 % kKinds.size()];
    VectorCase one = signs_alone && i % 8 == 7
                         ? small_product(models[0], file.terms, seed, i)
                         : generate_case(models[i % 2], file.scales, file.terms, kind, seed,
                                         i / (2 * kKinds.size()));
    if (!differ(one)) continue;
    if (file.cases.empty())
      one = reduce_case(one, file.a_format, file.b_format, differ, kReductions,
                        file.scales ? std::optional(file.scales->format) : std::nullopt)
                .smallest;
    one.d = result_bits(first.accumulator, file, one);
    file.cases.push_back(std::move(one));
  }
  return separation;
}

}  // namespace fp8lab
