// Model files have the same bits in whatever floating-point mode the caller runs.

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "catch.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/io/files.hpp"
#include "io/temporary.hpp"
#include "model_files/models.hpp"
#include "training/model_files/calibration.hpp"
#include "training/model_files/dequantize_model.hpp"
#include "training/model_files/quantize_model.hpp"
#include "training/model_files/weight_cast.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

/// One thread, the caller's own, in a mode of its own until the end.
class OddMode {
 public:
  OddMode(int rounding, bool flushes) : threads_(omp_get_max_threads()) {
    omp_set_num_threads(1);
    std::fegetenv(&before_);
    std::fesetround(rounding);
#if defined(__x86_64__)
    if (flushes) _mm_setcsr(_mm_getcsr() | 0x8040u);
#endif
  }
  ~OddMode() {
    std::fesetenv(&before_);
    omp_set_num_threads(threads_);
  }
  OddMode(const OddMode&) = delete;
  OddMode& operator=(const OddMode&) = delete;

 private:
  int threads_;
  std::fenv_t before_{};
};

template <class T>
std::string raw(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

/// Normal numbers; `small`: subnormal ones alone.
std::vector<float> mode_values(std::size_t count, bool small) {
  const RandomStream random(small ? 5 : 6, "float modes");
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(std::ldexp(random.normal(i), small ? -133 : -3));
  return values;
}

}  // namespace

TEST_CASE("weights of files are cast and come back in any floating-point mode", "[model_files]") {
  const TemporaryFolder folder("modes");
  std::filesystem::create_directories(folder / "in");
  const std::vector<float> usual = mode_values(16 * 128, false);
  const std::vector<float> small = mode_values(16 * 128, true);
  const auto view = [](const std::vector<float>& values) {
    return view_of(ElementType::f32, {16, 128}, std::span(values));
  };
  write_safetensors(folder / "in/model.safetensors",
                    {{"a.q_proj.weight", view(usual)}, {"a.k_proj.weight", view(small)}});
  write_safetensors(folder / "s.safetensors",
                    {{"a.q_proj.input", view(usual)}, {"a.k_proj.input", view(usual)}});
  write_text(folder / "in/config.json", R"({"dtype": "bfloat16"})");
  const auto bits = [&] {
    std::string all;
    for (const std::vector<float>* values : {&usual, &small})
      for (const char* name : {"vllm-per-tensor", "llm-compressor", "deepseek-v3", "mxfp4"}) {
        const Recipe& recipe = find_preset(name).weight;
        const float largest = weight_amax(recipe, view(*values));
        all += raw(std::span(&largest, 1));
        std::vector<std::uint8_t> codes(values->size());
        const QuantizedWeight quantized = quantize_weight(
            recipe, view(*values),
            [&](std::int64_t first, std::span<const std::uint8_t> some) {
              std::ranges::copy(some, codes.begin() + first);
            },
            [](auto) {});
        all += raw(std::span<const std::uint8_t>(codes));
        all += raw(std::span<const float>(quantized.inverse_scales));
      }
    for (const auto& [layout, preset, samples] : {std::tuple{"compressed-tensors", "nvfp4", true},
                                                  {"modelopt", "modelopt", true},
                                                  {"torchao", "torchao-nvfp4", false},
                                                  {"hf-fp8", "vllm-per-tensor", false}}) {
      for (const char* one : {"out", "back"}) std::filesystem::remove_all(folder / one);
      QuantizeModelOptions options{
          .preset = preset, .layout = layout, .rule = "linear", .calibration = {}};
      if (samples) options.calibration = {folder / "s.safetensors"};
      quantize_model(ModelDirectory(folder / "in"), options, folder / "out");
      dequantize_model(ModelDirectory(folder / "out"), {}, folder / "back");
      all += read_text(folder / "out/model.safetensors");
      all += read_text(folder / "back/model.safetensors");
    }
    return all;
  };
  const std::string right = bits();
  for (const int rounding : {FE_TONEAREST, FE_UPWARD, FE_TOWARDZERO})
    for (const bool flushes : {false, true}) {
      std::string got;
      {
        const OddMode mode(rounding, flushes);
        got = bits();
      }
      const auto [a, b] = std::ranges::mismatch(right, got);
      INFO(fmt::format("rounding {}, flushes {}: byte {}", rounding, flushes, a - right.begin()));
      CHECK((right == got));
    }
}
