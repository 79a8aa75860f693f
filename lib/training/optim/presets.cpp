#include "training/optim/presets.hpp"

#include <string>

#include "fp8lab/core/names.hpp"

namespace fp8lab {
namespace {

constexpr StateFormat scaled(FormatId format) { return {format, StateScaling::tensor}; }
constexpr StateFormat plain(FormatId format) { return {format, StateScaling::none}; }

constexpr StateFormat kFp8 = scaled(FormatId::e4m3fn);
constexpr StateFormat kFp16 = scaled(FormatId::f16);
constexpr StateFormat kBf16 = plain(FormatId::bf16);
constexpr StateFormat kFp32 = plain(FormatId::f32);

AdamWOptions states(const StateFormat& master, const StateFormat& gradient, const StateFormat& m,
                    const StateFormat& v) {
  return {.master = master, .gradient = gradient, .m = m, .v = v};
}

AdamWOptions groups(StateScaling scaling) {
  const StateFormat group{FormatId::e4m3fn, scaling, ScaleRule::te};
  return states(kFp32, kFp32, group, group);
}

std::vector<OptimizerPreset> make_presets() {
  const StateFormat fp8 = plain(FormatId::e4m3fn);
  const StateFormat fp16 = plain(FormatId::f16);
  return {
      {"fp32", states(kFp32, kFp32, kFp32, kFp32), kBf16,
       "FP32 AdamW: FP8-LM Table 6 #0 and #1, Megatron-LM's BF16 mixed precision"},
      {"fp8-lm", states(kFp16, kFp8, kFp8, kFp16), {}, "FP8-LM Table 6 #2a"},
      {"fp8-lm-bf16-master", states(kBf16, kFp8, kFp8, kFp16), {}, "FP8-LM Table 6 #2b"},
      {"fp8-lm-fp8-master", states(kFp8, kFp8, kFp8, kFp16), {}, "FP8-LM Table 6 #3"},
      {"fp8-lm-fp8-v", states(kFp16, kFp8, kFp8, kFp8), {}, "FP8-LM Table 6 #4"},
      {"fp8-lm-unscaled", states(fp16, fp8, fp8, fp16), {}, "#2a without tensor scales"},
      {"fp8-lm-fp8-v-unscaled", states(fp16, fp8, fp8, fp8), {}, "#4 without tensor scales"},
      {"ms-amp-o1", states(kFp16, kFp8, kFp32, kFp32), {}, "MS-AMP O1"},
      {"ms-amp-o2", states(kFp16, kFp8, kFp8, kFp16), {}, "MS-AMP O2"},
      {"ms-amp-o3", states(kFp16, kFp8, kFp8, kFp16), kFp8, "MS-AMP O3"},
      {"coat", groups(StateScaling::expanded), kBf16, "COAT, dynamic range expansion"},
      {"coat-unexpanded", groups(StateScaling::group), kBf16, "COAT without the expansion"},
  };
}

}  // namespace

std::span<const OptimizerPreset> optimizer_presets() {
  static const std::vector<OptimizerPreset> kPresets = make_presets();
  return kPresets;
}

const OptimizerPreset& find_optimizer_preset(std::string_view name) {
  return find_named(optimizer_presets(), "optimizer", name);
}

}  // namespace fp8lab
