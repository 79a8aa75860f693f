#include "fp8lab/scaling/tile_caster.hpp"

#include <algorithm>

#include "fp8lab/scaling/mx_rules.hpp"
#include "hwy/cache_control.h"

namespace fp8lab::scaling_detail {
TileCaster::TileCaster(const Recipe& recipe, Target target, bool stream)
    : casts_(cast_kernels::kernel_table(target)),
      rule_(recipe.rule),
      kernels_(tile_kernels(target)),
      plan_(cast_kernels::make_plan(format(recipe.format), recipe.policy, 1.0F)),
      divide_(divides(recipe.rule)),
      stream_(stream) {}

TileCaster::~TileCaster() {
  if (stream_) hwy::FlushStream();
}

void TileCaster::add(const float* x, std::size_t count, std::size_t block, const float* factors,
                     const Ahead& ahead, std::uint8_t* codes) {
  const bool fits = block == 1 || block % cast_kernels::kTileStep == 0 || block >= count;
  if (plan_.kernel != cast_kernels::EncodeKernel::nearest || adjusts_elements(rule_) ||
      (!fits && block < kCallBlock))
    return add_scaled(x, count, block, factors, codes);
  const std::size_t step = fits ? count : block;
  for (std::size_t begin = 0; begin < count; begin += step)
    casts_.nearest.encode_tiles({.plan = &plan_,
                                 .in = x + begin,
                                 .out = codes + begin,
                                 .count = std::min(step, count - begin),
                                 .block = block,
                                 .factors = factors + begin / block,
                                 .divide = divide_,
                                 .ahead = ahead,
                                 .stream = stream_});
}

bool TileCaster::takes_crossed() const {
  return plan_.kernel == cast_kernels::EncodeKernel::nearest && !adjusts_elements(rule_) &&
         plan_.nearest_plan.small_numbers == cast_kernels::SmallNumbers::gradual;
}

void TileCaster::add_crossed(cast_kernels::CrossTask task) const {
  task.plan = &plan_;
  task.divide = divide_;
  task.stream = stream_;
  casts_.nearest.encode_crossed(task);
}

/// Scaled elements to `values_`, adjusted as `scaled_element` has it.
void TileCaster::scale(const float* x, std::size_t count, std::size_t block, const float* factors) {
  if (takes_bf16(rule_)) {
    kernels_.round_to_bf16(x, count, values_.data());
    x = values_.data();
  }
  (divide_ ? kernels_.divide : kernels_.multiply)(x, count, block, factors, values_.data());
  if (rounds_to_bf16(rule_)) kernels_.round_to_bf16(values_.data(), count, values_.data());
  const LastStep last = traits(rule_).last;
  if (last == LastStep::none) return;
  for (std::size_t i = 0; i < count; ++i) values_[i] = after_last_step(last, values_[i]);
}

void TileCaster::add_scaled(const float* x, std::size_t count, std::size_t block,
                            const float* factors, std::uint8_t* codes) {
  // Pieces end where a tile ends, or lie inside one.
  const bool small = block < kBuffer;
  const std::size_t piece = small ? kBuffer / block * block : kBuffer;
  for (std::size_t begin = 0; begin < count;) {
    const std::size_t left = small ? piece : block - begin % block;
    const std::size_t size = std::min({piece, left, count - begin});
    scale(x + begin, size, std::min(block, size), factors + begin / block);
    casts_.encode({.plan = &plan_, .in = values_.data(), .out = codes + begin, .count = size});
    begin += size;
  }
}

}  // namespace fp8lab::scaling_detail
