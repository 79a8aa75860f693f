#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <string>
#include <utility>

#include "fp8lab/attention/judge.hpp"
#include "fp8lab/attention/outputs.hpp"
#include "fp8lab/attention/sage.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t kMostSageCauses = 4;
/// Mistakes are tried on some wrong rows first, and the best of them in full.
constexpr std::int64_t kSampledRows = 16;
constexpr std::size_t kMostSampledParts = 6;
constexpr std::size_t kMostTriedInFull = 8;

/// A kernel with one mistake.
struct SageMistake {
  std::string name;
  std::string text;
  const SageKernel* kernel;
  SageOptions options;
  SageVariant variant{};
};

class SageMistakes {
 public:
  SageMistakes(const AttentionShape& shape, const SageKernel& kernel, const SageOptions& options)
      : shape_(shape), kernel_(kernel), options_(options) {
    scales();
    kernel.nvfp4 ? of_nvfp4() : of_int8();
    softmax();
    means();
    others();
  }

  [[nodiscard]] const std::vector<SageMistake>& all() const { return found_; }

 private:
  template <typename Change>
  void add(std::string name, std::string text, const Change& change) {
    SageMistake mistake{std::move(name), std::move(text), &kernel_, options_};
    change(mistake);
    found_.push_back(std::move(mistake));
  }

  void neighbours(const std::string& name, const std::string& of, const std::string& each,
                  std::int64_t SageVariant::*member, std::int64_t by) {
    for (const std::int64_t sign : {1, -1})
      add(name,
          fmt::format("each {} has {}'s scale of the {} {}", each, of, each,
                      sign > 0 ? "after it" : "before it"),
          [&](SageMistake& m) { m.variant.*member = sign * by; });
  }

  void scales() {
    const bool threads = !kernel_.nvfp4 && options_.granularity == SageGranularity::thread;
    const std::string group = kernel_.nvfp4 ? "block of 16" : threads ? "thread's group" : "block";
    neighbours("k_scale_of_other_group", "K", group, &SageVariant::k_scale_shift, 1);
    neighbours("q_scale_of_other_group", "Q", group, &SageVariant::q_scale_shift, 1);
    const std::int64_t row = shape_.d / 16;
    if (threads || kernel_.nvfp4) {
      const std::string tile = kernel_.nvfp4 ? "row" : "tile";
      neighbours("k_scale_of_other_block", "K", tile, &SageVariant::k_scale_shift,
                 threads ? 4 : row);
      neighbours("q_scale_of_other_block", "Q", kernel_.nvfp4 ? "row" : "warp's part",
                 &SageVariant::q_scale_shift, threads ? 8 : row);
    }
    neighbours("v_scale_of_other_channel", "V", kernel_.nvfp4 ? "block of 16" : "channel",
               &SageVariant::v_scale_shift, 1);
  }

  void of_int8() {
    add("v_scale_dropped", "V's scales are 1", [](SageMistake& m) { m.variant.no_v_scale = true; });
    add("int8_rounding", "INT8 codes of Q and K are rounded to even at ties",
        [](SageMistake& m) { m.variant.even_ties = true; });
    add("int8_rounding", "INT8 codes of Q and K are cut",
        [](SageMistake& m) { m.variant.cut = true; });
    const bool thread = options_.granularity == SageGranularity::thread;
    add("granularity",
        thread ? "scales of Q and K are those of warps, not of threads"
               : "scales of Q and K are those of threads, not of warps",
        [&](SageMistake& m) {
          m.options.granularity = thread ? SageGranularity::warp : SageGranularity::thread;
        });
  }

  void of_nvfp4() {
    add("q_mean_not_added", "the product of Q's mean and K is not added to S",
        [](SageMistake& m) { m.variant.no_q_mean = true; });
    add("q_mean_of_other_block", "every block of Q has the first one's mean",
        [](SageMistake& m) { m.variant.same_q_mean = true; });
    add("p_block_scale", "P is divided by its block's scale after the cast of the scale",
        [](SageMistake& m) { m.variant.repaired_p_scale = true; });
  }

  void softmax() {
    add("p_scale", "P is cast without its factor, as numbers of at most 1",
        [](SageMistake& m) { m.variant.plain_p = true; });
    add("no_promotion", "P V is summed in the unit over all tiles",
        [](SageMistake& m) { m.variant.one_level = true; });
    add("sum_after_cast", "the row sum adds P after its cast, not p before it",
        [](SageMistake& m) { m.variant.sum_after_cast = true; });
    const double own = options_.softmax_scale > 0.0F
                           ? static_cast<double>(options_.softmax_scale)
                           : 1.0 / std::sqrt(static_cast<double>(shape_.d));
    const auto scale = [&](const char* name, const char* text, double value) {
      add(name, text, [&](SageMistake& m) { m.options.softmax_scale = static_cast<float>(value); });
    };
    scale("softmax_scale", "the softmax without its scale", 1.0);
    scale("softmax_scale", "the softmax's scale applied twice", own * own);
    scale("log2e", "exp2 without log2 e in the scale", own / std::numbers::log2e);
    scale("log2e", "log2 e twice in the scale", own * std::numbers::log2e);
  }

