#include "fp8lab/verify/kernel_causes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/product/partial_sums.hpp"
#include "fp8lab/product/split_k.hpp"
#include "fp8lab/tensors/codes.hpp"

namespace fp8lab {
namespace {

class Mistakes {
 public:
  explicit Mistakes(const Product& product)
      : problem_(product.problem), e_(product.epilogue), split_(product.split) {}

  std::vector<KernelMistake> all() && {
    tensor_scales();
    scales_of_rounded_sums();
    if (split_.parts > 1) splits();
    if (!e_.empty()) {
      factors();
      shapes_of_curves();
      roundings();
    }
    return std::move(mistakes_);
  }

 private:
  /// `change` makes the epilogue wrong.
  void add(std::string name, std::string text, const std::function<void(Epilogue&)>& change) {
    mistakes_.push_back({std::move(name), std::move(text), [change](const Product& right) {
                           Product wrong = right;
                           change(wrong.epilogue);
                           return std::optional(compute(wrong, 1));
                         }});
  }

  /// Both levels of scales are there, and the upper one is misread.
  void tensor_scales() {
    const bool a = problem_.scale_a.tensor_scale != 1.0F;
    const bool b = problem_.scale_b.tensor_scale != 1.0F;
    const auto each = [&](std::string_view name, std::string_view text, float (*read)(float)) {
      if (a)
        add_levels(fmt::format("{}_tensor_scale_a", name), fmt::format("A's {}", text), read,
                   nullptr);
      if (b)
        add_levels(fmt::format("{}_tensor_scale_b", name), fmt::format("B's {}", text), nullptr,
                   read);
      if (a && b)
        add_levels(fmt::format("{}_tensor_scale_a_and_b", name),
                   fmt::format("of both operands: {}", text), read, read);
    };
    each("missing", "tensor scale left out", [](float) { return 1.0F; });
    each("inverted", "divided by the tensor scale instead of multiplied",
         [](float scale) { return 1.0F / scale; });
    each("doubled", "tensor scale applied twice", [](float scale) { return scale * scale; });
  }

  /// Scales of rows or of the whole, applied to a sum that was stored in 16 bits.
  void scales_of_rounded_sums() {
    const bool any = !problem_.scale_a.empty() || !problem_.scale_b.empty();
    if (!any || applies_scales(problem_) || scaled_in_blocks(problem_) || split_.parts > 1) return;
    for (const FormatId id : {FormatId::bf16, FormatId::f16})
      mistakes_.push_back({fmt::format("{}_before_scales", format(id).name),
                           fmt::format("the sum rounded to {} before its scales", format(id).name),
                           [id](const Product& right) {
                             Product plain = right;
                             plain.epilogue = {};
                             drop_outer_scales(plain);
                             std::vector<float> sums = rounded(compute_sums(plain, 1), id);
                             scale_sums(right.problem, sums);
                             return std::optional(finish(right, std::move(sums)));
                           }});
  }

  void add_levels(std::string name, std::string text, float (*a)(float), float (*b)(float)) {
    mistakes_.push_back({std::move(name), std::move(text), [a, b](const Product& right) {
                           Product wrong = right;
                           GemmProblem& p = wrong.problem;
                           if (a != nullptr) p.scale_a.tensor_scale = a(p.scale_a.tensor_scale);
                           if (b != nullptr) p.scale_b.tensor_scale = b(p.scale_b.tensor_scale);
                           return std::optional(compute(wrong, 1));
                         }});
  }

  void add_split(const std::string& name, const std::string& text, const SplitK& split) {
    if (split == split_) return;
    mistakes_.push_back({name, text, [split](const Product& right) {
                           Product wrong = right;
                           wrong.split = split;
                           return std::optional(compute(wrong, 1));
                         }});
  }

  void splits() {
    add_split("not_split", "K summed as a whole, not in parts", {});
    for (const SplitOrder order : {SplitOrder::serial, SplitOrder::pairwise, SplitOrder::tree}) {
      SplitK other = split_;
      other.order = order;
      add_split(fmt::format("split_order_{}", to_string(order)),
                fmt::format("the parts of K added in the order {}", to_string(order)), other);
    }
    for (const FormatId id : {FormatId::bf16, FormatId::f16})
      mistakes_.push_back(
          {fmt::format("{}_split_parts", format(id).name),
           fmt::format("the parts of K rounded to {} before they are added", format(id).name),
           [id](const Product& right) {
             std::vector<std::vector<float>> parts;
             for (const Product& part : split_parts(right))
               parts.push_back(rounded(compute_sums(part, 1), id));
             std::vector<float> sums = add_up(std::move(parts), right.split.order);
             scale_sums(right.problem, sums);
             return std::optional(finish(right, std::move(sums)));
           }});
    for (const SplitCut cut : {SplitCut::contiguous, SplitCut::modulo}) {
      SplitK other = split_;
      other.cut = cut;
      add_split(fmt::format("split_cut_{}", to_string(cut)),
                fmt::format("K cut into {} parts", to_string(cut)), other);
    }
  }

