#include "apps/bench/fma_chain.hpp"

#include <cmath>

#include "fp8lab/core/target.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "apps/bench/fma_chain.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 12 chains hide the latency of two FMA units of up to six cycles each. Every
// chain starts elsewhere, or the compiler would see twelve times the same.
long chains(long rounds) {
  constexpr int kChains = 12;
  const hn::ScalableTag<float> d;
  const auto scale = hn::Set(d, 0.999F);
  const auto step = hn::Set(d, 1.0F);
  auto x0 = hn::Set(d, 0.0F), x1 = hn::Set(d, 1.0F), x2 = hn::Set(d, 2.0F), x3 = hn::Set(d, 3.0F);
  auto x4 = hn::Set(d, 4.0F), x5 = hn::Set(d, 5.0F), x6 = hn::Set(d, 6.0F), x7 = hn::Set(d, 7.0F);
  auto x8 = hn::Set(d, 8.0F), x9 = hn::Set(d, 9.0F), xa = hn::Set(d, 10.0F);
  auto xb = hn::Set(d, 11.0F);
  for (long i = 0; i < rounds; ++i) {
    x0 = hn::MulAdd(x0, scale, step);
    x1 = hn::MulAdd(x1, scale, step);
    x2 = hn::MulAdd(x2, scale, step);
    x3 = hn::MulAdd(x3, scale, step);
    x4 = hn::MulAdd(x4, scale, step);
    x5 = hn::MulAdd(x5, scale, step);
    x6 = hn::MulAdd(x6, scale, step);
    x7 = hn::MulAdd(x7, scale, step);
    x8 = hn::MulAdd(x8, scale, step);
    x9 = hn::MulAdd(x9, scale, step);
    xa = hn::MulAdd(xa, scale, step);
    xb = hn::MulAdd(xb, scale, step);
  }
  const auto sum = hn::Add(hn::Add(hn::Add(x0, x1), hn::Add(x2, x3)),
                           hn::Add(hn::Add(hn::Add(x4, x5), hn::Add(x6, x7)),
                                   hn::Add(hn::Add(x8, x9), hn::Add(xa, xb))));
  // The sum is never NaN; saying so through a volatile keeps the chains alive.
  volatile float sink = hn::GetLane(sum);
  return std::isnan(sink) ? 0 : rounds * kChains * static_cast<long>(hn::Lanes(d));
}

}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp8lab::bench {

long run_fma_chains(long rounds) {
  switch (current_target()) {
#if HWY_TARGETS & HWY_AVX2
    case Target::avx2:
      return N_AVX2::chains(rounds);
#endif
#if HWY_TARGETS & HWY_AVX3
    case Target::avx512:
      return N_AVX3::chains(rounds);
#endif
    default:
      return HWY_STATIC_DISPATCH(chains)(rounds);
  }
}

}  // namespace fp8lab::bench
#endif
