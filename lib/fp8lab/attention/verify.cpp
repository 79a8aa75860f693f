#include "fp8lab/attention/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <tuple>

#include "fp8lab/attention/shape.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"

namespace fp8lab {
namespace {

/// A kernel with one mistake.
struct Mistake {
  std::string name;
  std::string text;
  AttentionInputs inputs;
  AttentionOptions options;
};

float rounded_to(FormatId output, float value) {
  if (output == FormatId::f32) return value;
  const Format& f = format(output);
  const CastPolicy& policy = f.storage_bits == 8 ? kNvidiaSatfinite : kNvidiaNosat;
  return static_cast<float>(round_trip(f, policy, value));
}

bool same(float x, float y) { return x == y || (std::isnan(x) && std::isnan(y)); }

struct Difference {
  std::int64_t mismatches = 0;
  double distance = 0.0;
};

Difference difference(const AttentionInputs& inputs, const AttentionOptions& options,
                      std::span<const float> got, FormatId output) {
  const std::vector<float> o = attention(inputs, options).o;
  Difference found;
  double squares = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < o.size(); ++i) {
    const float expected = rounded_to(output, o[i]);
    if (same(expected, got[i])) {
      norm += static_cast<double>(expected) * static_cast<double>(expected);
      continue;
    }
    ++found.mismatches;
    const double apart = static_cast<double>(got[i]) - static_cast<double>(expected);
    squares += std::isfinite(apart) ? apart * apart : INFINITY;
    norm += static_cast<double>(expected) * static_cast<double>(expected);
  }
  found.distance = squares == 0.0 ? 0.0 : std::sqrt(squares / norm);
  return found;
}

/// Memory that changed operands point into.
struct Held {
  std::vector<std::vector<float>> scales;
  std::vector<std::vector<std::uint8_t>> codes;
};

class Mistakes {
 public:
  Mistakes(const AttentionInputs& inputs, const AttentionOptions& options)
      : inputs_(inputs), options_(options), shape_(attention_shape(inputs)) {}

  std::vector<Mistake> all() {
    orders();
    numbers();
    scales();
    masks();
    heads();
    return std::move(found_);
  }

 private:
  using Change = std::function<void(AttentionInputs&, AttentionOptions&)>;
  void add(std::string name, std::string text, const Change& change) {
    Mistake mistake{std::move(name), std::move(text), inputs_, options_};
    change(mistake.inputs, mistake.options);
    found_.push_back(std::move(mistake));
  }

  void orders() {
    const bool reversed = options_.tile_order == TileOrder::last_to_first;
    const TileOrder other = reversed ? TileOrder::first_to_last : TileOrder::last_to_first;
    add("tile_order",
        fmt::format("tiles of K and V {}", reversed ? "first to last" : "last to first"),
        [&](AttentionInputs&, AttentionOptions& o) { o.tile_order = other; });
    for (const std::int64_t tile : {32, 64, 96, 128, 160, 176, 192, 224, 256}) {
      if (tile == options_.kv_tile) continue;
      add("kv_tile", fmt::format("tiles of {} columns", tile),
          [&](AttentionInputs&, AttentionOptions& o) { o.kv_tile = tile; });
      add("kv_tile_and_order", fmt::format("tiles of {} columns in the other order", tile),
          [&](AttentionInputs&, AttentionOptions& o) {
            o.kv_tile = tile;
            o.tile_order = other;
          });
    }
    const bool quads = options_.row_sum == RowSum::quads;
    add("row_sum",
        quads ? "the row sum in the order of columns" : "the row sum in the four parts of a quad",
        [&](AttentionInputs&, AttentionOptions& o) {
          o.row_sum = quads ? RowSum::columns : RowSum::quads;
        });
    add(options_.two_level ? "no_promotion" : "promotion",
        options_.two_level ? "P V accumulates in the tensor core over all tiles"
                           : "each tile's P V is added to O in FP32",
        [](AttentionInputs&, AttentionOptions& o) { o.two_level = !o.two_level; });
  }