  void factors() {
    if (!e_.bias.empty())
      add("missing_bias", "the bias left out", [](Epilogue& e) { e.bias = {}; });
    for (const FormatId id : {FormatId::bf16, FormatId::f16})
      if (!e_.bias.empty())
        mistakes_.push_back(
            {fmt::format("{}_bias", format(id).name),
             fmt::format("the bias rounded to {}", format(id).name), [id](const Product& right) {
               const std::vector<float> bias =
                   rounded({right.epilogue.bias.begin(), right.epilogue.bias.end()}, id);
               if (std::ranges::equal(bias, right.epilogue.bias))
                 return std::optional<std::vector<float>>{};
               Product wrong = right;
               wrong.epilogue.bias = bias;
               return std::optional(compute(wrong, 1));
             }});
    if (!e_.row_scales.empty())
      add("missing_row_scales", "the scales of rows left out",
          [](Epilogue& e) { e.row_scales = {}; });
    if (!e_.column_scales.empty())
      add("missing_column_scales", "the scales of columns left out",
          [](Epilogue& e) { e.column_scales = {}; });
    if (e_.alpha != 1.0F)
      add("missing_alpha", "alpha taken as 1", [](Epilogue& e) { e.alpha = 1.0F; });
    if (e_.c != nullptr) {
      add("missing_c", "C left out", [](Epilogue& e) { e.c = nullptr; });
      if (e_.beta != 1.0F)
        add("missing_beta", "beta taken as 1", [](Epilogue& e) { e.beta = 1.0F; });
    }
    if (!e_.output_scale) return;
    add("missing_output_scale", "the output's scale left out",
        [](Epilogue& e) { e.output_scale.reset(); });
    add("inverted_output_scale", "divided by the output's scale instead of multiplied",
        [](Epilogue& e) { e.output_scale = 1.0F / *e.output_scale; });
  }

  void shapes_of_curves() {
    for (const Activation other : activations()) {
      if (other == e_.activation || e_.gated() || other == Activation::swiglu) continue;
      const std::string name = other == Activation::none
                                   ? "missing_activation"
                                   : fmt::format("activation_{}", to_string(other));
      add(name,
          other == Activation::none ? "no activation"
                                    : fmt::format("{} as the activation", to_string(other)),
          [other](Epilogue& e) { e.activation = other; });
    }
    if (e_.activation != Activation::none && !e_.gated() && !e_.bias.empty())
      mistakes_.push_back({"bias_after_activation", "the bias added after the activation",
                           [](const Product& right) {
                             Product inner = right;
                             inner.epilogue.bias = {};
                             inner.epilogue.output_scale.reset();
                             Product outer = right;
                             outer.epilogue = {};
                             outer.epilogue.bias = right.epilogue.bias;
                             outer.epilogue.output_scale = right.epilogue.output_scale;
                             return std::optional(finish(outer, compute(inner, 1)));
                           }});
    if (e_.gated())
      mistakes_.push_back({"gate_and_factor_exchanged",
                           "the gate and the columns that it multiplies exchanged",
                           [](const Product& right) {
                             std::vector<float> v = pre_activations(right);
                             const auto half = static_cast<std::ptrdiff_t>(right.columns());
                             for (auto row = v.begin(); row != v.end(); row += 2 * half)
                               std::swap_ranges(row, row + half, row + half);
                             Product only_gate = right;
                             only_gate.epilogue = curve_of(right.epilogue);
                             return std::optional(finish(only_gate, std::move(v)));
                           }});
  }

  /// Kernels that are not fused: what comes before is stored in 16 bits.
  void roundings() {
    for (const FormatId id : {FormatId::bf16, FormatId::f16}) {
      const std::string_view name = format(id).name;
      mistakes_.push_back({fmt::format("{}_before_epilogue", name),
                           fmt::format("the sum rounded to {} before the epilogue", name),
                           [id](const Product& right) {
                             return std::optional(
                                 finish(right, rounded(compute_sums(right, 1), id)));
                           }});
      if (e_.activation == Activation::none) continue;
      mistakes_.push_back(
          {fmt::format("{}_before_activation", name),
           fmt::format("rounded to {} before the activation", name), [id](const Product& right) {
             Product curve = right;
             curve.epilogue = curve_of(right.epilogue);
             return std::optional(finish(curve, rounded(pre_activations(right), id)));
           }});
    }
  }

  static Epilogue curve_of(const Epilogue& e) {
    Epilogue curve;
    curve.activation = e.activation;
    curve.slope = e.slope;
    curve.activation_ulps = e.activation_ulps;
    curve.output_scale = e.output_scale;
    return curve;
  }

  /// What the activation is applied to, [m, n] of the sums.
  static std::vector<float> pre_activations(const Product& product) {
    Product linear = product;
    linear.epilogue.activation = Activation::none;
    linear.epilogue.output_scale.reset();
    return compute(linear, 1);
  }

  static std::vector<float> rounded(const std::vector<float>& values, FormatId id) {
    return decode_codes(id, cast_output(values, default_output(id), 1));
  }

  const GemmProblem& problem_;
  const Epilogue& e_;
  const SplitK& split_;
  std::vector<KernelMistake> mistakes_;
};

}  // namespace

std::vector<KernelMistake> kernel_mistakes(const Product& product) {
  return Mistakes(product).all();
}

}  // namespace fp8lab
