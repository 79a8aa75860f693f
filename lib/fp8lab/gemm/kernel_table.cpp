#include <algorithm>
#include <array>
#include <optional>

#include "fp8lab/gemm/kernels.hpp"

namespace fp8lab::gemm_detail {
namespace {

/// Even the tables' initialisation may use the target's instructions.
std::optional<KernelTable> make_table(Target target) {
  if (std::ranges::find(available_targets(), target) == available_targets().end())
    return std::nullopt;
  const FusedKernels* fused = fused_kernels(target);
  if (fused == nullptr) return std::nullopt;
  return KernelTable{*fused,
                     *dot_kernels(target),
                     *sum_kernels(target),
                     *sequential_kernels(target),
                     *float_code_kernels(target),
                     *double_code_kernels(target),
                     *float_decode_kernels(target),
                     *double_decode_kernels(target)};
}

}  // namespace

const KernelTable* kernel_table(Target target) {
  static const std::array<std::optional<KernelTable>, 4> kTables{
      make_table(Target::scalar), make_table(Target::avx2), make_table(Target::avx512),
      make_table(Target::neon)};
  const auto& table = kTables[static_cast<std::size_t>(target)];
  return table ? &*table : nullptr;
}

}  // namespace fp8lab::gemm_detail
