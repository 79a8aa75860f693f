#include "fp8lab/gemm/unit_kernels.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "fp8lab/gemm/word_dots.hpp"

namespace fp8lab::gemm_detail {
namespace {

/// Even the tables' initialisation may use the target's instructions.
std::optional<UnitKernels> make_table(Target target) {
  if (std::ranges::find(available_targets(), target) == available_targets().end())
    return std::nullopt;
  const WordKernels* words = word_kernels(target);
  if (words == nullptr) return std::nullopt;
  return UnitKernels{*words,
                     *pair_kernels(target),
                     *group_kernels(target),
                     *group_dot_kernels(target),
                     *checked_kernels(target),
                     *processor_kernels(target),
                     word_dot_kernels(target)};
}

}  // namespace

const UnitKernels* unit_kernels(Target target) {
  static const std::array<std::optional<UnitKernels>, 4> kTables{
      make_table(Target::scalar), make_table(Target::avx2), make_table(Target::avx512),
      make_table(Target::neon)};
  const auto& table = kTables[static_cast<std::size_t>(target)];
  return table ? &*table : nullptr;
}

}  // namespace fp8lab::gemm_detail
