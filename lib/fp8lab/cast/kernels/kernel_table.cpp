#include <algorithm>
#include <array>

#include "fp8lab/cast/kernels/kernels.hpp"

namespace fp8lab::cast_kernels {
namespace {

/// Even asking for a target's kernels may use its instructions.
KernelTable make_table(Target target) {
  if (std::ranges::find(available_targets(), target) == available_targets().end())
    return kScalarKernels;
  const NearestKernels* nearest = nearest_kernels(target);
  if (nearest == nullptr) return kScalarKernels;
  return {*nearest, *rounding_kernels(target), *general_kernels(target), *decode_kernels(target)};
}

}  // namespace

EncodeStatistics KernelTable::encode(const EncodeTask& task) const {
  switch (task.plan->kernel) {
    case EncodeKernel::nearest:
      return nearest.encode(task);
    case EncodeKernel::rounding:
      return rounding.encode(task);
    case EncodeKernel::scalar:
      return kScalarKernels.general.encode(task);
    case EncodeKernel::general:
      break;
  }
  return general.encode(task);
}

const KernelTable& kernel_table(Target target) {
  static const std::array<KernelTable, 4> kTables{
      make_table(Target::scalar), make_table(Target::avx2), make_table(Target::avx512),
      make_table(Target::neon)};
  return kTables[static_cast<std::size_t>(target)];
}

}  // namespace fp8lab::cast_kernels
