#include "apps/bench/cast_baselines.hpp"

#include <utility>

#if __has_include(<cuda_fp8.h>)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wpedantic"
#include <cuda_fp8.h>
#pragma GCC diagnostic pop
#endif

namespace fp8lab::cli {
namespace {

#if __has_include(<cuda_fp8.h>)
template <__nv_saturation_t kSaturation, __nv_fp8_interpretation_t kInterpretation>
CastBaseline cuda(FormatId id, std::string profile) {
  return {"CUDA host code of cuda_fp8.h", id, std::move(profile),
          [](std::span<const float> in, std::span<std::uint8_t> out) {
            for (std::size_t i = 0; i < in.size(); ++i)
              out[i] = __nv_cvt_float_to_fp8(in[i], kSaturation, kInterpretation);
          }};
}
#endif

}  // namespace

std::vector<CastBaseline> cast_baselines() {
  std::vector<CastBaseline> all;
#if __has_include(<cuda_fp8.h>)
  all.push_back(cuda<__NV_SATFINITE, __NV_E4M3>(FormatId::e4m3fn, "nvidia_satfinite"));
  all.push_back(cuda<__NV_NOSAT, __NV_E4M3>(FormatId::e4m3fn, "nvidia_nosat"));
  all.push_back(cuda<__NV_SATFINITE, __NV_E5M2>(FormatId::e5m2, "nvidia_satfinite"));
  all.push_back(cuda<__NV_NOSAT, __NV_E5M2>(FormatId::e5m2, "nvidia_nosat"));
#endif
  return all;
}

}  // namespace fp8lab::cli