  void means() {
    add(options_.smooth ? "k_mean_not_removed" : "k_mean_removed",
        options_.smooth ? "K is quantized with its mean" : "K's mean is removed before its cast",
        [&](SageMistake& m) { m.options.smooth = !options_.smooth; });
  }

  void others() {
    if (shape_.m == shape_.n)
      add("mask", options_.causal ? "no row is masked" : "rows see columns up to their own alone",
          [&](SageMistake& m) { m.options.causal = !options_.causal; });
    const FormatId other = options_.input == FormatId::bf16 ? FormatId::f16 : FormatId::bf16;
    add("input_format", fmt::format("Q, K and V are {} numbers", format(other).name),
        [&](SageMistake& m) { m.options.input = other; });
    for (const SageKernel& kernel : sage_kernels())
      if (&kernel != &kernel_ && !kernel.nvfp4 && !kernel_.nvfp4)
        add("kernel", fmt::format("the kernel is {}", kernel.name),
            [&](SageMistake& m) { m.kernel = &kernel; });
  }

  const AttentionShape& shape_;
  const SageKernel& kernel_;
  const SageOptions& options_;
  std::vector<SageMistake> found_;
};

/// Parts of 16 rows with a wrong one, of different heads and places.
std::vector<AttentionRows> wrong_parts(const OutputJudge& judge) {
  std::vector<AttentionRows> wrong;
  for (const AttentionRows& part : attention_blocks(judge.shape(), kSampledRows)) {
    const auto first = judge.wrong_rows().begin() + part.head * judge.shape().m;
    if (std::any_of(first + part.begin, first + part.end, [](char row) { return row != 0; }))
      wrong.push_back(part);
  }
  if (wrong.size() <= kMostSampledParts) return wrong;
  std::vector<AttentionRows> some;
  for (std::size_t i = 0; i < kMostSampledParts; ++i)
    some.push_back(wrong[i * wrong.size() / kMostSampledParts]);
  return some;
}

/// The mistakes that fit the sample best, in their order.
std::vector<const SageMistake*> promising(const SageInputs& inputs, const OutputJudge& judge,
                                          const std::vector<SageMistake>& mistakes) {
  const std::vector<AttentionRows> parts = wrong_parts(judge);
  std::vector<OutputFit> fits;
  for (const SageMistake& m : mistakes)
    fits.push_back(judge.fit(
        {parts, judge.rounded(sage_rows(inputs, *m.kernel, m.options, m.variant, parts))}));
  std::vector<const SageMistake*> found;
  for (const std::size_t i : judge.promising(fits, judge.golden_fit(parts), kMostTriedInFull))
    found.push_back(&mistakes[i]);
  return found;
}

/// Causes of the best kind, best first.
class BestCauses {
 public:
  explicit BestCauses(const OutputJudge& judge) : judge_(judge) {}

  void consider(const std::string& name, const std::string& text, std::vector<float> outputs) {
    const OutputFit fit =
        judge_.fit({attention_blocks(judge_.shape(), judge_.shape().m), std::move(outputs)});
    const Explains explains = judge_.explains(fit);
    if (explains == Explains::nothing) return;
    if (explains < best_) found_.clear();
    best_ = std::min(best_, explains);
    if (explains == best_) found_.push_back({name, text, fit.mismatches(), fit.distance});
  }

  [[nodiscard]] std::vector<AttentionCause> take() {
    std::ranges::stable_sort(found_, {}, &AttentionCause::distance);
    if (found_.size() > kMostSageCauses) found_.resize(kMostSageCauses);
    return std::move(found_);
  }

 private:
  const OutputJudge& judge_;
  std::vector<AttentionCause> found_;
  Explains best_ = Explains::nothing;
};

}  // namespace

AttentionVerdict verify_sage_attention(const SageInputs& inputs, const SageKernel& kernel,
                                       const SageOptions& options, std::span<const float> got,
                                       FormatId output, double tolerance) {
  const FloatEnvironment environment;
  const AttentionShape& shape = inputs.shape;
  const std::vector<float> golden = sage_attention(inputs, kernel, options);
  require(got.size() == golden.size(), "got",
          fmt::format("[heads, m, d_v] = [{}, {}, {}]", shape.heads, shape.m, shape.d_v),
          counted(got.size(), "value"));
  require(tolerance >= 0.0 && std::isfinite(tolerance), "tolerance", "0 (every bit) or more",
          fmt::format("{}", tolerance));
  const OutputJudge judge(shape, got, golden, output, tolerance);
  AttentionVerdict verdict{std::ssize(golden),
                           judge.golden_fit().mismatches(),
                           judge.golden_fit().distance,
                           judge.passes(),
                           {}};
  if (verdict.pass) return verdict;
  verdict.where = judge.region().text(shape);
  BestCauses causes(judge);
  for (const OutputMistake& mistake : output_mistakes(judge))
    causes.consider(mistake.name, mistake.text, mistake.outputs());
  const SageMistakes mistakes(shape, kernel, options);
  for (const SageMistake* mistake : promising(inputs, judge, mistakes.all()))
    causes.consider(mistake->name, mistake->text,
                    judge.rounded(sage_attention(inputs, *mistake->kernel, mistake->options,
                                                 mistake->variant)));
  verdict.causes = causes.take();
  return verdict;
}

}  // namespace fp8lab
