#include "fp8lab/vectors/separate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/formats/format.hpp"
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
  require(first.a_format == second.a_format && first.b_format == second.b_format, "models",
          fmt::format("two that read the same formats; {} reads {} and {}", first.name,
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

/// One negative product that is smaller than every output but zero: a sum that rounds to zero. The
/// operands are powers of two; those that the formats do not have give another case.
VectorCase small_product(const VectorFile& file, std::uint64_t seed, std::uint64_t index) {
  const bool half = file.output_format == FormatId::f16;
  const int smallest = half ? -24 : -149;
  const RandomStream stream(seed, "small products");
  std::uint64_t at = 4 * index;
  const auto draw = [&](int count) {
    return static_cast<int>(stream.below(at++, static_cast<std::uint64_t>(count)));
  };
  const int exponent = smallest - 1 - draw(8);
  const int of_a = exponent / 2 + draw(9) - 4;
  VectorCase one;
  one.a.assign(static_cast<std::size_t>(file.terms), 0);
  one.b = one.a;
  const auto place = static_cast<std::size_t>(draw(file.terms));
  one.a[place] = encode(format(file.a_format), kNvidiaSatfinite, std::ldexp(1.0F, of_a));
  one.b[place] =
      encode(format(file.b_format), kNvidiaSatfinite, -std::ldexp(1.0F, exponent - of_a));
  return one;
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
  AccumulatorModel with_other_sign = first.accumulator;
  with_other_sign.zero_sign = second.accumulator.zero_sign;
  const bool signs_alone = !file.scales && with_other_sign == second.accumulator;
  constexpr std::array kKinds{CaseKind::adversarial, CaseKind::random, CaseKind::special};
  for (; file.cases.size() < count && separation.tried < budget; ++separation.tried) {
    const std::size_t i = separation.tried;
    const CaseKind kind = kKinds[i / 2 % kKinds.size()];
    VectorCase one = signs_alone && i % 8 == 7
                         ? small_product(file, seed, i)
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