  void numbers() {
    const bool e4m3 = options_.p_format == FormatId::e4m3fn;
    const FormatId other = e4m3 ? FormatId::e5m2 : FormatId::e4m3fn;
    for (const InstructionModel& known : instruction_models()) {
      const InstructionModel& own = find_instruction_model(options_.pv_model);
      if (!(known.accumulator == own.accumulator) || known.a_format != other ||
          known.b_format != inputs_.v.format)
        continue;
      add("p_format", fmt::format("P in {}", format(other).name),
          [&](AttentionInputs&, AttentionOptions& o) {
            o.p_format = other;
            o.pv_model = std::string(known.name);
          });
      break;
    }
    for (const float offset : {0.0F, 4.0F, 8.0F})
      if (offset != options_.p_offset)
        add("p_offset", fmt::format("P times 2^{:g}", offset),
            [&](AttentionInputs&, AttentionOptions& o) { o.p_offset = offset; });
    const float scale = softmax_scale(inputs_, options_);
    const auto with_scale = [&](std::string name, std::string text, float value) {
      if (value != scale)
        add(std::move(name), std::move(text),
            [&](AttentionInputs&, AttentionOptions& o) { o.softmax_scale = value; });
    };
    with_scale("softmax_scale", "the softmax without its scale", 1.0F);
    with_scale("softmax_scale", "1 / d as the scale of the softmax",
               1.0F / static_cast<float>(shape_.d));
    with_scale("softmax_scale", "1 / sqrt(d) as the scale of the softmax",
               static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape_.d))));
    with_scale("log2e", "exp2 without log2 e in the scale", scale / std::numbers::log2e_v<float>);
  }

  void scales() {
    using Member = AttentionOperand AttentionInputs::*;
    for (const auto& [member, name] : {std::tuple<Member, const char*>{&AttentionInputs::q, "Q"},
                                       std::tuple<Member, const char*>{&AttentionInputs::k, "K"},
                                       std::tuple<Member, const char*>{&AttentionInputs::v, "V"}}) {
      const std::span<const float> own = (inputs_.*member).inverse_scales;
      if (std::all_of(own.begin(), own.end(), [](float s) { return s == 1.0F; })) continue;
      const Member of = member;
      add("missing_scale", fmt::format("the scales of {} left out", name),
          [of](AttentionInputs& in, AttentionOptions&) { (in.*of).inverse_scales = {}; });
      if (std::all_of(own.begin(), own.end(), [&](float s) { return s == own[0]; })) continue;
      held_.scales.emplace_back(own.size(), own[0]);
      const std::span<const float> first = held_.scales.back();
      add("scale_of_head", fmt::format("the scale of {}'s first head for all heads", name),
          [of, first](AttentionInputs& in, AttentionOptions&) { (in.*of).inverse_scales = first; });
    }
  }

  void masks() {
    const std::int64_t right = options_.causal ? 0 : options_.window_right;
    const auto with = [&](std::string name, std::string text, std::int64_t left,
                          std::int64_t to_right) {
      add(std::move(name), std::move(text), [&](AttentionInputs&, AttentionOptions& o) {
        o.causal = false;
        o.window_left = left;
        o.window_right = to_right;
      });
    };
    const std::int64_t left = options_.window_left;
    if (right != kNoWindow || left != kNoWindow)
      with("no_mask", "no mask", kNoWindow, kNoWindow);
    else
      with("mask", "a causal mask", kNoWindow, 0);
    if (right != kNoWindow) {
      with("mask_off_by_one", "one column too many on the right", left, right + 1);
      if (right > 0) with("mask_off_by_one", "one column too few on the right", left, right - 1);
      if (shape_.m != shape_.n && shape_.n > shape_.m)
        with("mask_alignment", "n - m columns too many: the mask is aligned to the other corner",
             left, right + shape_.n - shape_.m);
    }
    if (left != kNoWindow) {
      with("mask_off_by_one", "one column too many on the left", left + 1, right);
      if (left > 0) with("mask_off_by_one", "one column too few on the left", left - 1, right);
    }
  }

  void heads() {
    const std::int64_t kv_heads = shape_.heads / shape_.group;
    if (shape_.group == 1 || kv_heads == 1) return;
    add("head_mapping", "head h reads KV head h mod kv_heads",
        [&](AttentionInputs& in, AttentionOptions&) {
          in.k = mapped(inputs_.k, kv_heads);
          in.v = mapped(inputs_.v, kv_heads);
        });
  }

  /// One KV head for each head of Q: number h mod kv_heads.
  AttentionOperand mapped(const AttentionOperand& x, std::int64_t kv_heads) {
    const auto size = static_cast<std::size_t>(x.rows * x.columns);
    std::vector<std::uint8_t> codes;
    std::vector<float> scales;
    for (std::int64_t head = 0; head < shape_.heads; ++head) {
      const auto from = static_cast<std::size_t>(head % kv_heads);
      const auto begin = x.codes.begin() + static_cast<std::ptrdiff_t>(from * size);
      codes.insert(codes.end(), begin, begin + static_cast<std::ptrdiff_t>(size));
      scales.push_back(scale_of(x, head % kv_heads));
    }
    held_.codes.push_back(std::move(codes));
    held_.scales.push_back(std::move(scales));
    return {x.format, held_.codes.back(), shape_.heads, x.rows, x.columns, held_.scales.back()};
  }

  const AttentionInputs& inputs_;
  const AttentionOptions& options_;
  AttentionShape shape_;
  Held held_;
  std::vector<Mistake> found_;
};

}  // namespace

