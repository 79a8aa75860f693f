#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include "fp8lab/core/counted.hpp"
#include "fp8lab/product/scale_variants.hpp"
#include "fp8lab/product/term_variants.hpp"
#include "fp8lab/product/variants.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/attempt.hpp"
#include "fp8lab/verify/expect.hpp"

namespace fp8lab {
namespace {

class WrongOutputs {
 public:
  WrongOutputs(const Product& product, std::span<const float> right)
      : product_(product), right_(right.begin(), right.end()) {}

  std::vector<WrongOutput> all() && {
    stores();
    casts();
    scales();
    terms();
    sums();
    return std::move(outputs_);
  }

 private:
  void add(std::string name, std::string text, const std::vector<float>& values) {
    add_codes(std::move(name), std::move(text), cast_output(values, product_.output, 1));
  }
  void add_codes(std::string name, std::string text, std::vector<std::byte> codes) {
    outputs_.push_back({std::move(name), std::move(text), std::move(codes)});
  }
  void add(std::string name, std::string text, const std::optional<Product>& wrong) {
    if (!wrong) return;
    if (const auto output = attempt([&] { return compute(*wrong, 1); }))
      add(std::move(name), std::move(text), *output);
  }
  void add(std::string name, std::string text, const std::optional<std::vector<float>>& wrong) {
    if (wrong) add(std::move(name), std::move(text), *wrong);
  }
  /// `change` edits the right values, [rows, columns].
  void edited(std::string name, std::string text,
              const std::function<void(std::vector<float>&)>& change) {
    std::vector<float> values = right_;
    change(values);
    add(std::move(name), std::move(text), values);
  }

  void stores() {
    const auto columns = static_cast<std::size_t>(product_.columns());
    const auto rows = static_cast<std::size_t>(product_.rows());
    const auto zero = [&](std::size_t high, std::size_t wide) {
      return [=](std::vector<float>& d) {
        for (std::size_t i = 0; i < std::min(high, rows); ++i)
          for (std::size_t j = 0; j < std::min(wide, columns); ++j) d[i * columns + j] = 0.0F;
      };
    };
    edited("zero_element", "one output is zero", zero(1, 1));
    edited("zero_tile_8x8", "a tile of 8 x 8 outputs is zero", zero(8, 8));
    edited("zero_tile_64x64", "a tile of 64 x 64 outputs is zero", zero(64, 64));
    edited("sign_of_element", "one output has the wrong sign",
           [](std::vector<float>& d) { d[0] = -d[0]; });
    edited("exchanged_columns", "two neighbouring columns are exchanged",
           [=](std::vector<float>& d) {
             for (std::size_t i = 0; columns > 1 && i < rows; ++i)
               std::swap(d[i * columns], d[i * columns + 1]);
           });
    for (const float gain : {0.72F, 0.99F, 0.999F})
      edited(fmt::format("gain_{}", gain), fmt::format("the output times {}", gain),
             [=](std::vector<float>& d) {
               for (float& x : d) x *= gain;
             });
  }

  void casts() {
    if (product_.output.format == FormatId::f32) {
      for (const FormatId id : {FormatId::bf16, FormatId::f16}) through(id);
      return;
    }
    OutputCast truncated = product_.output;
    truncated.policy.rounding = RoundingMode::toward_zero;
    add_codes("truncated_output", "the output truncated, not rounded to nearest",
              cast_output(right_, truncated, 1));
    if (product_.output.format != FormatId::bf16) through(FormatId::bf16);
  }

  void through(FormatId id) {
    add(fmt::format("output_through_{}", format(id).name),
        fmt::format("the output rounded to {} first", format(id).name),
        decode_codes(id, cast_output(right_, default_output(id), 1)));
  }

  void scales() {
    for (const auto& [side, letter] : {std::pair{Side::a, 'a'}, std::pair{Side::b, 'b'}}) {
      add(fmt::format("missing_scale_{}", letter), "a scale not applied",
          without_scales(product_, side));
      add(fmt::format("bf16_scale_{}", letter), "scales rounded to BF16",
          with_rounded_scales(product_, side, FormatId::bf16));
      add(fmt::format("e8m0_scale_{}", letter), "scales rounded up to powers of two",
          with_power_of_two_scales(product_, side));
      add(fmt::format("stale_scale_{}", letter), "the scale of the tile of K before",
          with_scales_moved_along_k(product_, side, -1));
      add(fmt::format("scale_{}_of_next_row", letter), "the scale of the next row of tiles",
          with_scales_moved_along_rows(product_, side, 1));
    }
  }

  void terms() {
    const std::int64_t k = product_.problem.a.k;
    for (const std::int64_t left_out : {1, 16, 128})
      if (left_out < k)
        add(fmt::format("dropped_{}_terms", left_out),
            fmt::format("the last {} of K left out", counted(left_out, "term")),
            compute(without_terms(product_, k - left_out, k), 1));
    add("fnuz_codes", "codes read with the other bias", with_fnuz_codes(product_));
  }

  void sums() {
    const GemmProblem& p = product_.problem;
    add("missing_promotion", "the first promotion does not happen",
        compute_missing_promotion(product_));
    const std::int64_t interval = p.promotion_interval > 0 ? p.promotion_interval : 128;
    add("bf16_accumulator", fmt::format("the sum rounded to BF16 every {} terms", interval),
        compute_in_intervals(product_, {.interval = interval, .rounded = FormatId::bf16}));
    for (const std::string_view name : {"sm90.wgmma.e4m3", "fp32"}) {
      const InstructionModel& model = find_instruction_model(name);
      if (model.accumulator == p.model || !stands_beside(model, product_)) continue;
      const Product other = with_accumulator(product_, model.accumulator);
      if (other.problem.promotion_interval == p.promotion_interval)
        add(fmt::format("accumulator_{}", name), fmt::format("accumulated as {} does", name),
            compute(other, 1));
    }
  }

  const Product& product_;
  std::vector<float> right_;
  std::vector<WrongOutput> outputs_;
};

}  // namespace

std::vector<WrongOutput> wrong_outputs(const Product& product, std::span<const float> right) {
  return WrongOutputs(product, right).all();
}

}  // namespace fp8lab
