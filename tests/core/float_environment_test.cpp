// Public functions give the same bits in whatever floating-point mode the caller runs, and
// leave that mode as it was.

#include "fp8lab/core/float_environment.hpp"

#include <cfenv>
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/float_modes.hpp"
#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/attention/attention.hpp"
#include "fp8lab/cast/encode.hpp"
#include "fp8lab/identify/identify.hpp"
#include "fp8lab/metrics/code_comparison.hpp"
#include "fp8lab/metrics/comparison.hpp"
#include "fp8lab/metrics/tensor.hpp"
#include "fp8lab/scaling/presets.hpp"
#include "fp8lab/scaling/statistics.hpp"
#include "fp8lab/vectors/cases.hpp"
#include "fp8lab/vectors/replay.hpp"
#include "fp8lab/verify/verify.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

RandomProduct product_of(const GemmSpec& spec, const RandomProduct::Options& options) {
  const FloatEnvironment environment;
  return {spec, options};
}

void add_comparison(const Comparison& c, Bits& bits) {
  for (const double value : {c.relative_l2, c.sqnr_db, c.cosine, c.calc_diff, c.max_absolute,
                             c.max_relative, c.mean_signed_relative})
    bits.add(value);
  bits.add(c.mismatches);
}

void add_casts(std::vector<Job>& jobs) {
  jobs.push_back({"to_float", [](Bits& bits) {
                    const std::vector<double> x = doubles_of(300, 9);
                    bits.add(std::span<const float>(
                        to_float(view_of(ElementType::f64, {300}, std::span<const double>(x)))));
                  }});
  for (const FormatId id : {FormatId::e4m3fn, FormatId::e5m2, FormatId::e8m0fnu})
    jobs.push_back({"decode " + std::string(format(id).name), [id](Bits& bits) {
                      std::vector<std::uint8_t> codes(256);
                      for (std::size_t i = 0; i < 256; ++i) codes[i] = static_cast<std::uint8_t>(i);
                      std::vector<float> out(256);
                      decode(codes, out, {.format = id, .inverse_scale = 0.37F});
                      bits.add(std::span<const float>(out));
                    }});
  jobs.push_back({"encode", [](Bits& bits) {
                    const std::vector<float> x = values_of(2000, 1);
                    std::vector<std::uint8_t> codes(x.size());
                    encode(x, codes, {.format = FormatId::e5m2, .scale = 0x1.3p120F});
                    bits.add(std::span<const std::uint8_t>(codes));
                  }});
}

void add_recipes(std::vector<Job>& jobs) {
  for (const Preset& preset : presets())
    for (const bool turned : {false, true}) {
      const ScaleSource source = preset.activation.source;
      if (source == ScaleSource::calibration || source == ScaleSource::momentum) continue;
      jobs.push_back({"quantize " + std::string(preset.name), [&preset, turned](Bits& bits) {
                        const std::vector<float> x = values_of(128 * 256, 2);
                        const FloatMatrix matrix{x, 128, 256};
                        Quantizer quantizer(preset.activation);
                        (void)quantizer.quantize(matrix);
                        const QuantizedTensor q = quantizer.quantize(matrix, turned, 2);
                        bits.add(std::span<const std::uint8_t>(q.codes));
                        bits.add(std::span<const float>(q.scales));
                        bits.add(std::span<const float>(q.inverse_scales));
                        if (turned) bits.add(std::span<const std::uint8_t>(q.transposed->codes));
                        bits.add(std::span<const float>(dequantize(q)));
                        const QuantizationStatistics s = quantization_statistics(matrix, q);
                        for (const double value :
                             {s.underflow_percent, s.overflow_percent, s.saturated_percent,
                              s.relative_l2, s.sqnr_db, s.tile_range_mean, s.tile_range_max})
                          bits.add(value);
                      }});
    }
}

void add_metrics(std::vector<Job>& jobs) {
  jobs.push_back({"compare", [](Bits& bits) {
                    const std::vector<float> x = values_of(5000, 3);
                    const std::vector<float> y = values_of(5000, 4);
                    add_comparison(compare(std::span<const float>(x), std::span<const float>(y)),
                                   bits);
                    bits.add(mismatch_rate(x, y, 0.1, 1e-40));
                  }});
  jobs.push_back({"compare_codes", [](Bits& bits) {
                    const std::vector<float> x = values_of(200000, 3);
                    const std::vector<float> y = values_of(200000, 4);
                    const CodeComparison c =
                        compare_codes(format(FormatId::f32), std::as_bytes(std::span(x)),
                                      std::as_bytes(std::span(y)), {.threads = 2});
                    add_comparison(c.values, bits);
                    bits.add(c.mean_absolute_relative);
                  }});
  jobs.push_back({"tensor_statistics", [](Bits& bits) {
                    const std::vector<float> x = values_of(5000, 5);
                    const TensorStatistics s = tensor_statistics(x);
                    for (const double value : {s.amax, s.min_nonzero, s.decades, s.rms})
                      bits.add(value);
                    bits.add(s.zeros);
                    const std::vector<double> at{0.01, 0.3, 0.999};
                    bits.add(std::span<const double>(magnitude_quantiles(x, at)));
                  }});
}

