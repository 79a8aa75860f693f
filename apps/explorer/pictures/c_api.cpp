// The pictures as C functions, which JavaScript calls. Each returns JSON that lives until the next
// call; a bad argument gives {"error": "..."}.

#include <cstdint>
#include <exception>
#include <string>

#include "pictures/json.hpp"
#include "pictures/pictures.hpp"

#ifdef __EMSCRIPTEN__
#include <emscripten.h>
#define FP8LAB_EXPORT EMSCRIPTEN_KEEPALIVE
#else
#define FP8LAB_EXPORT
#endif

namespace {

using namespace fp8lab;
using namespace fp8lab::explorer;

template <typename Make>
const char* answer(const Make& make) {
  static std::string text;
  try {
    text = make();
  } catch (const std::exception& error) {
    text = JsonObject().text("error", error.what()).str();
  }
  return text.c_str();
}

}  // namespace

extern "C" {

FP8LAB_EXPORT const char* fp8lab_describe() {
  return answer([] { return describe(); });
}

FP8LAB_EXPORT const char* fp8lab_cast_table(double x, const char* profile) {
  return answer([&] { return cast_table(static_cast<float>(x), profile); });
}

FP8LAB_EXPORT const char* fp8lab_error_curve(const char* format, const char* profile, double low,
                                             double high, int points) {
  return answer([&] {
    return error_curve(find_format(format).id, profile, static_cast<float>(low),
                       static_cast<float>(high), points);
  });
}

FP8LAB_EXPORT const char* fp8lab_outlier(const char* recipe, const char* format, int elements,
                                         double sigma, double outlier_value, int position, int tile,
                                         int flush, std::uint32_t seed) {
  return answer([&] {
    return outlier({.recipe = recipe,
                    .format = find_format(format).id,
                    .elements = elements,
                    .sigma = sigma,
                    .outlier = outlier_value,
                    .position = position,
                    .tile = tile,
                    .flush = flush != 0,
                    .seed = seed});
  });
}

FP8LAB_EXPORT const char* fp8lab_accumulation(const char* model, const char* distribution, int k,
                                              int promotion_interval, int scaled,
                                              std::uint32_t seed) {
  return answer([&] {
    return accumulation({.model = model,
                         .distribution = distribution,
                         .k = k,
                         .promotion_interval = promotion_interval,
                         .scaled = scaled != 0,
                         .seed = seed});
  });
}

FP8LAB_EXPORT const char* fp8lab_step(const char* model, const char* a, const char* b, double c) {
  return answer([&] { return step({.model = model, .a = a, .b = b, .c = c}); });
}

FP8LAB_EXPORT const char* fp8lab_auto_scaling(const char* format, double threshold,
                                              int steps_to_double, int clean_steps,
                                              const char* growth, const char* trace, int steps,
                                              std::uint32_t seed) {
  return answer([&] {
    return auto_scaling({.format = format,
                         .threshold = threshold,
                         .steps_to_double = steps_to_double,
                         .clean_steps = clean_steps,
                         .growth = growth,
                         .trace = trace,
                         .steps = steps,
                         .seed = seed});
  });
}

}  // extern "C"