AttentionVerdict verify_attention(const AttentionInputs& inputs, const AttentionOptions& options,
                                  std::span<const float> got, FormatId output, double tolerance) {
  const FloatEnvironment environment;
  validate(inputs, options);
  const AttentionShape shape = attention_shape(inputs);
  const auto outputs = static_cast<std::size_t>(shape.heads * shape.m * shape.d_v);
  require(got.size() == outputs, "got",
          fmt::format("[heads, m, d_v] = [{}, {}, {}]", shape.heads, shape.m, shape.d_v),
          counted(got.size(), "value"));
  require(tolerance >= 0.0 && std::isfinite(tolerance), "tolerance", "0 (every bit) or more",
          fmt::format("{}", tolerance));
  const Difference golden = difference(inputs, options, got, output);
  AttentionVerdict verdict{static_cast<std::int64_t>(outputs),
                           golden.mismatches,
                           golden.distance,
                           golden.mismatches == 0 || golden.distance <= tolerance,
                           {}};
  if (golden.mismatches == 0 || verdict.pass) return verdict;
  Mistakes mistakes(inputs, options);
  for (const Mistake& mistake : mistakes.all()) {
    const int terms = find_instruction_model(mistake.options.pv_model).accumulator.terms;
    if (mistake.options.kv_tile % terms != 0) continue;
    const Difference d = difference(mistake.inputs, mistake.options, got, output);
    constexpr double kNear = 0.25;
    if (d.mismatches == 0 || d.distance <= kNear * golden.distance)
      verdict.causes.push_back({mistake.name, mistake.text, d.mismatches, d.distance});
  }
  std::stable_sort(verdict.causes.begin(), verdict.causes.end(),
                   [](const AttentionCause& x, const AttentionCause& y) {
                     return std::tuple(x.mismatches != 0, x.distance) <
                            std::tuple(y.mismatches != 0, y.distance);
                   });
  // Where one gives every bit, those that do not are chance.
  if (!verdict.causes.empty() && verdict.causes.front().mismatches == 0)
    std::erase_if(verdict.causes, [](const AttentionCause& c) { return c.mismatches != 0; });
  return verdict;
}

std::string AttentionVerdict::text() const {
  const auto share = 100.0 * static_cast<double>(mismatches) / static_cast<double>(outputs);
  std::string out =
      fmt::format("{}: {} of {} outputs differ in bits ({:.3g} %), relative L2 distance {:.3g}\n",
                  pass ? "pass" : "mismatch", mismatches, outputs, share, distance);
  for (const AttentionCause& cause : causes)
    out += cause.mismatches == 0
               ? fmt::format("  cause: {}: {} (every bit)\n", cause.name, cause.text)
               : fmt::format("  cause: {}: {} (distance {:.3g}, {} outputs still differ)\n",
                             cause.name, cause.text, cause.distance, cause.mismatches);
  if (!pass && causes.empty()) out += "  no known mistake explains the difference\n";
  return out;
}

}  // namespace fp8lab