void add_products(std::vector<Job>& jobs) {
  for (const char* name : {"sm90.wgmma.e4m3", "sm100.mma.e4m3", "fp32", "exact", "sequential14.rz"})
    jobs.push_back(
        {"gemm " + std::string(name), [name](Bits& bits) {
           const RandomProduct random =
               product_of({.model = name, .promotion_interval = 128},
                          {.shape = {40, 20, 256}, .tiles_a = {40, 2}, .tiles_b = {20, 2}});
           bits.add(std::span<const float>(compute(random.product, 2)));
           std::vector<float> d(random.product.size());
           gemm_reference(random.product.problem, d, 2);
           bits.add(std::span<const float>(d));
           for (const CPlacement place : {CPlacement::accumulator, CPlacement::epilogue}) {
             const std::vector<float> c = values_of(800, 6);
             GemmProblem p = random.product.problem;
             p.c = c.data();
             p.c_enters = place;
             gemm(p, d, 2);
             bits.add(std::span<const float>(d));
           }
         }});
  jobs.push_back({"dot_product", [](Bits& bits) {
                    for (const char* name : {"sm90.mma.bf16", "fp32", "exact", "sm70.mma.f16"}) {
                      VectorFile file = generate_cases(find_instruction_model(name),
                                                       CaseKind::adversarial, 200, 1, 32);
                      for (const VectorCase& one : file.cases) bits.add(one.d);
                      bits.add(replay(file).mismatches);
                    }
                  }});
}

void add_verdicts(std::vector<Job>& jobs) {
  for (const char* check : {"bitwise", "budget", "deepgemm"})
    jobs.push_back({"verify " + std::string(check), [check](Bits& bits) {
                      const RandomProduct random = product_of(
                          {.promotion_interval = 128}, {.tiles_a = {24, 4}, .tiles_b = {20, 4}});
                      std::vector<std::byte> codes = golden_output(random.product);
                      codes[403] ^= std::byte{0x40};
                      const Operand got{"got", {ElementType::f32, {24, 20}, codes}, nullptr};
                      bits.add(describe(verify(
                          random.product, got,
                          {.check = find_check(check), .fault_matrix = true, .threads = 2})));
                    }});
  jobs.push_back(
      {"verify_cast", [](Bits& bits) {
         const std::vector<float> x = values_of(1000, 7);
         std::vector<std::byte> codes = cast_output(x, default_output(FormatId::e5m2));
         const Operand in{"x", view_of(ElementType::f32, {10, 100}, std::span<const float>(x)),
                          nullptr};
         const float s = 0.3F;
         const Operand scale{"s", view_of(ElementType::f32, {1}, std::span<const float>(&s, 1)),
                             nullptr};
         bits.add(describe(verify_cast({.format = FormatId::e5m2}, in, &scale,
                                       {"got", {ElementType::e5m2, {10, 100}, codes}, nullptr})));
       }});
  jobs.push_back({"identify", [](Bits& bits) {
                    const RandomProduct random = product_of({.promotion_interval = 64},
                                                            {.shape = {8, 8, 256}, .tiles_a = {8}});
                    bits.add(describe(identify(random.product, golden_output(random.product), 2)));
                  }});
  jobs.push_back({"error_budget", [](Bits& bits) {
                    const RandomProduct random =
                        product_of({.promotion_interval = 128}, {.tiles_a = {24}});
                    const ErrorBudget budget = error_budget(random.product, 3, 4);
                    bits.add(budget.exact);
                    bits.add(budget.total());
                    bits.add(budget.low);
                    bits.add(budget.high);
                  }});
}

std::vector<Job> all_jobs() {
  std::vector<Job> jobs;
  add_casts(jobs);
  add_recipes(jobs);
  add_metrics(jobs);
  add_products(jobs);
  add_verdicts(jobs);
  return jobs;
}

}  // namespace

TEST_CASE("every public function gives the same bits in every floating-point mode",
          "[core][environment]") {
  check_modes(all_jobs(), 3, 20);
}

TEST_CASE("an environment has its mode, and gives the caller's mode and flags back",
          "[core][environment]") {
  const FloatEnvironment back;
  volatile float three = 3.0F;
  for (const Mode& mode : modes()) {
    for (const int wanted : {FE_TONEAREST, FE_TOWARDZERO}) {
      INFO(mode.name << ", rounding mode " << wanted);
      std::fesetenv(FE_DFL_ENV);
      enter(mode);
      const unsigned before = control();
      {
        const FloatEnvironment environment(wanted);
        CHECK(std::fegetround() == wanted);
        // 1/3 is rounded down both ways, 2/3 up by nearest alone; long double has a unit of its
        // own.
        CHECK((2.0F / three > 0x1.555554p-1F) == (wanted == FE_TONEAREST));
        volatile long double wide = 3.0L;
        CHECK((2.0L / wide * 3.0L < 2.0L) == (wanted == FE_TOWARDZERO));
        volatile float subnormal = 0x1p-149F;
        CHECK(subnormal * 1.0F != 0.0F);
        {
          const FloatEnvironment again(wanted);
          CHECK(std::fegetround() == wanted);
        }
        CHECK(std::fegetround() == wanted);
      }
      CHECK(control() == before);
      CHECK(std::fegetround() == mode.rounding);
      CHECK(std::fetestexcept(FE_INEXACT) == 0);  // 2/3 was the environment's
    }
  }
}
