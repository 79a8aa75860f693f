#include "fp8lab/identify/grouped.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/identify/hypotheses.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/tensors/slices.hpp"

namespace fp8lab {
namespace {

constexpr std::int64_t kSide = 64;

/// Counts what an explanation gives of a part.
class Counter {
 public:
  Counter(const GroupedProduct& product, std::span<const std::byte> got,
          std::span<const std::string> models, int threads)
      : product_(product), got_(got), models_(models), threads_(threads) {}

  [[nodiscard]] GroupMatch count(const GroupProduct& part, const Explanation& one,
                                 const Sample& sample) const {
    const Product sampled = take(part.product, sample);
    const std::vector<NamedAccumulator> accumulators = accumulators_for(sampled.problem, models_);
    const auto known = std::ranges::find_if(accumulators, [&](const NamedAccumulator& named) {
      return std::ranges::find(named.names, one.models.front()) != named.names.end();
    });
    GroupMatch match{part.group, part.first_row, 0, sampled.size()};
    if (known == accumulators.end()) return match;
    const Accumulation how{static_cast<std::size_t>(known - accumulators.begin()),
                           one.promotion_interval, one.scale_order, one.split_k, one.c_enters};
    const std::vector<float> sums = sums_of(sampled, how, accumulators, threads_);
    const std::vector<std::uint32_t> codes =
        round_output(result_of(sampled, how, accumulators, sums), rounding_of(one));
    std::size_t at = 0;
    for (const std::int64_t row : sample.rows)
      for (const std::int64_t column : sample.columns)
        match.matches +=
            codes[at++] == code(((part.first_row + row) * product_.columns) + column) ? 1 : 0;
    return match;
  }

 private:
  [[nodiscard]] std::uint32_t code(std::int64_t index) const {
    const FormatId id = product_.output.format;
    return canonical_code(id, code_at(id, got_, static_cast<std::size_t>(index)));
  }

  [[nodiscard]] OutputRounding rounding_of(const Explanation& one) const {
    for (const OutputRounding& rounding : output_roundings(product_.output.format))
      if (rounding.name == one.rounding) return rounding;
    throw Error("rounding", "a rounding that is tried for the output", one.rounding);
  }

  const GroupedProduct& product_;
  std::span<const std::byte> got_;
  std::span<const std::string> models_;
  int threads_;
};

Sample sample_of(const Product& product, std::int64_t side) {
  return {spread(product.rows(), side), spread(product.columns(), side)};
}

const GroupProduct& largest_of(const GroupedProduct& product) {
  const auto largest = std::ranges::max_element(product.parts, {}, [](const GroupProduct& part) {
    return part.product.problem.a.k == 0 ? 0 : part.product.size();
  });
  require(largest != product.parts.end() && largest->product.size() > 0,
          to_string(product.groups.kind), "a group with outputs", "none");
  return *largest;
}

}  // namespace

bool GroupedIdentification::explained() const {
  return found.explained() && std::ranges::all_of(groups, [](const GroupMatch& one) {
           return one.matches == one.compared;
         });
}

GroupedIdentification identify(const GroupedProduct& product, const Operand& got, int threads,
                               std::span<const std::string> models) {
  const FloatEnvironment environment;
  const TensorView& d = got.tensor();
  const ElementType type = element_type_of(product.output.format);
  require(d.type == type && d.shape == product.shape, got.name(),
          fmt::format("{} {}", to_string(type), shape_text(product.shape)),
          fmt::format("{} {}", to_string(d.type), shape_text(d.shape)));
  const HeldTensor dense = row_major(d);
  const GroupProduct& largest = largest_of(product);
  const auto width = element_bytes(type);
  const std::size_t row = static_cast<std::size_t>(product.columns) * width;
  GroupedIdentification result;
  result.group = largest.group;
  result.found =
      identify(largest.product,
               dense.view.bytes.subspan(static_cast<std::size_t>(largest.first_row) * row,
                                        static_cast<std::size_t>(largest.product.rows()) * row),
               threads, models);
  if (result.found.ranking.empty()) return result;
  const Counter counter(product, dense.view.bytes, models, threads);
  std::vector<Explanation>& members = result.found.ranking.front().members;
  for (const GroupProduct& part : product.parts) {
    if (part.product.size() == 0 || &part == &largest || members.size() < 2) continue;
    std::vector<Explanation> kept;
    for (const Explanation& one : members) {
      const GroupMatch match = counter.count(part, one, sample_of(part.product, kSide));
      if (match.matches == match.compared) kept.push_back(one);
    }
    if (!kept.empty()) members = std::move(kept);
  }
  for (const GroupProduct& part : product.parts) {
    if (part.product.size() == 0) continue;
    const std::int64_t all = std::max(part.product.rows(), part.product.columns());
    result.groups.push_back(counter.count(part, members.front(), sample_of(part.product, all)));
  }
  return result;
}

std::string describe(const GroupedIdentification& result, std::size_t most) {
  std::string text = fmt::format("group {}: {}", result.group, describe(result.found, most));
  std::uint64_t right = 0;
  for (const GroupMatch& one : result.groups) right += one.matches == one.compared ? 1 : 0;
  if (!result.groups.empty())
    text += fmt::format("the first explanation holds for {} of {} groups\n", right,
                        result.groups.size());
  for (const GroupMatch& one : result.groups)
    if (one.matches != one.compared)
      text += fmt::format("  group {} (from row {} of the output): {} of {} outputs\n", one.group,
                          one.first_row, one.matches, one.compared);
  return text;
}

}  // namespace fp8lab
