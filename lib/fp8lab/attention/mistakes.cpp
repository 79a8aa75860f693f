#include "fp8lab/attention/mistakes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>
#include <optional>
#include <utility>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/counted.hpp"

namespace fp8lab {
namespace {

using Member = AttentionOperand AttentionInputs::*;
constexpr std::array<Member, 3> kOperands{&AttentionInputs::q, &AttentionInputs::k,
                                          &AttentionInputs::v};
constexpr std::array<const char*, 3> kOperandNames{"Q", "K", "V"};

bool can_run(const AttentionMistake& mistake) {
  const int terms = find_instruction_model(mistake.options.pv_model).accumulator.terms;
  return mistake.options.kv_tile % terms == 0;
}

std::int64_t tiles_of(std::int64_t n, std::int64_t kv_tile) { return (n + kv_tile - 1) / kv_tile; }

}  // namespace

AttentionOperand ChangedOperands::with_scales(
    const AttentionOperand& x, const std::function<float(std::int64_t)>& scale_of_head) {
  std::vector<float>& scales = scales_.emplace_back();
  for (std::int64_t head = 0; head < x.heads; ++head) scales.push_back(scale_of_head(head));
  AttentionOperand other = x;
  other.inverse_scales = scales;
  return other;
}

AttentionOperand ChangedOperands::with_heads(
    const AttentionOperand& x, std::int64_t heads,
    const std::function<std::int64_t(std::int64_t)>& from,
    const std::function<std::int64_t(std::int64_t)>& scale) {
  const auto size = static_cast<std::size_t>(x.rows * x.columns);
  std::vector<std::uint8_t>& codes = codes_.emplace_back();
  std::vector<float>& scales = scales_.emplace_back();
  for (std::int64_t head = 0; head < heads; ++head) {
    const auto own = x.codes.subspan(static_cast<std::size_t>(from(head)) * size, size);
    codes.insert(codes.end(), own.begin(), own.end());
    scales.push_back(scale_of(x, scale(head)));
  }
  return {x.format, codes, heads, x.rows, x.columns, scales};
}

AttentionOperand ChangedOperands::with_rows(const AttentionOperand& x, std::int64_t rows,
                                            const std::function<std::int64_t(std::int64_t)>& from) {
  const auto width = static_cast<std::size_t>(x.columns);
  std::vector<std::uint8_t>& codes = codes_.emplace_back();
  codes.resize(static_cast<std::size_t>(x.heads * rows) * width);
  for (std::int64_t to = 0; to < x.heads * rows; ++to) {
    const std::int64_t row = from(to % rows);
    if (row < 0) continue;
    const auto own =
        x.codes.subspan(static_cast<std::size_t>(to / rows * x.rows + row) * width, width);
    std::copy(own.begin(), own.end(), codes.begin() + to * x.columns);
  }
  return {x.format, codes, x.heads, rows, x.columns, x.inverse_scales};
}

AttentionOperand ChangedOperands::with_memory(
    const AttentionOperand& x, const std::function<std::int64_t(std::int64_t)>& from) {
  std::vector<std::uint8_t>& codes = codes_.emplace_back(x.codes.size());
  for (std::size_t at = 0; at < codes.size(); ++at)
    codes[at] = x.codes[static_cast<std::size_t>(from(static_cast<std::int64_t>(at)))];
  return {x.format, codes, x.heads, x.rows, x.columns, x.inverse_scales};
}

AttentionOperand ChangedOperands::with_columns(
    const AttentionOperand& x,
    const std::function<std::int64_t(std::int64_t, std::int64_t)>& from) {
  std::vector<std::uint8_t>& codes = codes_.emplace_back(x.codes.size());
  for (std::int64_t line = 0; line < x.heads * x.rows; ++line)
    for (std::int64_t column = 0; column < x.columns; ++column)
      codes[static_cast<std::size_t>(line * x.columns + column)] =
          x.codes[static_cast<std::size_t>(line * x.columns + from(line % x.rows, column))];
  return {x.format, codes, x.heads, x.rows, x.columns, x.inverse_scales};
}

AttentionOperand ChangedOperands::without_columns(const AttentionOperand& x, std::int64_t begin,
                                                  std::int64_t end) {
  std::vector<std::uint8_t>& codes = codes_.emplace_back(x.codes.begin(), x.codes.end());
  for (std::size_t at = 0; at < codes.size(); ++at) {
    const std::int64_t column = static_cast<std::int64_t>(at) % x.columns;
    if (column >= begin && column < end) codes[at] = 0;
  }
  return {x.format, codes, x.heads, x.rows, x.columns, x.inverse_scales};
}

AttentionMistakes::AttentionMistakes(const AttentionInputs& inputs, const AttentionOptions& options)
    : inputs_(inputs), options_(options), shape_(attention_shape(inputs)) {}

void AttentionMistakes::add(std::string name, std::string text, const Change& change) {
  AttentionMistake mistake{std::move(name), std::move(text), inputs_, options_, {}};
  change(mistake);
  if (can_run(mistake)) found_.push_back(std::move(mistake));
}

void AttentionMistakes::add_known() {
  orders();
  p_of_softmax();
  exponentials();
  stale_maxima();
  softmax_scales();
  scales();
  scales_of_other_heads();
  rounded_scales();
  masks();
  masks_of_rows();
  hidden_columns();
  heads();
  softmax();
  threads();
  rows_of_v();
  zero_rows();
  const std::int64_t tiles = tiles_of(shape_.n, options_.kv_tile);
  constexpr std::int64_t kMostTiles = 12;
  for (std::int64_t t = 0; t < tiles && tiles <= kMostTiles; ++t) add_tile(t);
  memory();
  splits();  // a lost part may be a lost tile
  formats();
  units();
}

void AttentionMistakes::orders() {
  const bool reversed = options_.tile_order == TileOrder::last_to_first;
  const TileOrder other = reversed ? TileOrder::first_to_last : TileOrder::last_to_first;
  add("tile_order",
      fmt::format("tiles of K and V {}", reversed ? "first to last" : "last to first"),
      [&](AttentionMistake& m) { m.options.tile_order = other; });
  for (const std::int64_t tile : {32, 64, 96, 128, 160, 176, 192, 224, 256}) {
    if (tile == options_.kv_tile) continue;
    add("kv_tile", fmt::format("tiles of {} columns", tile),
        [&](AttentionMistake& m) { m.options.kv_tile = tile; });
    add("kv_tile_and_order", fmt::format("tiles of {} columns in the other order", tile),
        [&](AttentionMistake& m) {
          m.options.kv_tile = tile;
          m.options.tile_order = other;
        });
  }
  const bool quads = options_.row_sum == RowSum::quads;
  add("row_sum",
      quads ? "the row sum in the order of columns" : "the row sum in the four parts of a quad",
      [&](AttentionMistake& m) { m.options.row_sum = quads ? RowSum::columns : RowSum::quads; });
  add(options_.two_level ? "no_promotion" : "promotion",
      options_.two_level ? "P V accumulates in the tensor core over all tiles"
                         : "each tile's P V is added to O in FP32",
      [](AttentionMistake& m) { m.options.two_level = !m.options.two_level; });
}

void AttentionMistakes::p_of_softmax() {
  const FormatId other = options_.p_format == FormatId::e4m3fn ? FormatId::e5m2 : FormatId::e4m3fn;
  if (const auto model = instruction_for(options_.pv_model, other, inputs_.v.format))
    add("p_format", fmt::format("P in {}", format(other).name), [&](AttentionMistake& m) {
      m.options.p_format = other;
      m.options.pv_model = *model;
    });
  const auto offset_of = [&](const std::string& text, float offset) {
    if (offset != options_.p_offset)
      add("p_offset", text, [&](AttentionMistake& m) { m.options.p_offset = offset; });
  };
  for (int offset = 0; offset <= 10; ++offset)
    offset_of(fmt::format("P times 2^{}", offset), static_cast<float>(offset));
  for (const float most : {448.0F, 240.0F, 57344.0F})
    offset_of(fmt::format("P times {:g}", most), std::log2(most));
  const auto cast = [&](const char* text, const CastPolicy& policy) {
    add("p_cast", text, [&](AttentionMistake& m) { m.variant.p_cast = policy; });
  };
  cast("P is cut (rounded toward zero) in its cast", {.rounding = RoundingMode::toward_zero});
  cast("P is rounded away from zero at ties", {.rounding = RoundingMode::nearest_away});
  cast("P below the smallest normal number becomes 0", kFlush);
  add("sum_after_cast", "the row sum adds P after its cast, not p before it",
      [](AttentionMistake& m) { m.variant.sum_after_cast = true; });
}

void AttentionMistakes::exponentials() {
  add("exp2", "exp2 is a straight line between powers of two",
      [](AttentionMistake& m) { m.variant.exponential = Exponential::straight; });
  for (const FormatId id : {FormatId::bf16, FormatId::f16})
    add("exp2", fmt::format("exp2 is rounded to {}", format(id).name),
        [&](AttentionMistake& m) { m.variant.p_format = id; });
}

void AttentionMistakes::threads() {
  add("sum_of_thread",
      "the row sums of the four threads of a quad are not added: each column is divided by the sum "
      "of its own thread",
      [](AttentionMistake& m) {
        m.options.row_sum = RowSum::quads;
        m.variant.sum_of_thread = true;
      });
  for (const std::int64_t bit : {1, 2, 4, 8, 16, 32, 64}) {
    if (bit >= shape_.m) break;
    add("sum_of_other_row", fmt::format("row r is divided by the row sum of row r xor {}", bit),
        [&](AttentionMistake& m) { m.variant.sum_row_xor = bit; });
    add("alpha_of_other_row",
        fmt::format("row r is rescaled where the maximum of row r xor {} grows", bit),
        [&](AttentionMistake& m) { m.variant.alpha_row_xor = bit; });
  }
}

void AttentionMistakes::stale_maxima() {
  std::vector<float> offsets{options_.p_offset};
  for (const float offset : {8.0F, 4.0F})
    if (offset != options_.p_offset) offsets.push_back(offset);
  for (const float offset : offsets) {
    for (const float threshold : {0.0F, 0.75F, 4.0F, 8.0F}) {
      if (threshold == options_.rescale_threshold) continue;
      const float most = options_.p_format == FormatId::e4m3fn ? 8.8F : 15.8F;
      const std::string text =
          threshold == 0.0F ? "the maximum follows every element: it is never stale"
                            : fmt::format("the maximum may be stale by 2^{:g} with P times 2^{:g}",
                                          threshold, offset);
      const bool saturates = threshold + offset > most;
      add(saturates ? "stale_maximum_saturates_p" : "rescale_threshold",
          saturates ? text + fmt::format(": P reaches 2^{:g} and saturates in {}, the row sum does "
                                         "not (FlashAttention pull requests 2694, 2713)",
                                         offset + threshold, format(options_.p_format).name)
                    : text,
          [&](AttentionMistake& m) {
            m.options.p_offset = offset;
            m.options.rescale_threshold = threshold;
          });
    }
  }
}

void AttentionMistakes::softmax_scales() {
  const float scale = softmax_scale(inputs_, options_);
  const auto root = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape_.d)));
  const auto with = [&](const char* name, const char* text, float value) {
    if (value != scale)
      add(name, text, [&](AttentionMistake& m) { m.options.softmax_scale = value; });
  };
  with("softmax_scale", "the softmax without its scale", 1.0F);
  with("softmax_scale", "1 / d as the scale of the softmax", 1.0F / static_cast<float>(shape_.d));
  with("softmax_scale", "1 / sqrt(d) as the scale of the softmax", root);
  if (shape_.d_v != shape_.d)
    with("softmax_scale", "1 / sqrt(d_v) as the scale of the softmax",
         static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape_.d_v))));
  with("softmax_scale", "the softmax's scale applied twice", scale * scale);
  with("softmax_scale", "a division by the softmax's scale", 1.0F / scale);
  with("log2e", "exp2 without log2 e in the scale", scale / std::numbers::log2e_v<float>);
  with("log2e", "log2 e twice in the scale", scale * std::numbers::log2e_v<float>);
}

void AttentionMistakes::softmax() {
  const auto variant = [&](const char* name, const char* text, const auto& change) {
    add(name, text, [&](AttentionMistake& m) { change(m.variant); });
  };
  variant("o_not_rescaled", "O is not rescaled where the maximum grows",
          [](AttentionVariant& v) { v.keeps_o = true; });
  variant("sum_not_rescaled", "the row sum is not rescaled where the maximum grows",
          [](AttentionVariant& v) { v.keeps_sum = true; });
  variant("nothing_rescaled",
          "neither O nor the row sum is rescaled where the maximum grows: each tile counts by its "
          "own maximum",
          [](AttentionVariant& v) { v.keeps_o = v.keeps_sum = true; });
  variant("stale_maximum", "the maximum of the first tile is kept for all tiles",
          [](AttentionVariant& v) { v.maximum = RowMaximum::first_tile; });
  variant("maximum_of_tile",
          "the maximum of each tile is that of the tile alone, also if it is smaller",
          [](AttentionVariant& v) { v.maximum = RowMaximum::own_tile; });
  variant("no_maximum", "no maximum is subtracted before exp2",
          [](AttentionVariant& v) { v.maximum = RowMaximum::none; });
  add("position_bias",
      "scores have a bias of positions (ALiBi): slopes 2^(-8 (h + 1) / heads), times j - i - n + m",
      [&](AttentionMistake& m) {
        for (std::int64_t h = 0; h < shape_.heads; ++h)
          m.variant.slopes.push_back(static_cast<float>(
              std::exp2(-8.0 * static_cast<double>(h + 1) / static_cast<double>(shape_.heads))));
      });
  variant("no_division", "O is not divided by the row sum",
          [](AttentionVariant& v) { v.divisions = 0; });
  variant("two_divisions", "O is divided by the row sum twice",
          [](AttentionVariant& v) { v.divisions = 2; });
  if (options_.soft_cap > 0.0F)
    add("soft_cap", "the scores have no soft cap",
        [](AttentionMistake& m) { m.options.soft_cap = 0.0F; });
  if (options_.soft_cap > 0.0F)
    add("soft_cap",
        "the soft cap is taken of scores that the softmax's scale does not yet multiply",
        [&](AttentionMistake& m) { m.options.soft_cap *= softmax_scale(inputs_, options_); });
  if (!options_.sinks.empty()) {
    add("sink", "the sinks are left out of the row sum",
        [](AttentionMistake& m) { m.options.sinks.clear(); });
    add("sink", "the sinks are taken to base 2: without log2 e", [](AttentionMistake& m) {
      for (float& sink : m.options.sinks) sink /= std::numbers::log2e_v<float>;
    });
    add("sink", "the sinks are multiplied by the softmax's scale", [&](AttentionMistake& m) {
      for (float& sink : m.options.sinks) sink *= softmax_scale(inputs_, options_);
    });
    add("sink", "all heads have the first head's sink",
        [](AttentionMistake& m) { std::ranges::fill(m.options.sinks, m.options.sinks.front()); });
    add("sink", "each head has the next head's sink", [](AttentionMistake& m) {
      std::rotate(m.options.sinks.begin(), m.options.sinks.begin() + 1, m.options.sinks.end());
    });
    add("sink", "each head has the previous head's sink", [](AttentionMistake& m) {
      std::rotate(m.options.sinks.begin(), m.options.sinks.end() - 1, m.options.sinks.end());
    });
  }
  variant("hidden_in_sum", "columns that the mask hides count in the row sum",
          [](AttentionVariant& v) { v.hidden_in_sum = true; });
  const auto alpha = [&](const char* text, float power) {
    variant("wrong_alpha", text, [&](AttentionVariant& v) { v.alpha_power = power; });
  };
  alpha("the factor of O and the row sum is exp of the maxima's difference, not exp2",
        std::numbers::log2e_v<float>);
  alpha("the factor of O and the row sum has no log2 e", 1.0F / std::numbers::log2e_v<float>);
  alpha("O and the row sum are divided by alpha where the maximum grows", -1.0F);
  alpha("O and the row sum are rescaled twice where the maximum grows", 2.0F);
  variant("sum_of_last_tile", "the row sum is that of the last tile alone",
          [](AttentionVariant& v) { v.sum_restarts = true; });
  for (const FormatId id : {FormatId::bf16, FormatId::f16}) {
    const std::string name(format(id).name);
    variant("s_format", ("S is rounded to " + name + " before the softmax").c_str(),
            [&](AttentionVariant& v) { v.s_format = id; });
    variant("o_format", ("O is kept in " + name + " between tiles").c_str(),
            [&](AttentionVariant& v) { v.o_format = id; });
    variant("p_format", ("P stays in " + name + ": it is not cast to FP8").c_str(),
            [&](AttentionVariant& v) { v.p_wide = id; });
  }
}

void AttentionMistakes::splits() {
  if (options_.splits > 1)
    add("not_split", "the tiles of K and V are not split: nothing is merged",
        [](AttentionMistake& m) { m.options.splits = 1; });
  struct Merge {
    const char* name;
    const char* text;
    SplitMerge merge;
  };
  constexpr std::array<Merge, 5> kMerges{{
      {"split_average", "the outputs of {} parts of K and V are averaged without their weights",
       SplitMerge::average},
      {"split_merge",
       "the outputs of {} parts of K and V are weighted by exp2 of their natural "
       "logarithms",
       SplitMerge::powers_of_two},
      {"split_merge",
       "the outputs of {} parts of K and V are weighted by exp of their logarithms "
       "to base 2",
       SplitMerge::e_of_log2},
      {"split_merge", "the weights of {} parts of K and V are not divided by their sum",
       SplitMerge::not_normalized},
      {"splits", "{} parts of K and V are merged", SplitMerge::right},
  }};
  // Parts of tiles, or of columns where these are others.
  struct Parts {
    std::int64_t count;
    bool of_columns;
  };
  const std::int64_t tiles = tiles_of(shape_.n, options_.kv_tile);
  std::vector<Parts> parts;
  if (options_.splits > 1) parts.push_back({options_.splits, false});
  for (const std::int64_t count : {2, 3, 4, 5, 6, 8, 16}) {
    // Six tiles in four parts are three parts.
    const std::int64_t each = (tiles + count - 1) / count;
    const bool distinct = (tiles + each - 1) / each == count;
    if (count <= tiles && distinct && count != options_.splits) parts.push_back({count, false});
    if (count <= shape_.n && (tiles % count != 0 || shape_.n % options_.kv_tile != 0))
      parts.push_back({count, true});
  }
  const auto add_parts = [&](const char* name, const std::string& text, const Parts& one,
                             SplitMerge merge, std::int64_t lost) {
    add(name, text + (one.of_columns ? ", of equal numbers of columns" : ""),
        [&](AttentionMistake& m) {
          m.options.splits = one.count;
          m.variant.splits_columns = one.of_columns;
          m.variant.merge = merge;
          m.variant.lost_part = lost;
        });
  };
  for (const Merge& merge : kMerges)
    for (const Parts& one : parts)
      if (merge.merge != SplitMerge::right || one.count != options_.splits || one.of_columns)
        add_parts(merge.name, fmt::format(fmt::runtime(merge.text), one.count), one, merge.merge,
                  -1);
  constexpr std::int64_t kMostLost = 5;
  for (const Parts& one : parts)
    for (std::int64_t lost = 0; lost < one.count && one.count <= kMostLost; ++lost)
      add_parts("part_lost",
                fmt::format("part {} of {} parts of K and V is not merged", lost, one.count), one,
                SplitMerge::right, lost);
}

void AttentionMistakes::units() {
  const auto other = [&](const char* product, std::string AttentionOptions::*model, FormatId a,
                         FormatId b) {
    const AccumulatorModel own = find_instruction_model(options_.*model).accumulator;
    std::vector<AccumulatorModel> tried{own};
    for (const InstructionModel& known : instruction_models()) {
      const bool reads =
          known.standing == Standing::definition || (known.a_format == a && known.b_format == b);
      if (!reads || std::ranges::find(tried, known.accumulator) != tried.end()) continue;
      tried.push_back(known.accumulator);
      add(model == &AttentionOptions::qk_model ? "qk_model" : "pv_model",
          fmt::format("{} in the accumulator of {}", product, known.name),
          [&](AttentionMistake& m) { m.options.*model = std::string(known.name); });
    }
  };
  other("Q K^T", &AttentionOptions::qk_model, inputs_.q.format, inputs_.k.format);
  other("P V", &AttentionOptions::pv_model, options_.p_format, inputs_.v.format);
}

void AttentionMistakes::scales_of(std::span<const Member> members, const std::string& names) {
  const auto each = [&](const char* name, const std::string& text, const auto& value) {
    bool other = false;
    const auto replaced = [&](const AttentionOperand& x) {
      return operands_.with_scales(x, [&](std::int64_t head) {
        const float scale = value(x, head);
        other |= scale != scale_of(x, head);
        return scale;
      });
    };
    std::vector<AttentionOperand> operands;
    for (const Member member : members) operands.push_back(replaced(inputs_.*member));
    if (other)
      add(name, text, [&](AttentionMistake& m) {
        for (std::size_t i = 0; i < members.size(); ++i) m.inputs.*members[i] = operands[i];
      });
  };
  using Operand = const AttentionOperand&;
  const bool one = members.size() == 1;
  const std::string of = one ? names + "'s" : "the";
  const std::string whose = one ? "" : " (" + names + ")";
  each("missing_scale", fmt::format("the scales of {} left out", names),
       [](Operand, std::int64_t) { return 1.0F; });
  each("scale_of_head", fmt::format("the scale of {} first head for all heads{}", of, whose),
       [](Operand x, std::int64_t) { return scale_of(x, 0); });
  const auto largest = [](Operand x) {
    return x.inverse_scales.empty() ? 1.0F : *std::ranges::max_element(x.inverse_scales);
  };
  each("scale_per_tensor",
       fmt::format("one scale, the largest, for all heads of {} (per tensor for per head)", names),
       [&](Operand x, std::int64_t) { return largest(x); });
  each("scale_of_next_head", fmt::format("each head of {} has the next head's scale", names),
       [](Operand x, std::int64_t head) { return scale_of(x, (head + 1) % x.heads); });
  each("scale_of_previous_head",
       fmt::format("each head of {} has the previous head's scale", names),
       [](Operand x, std::int64_t head) { return scale_of(x, (head + x.heads - 1) % x.heads); });
  each("inverted_scale", fmt::format("{} divided by its scales instead of multiplied", names),
       [](Operand x, std::int64_t head) { return 1.0F / scale_of(x, head); });
  each("scale_twice", fmt::format("the scales of {} applied twice", names),
       [](Operand x, std::int64_t head) { return scale_of(x, head) * scale_of(x, head); });
  const std::int64_t kv_heads = inputs_.k.heads;
  each("scale_of_kv_head", fmt::format("head h of {} has the scale of its head h / group", names),
       [&](Operand x, std::int64_t head) { return scale_of(x, head / shape_.group % x.heads); });
  each("scale_in_turn", fmt::format("head h of {} has the scale of its head h mod kv_heads", names),
       [&](Operand x, std::int64_t head) { return scale_of(x, head % kv_heads); });
}

void AttentionMistakes::scales() {
  for (std::size_t i = 0; i < kOperands.size(); ++i)
    scales_of(std::span(kOperands).subspan(i, 1), kOperandNames[i]);
  scales_of(kOperands, "Q, K and V");
  scales_of(std::span(kOperands).first(2), "Q and K");
  scales_of(std::span(kOperands).last(2), "K and V");
  for (std::size_t to = 0; to < kOperands.size(); ++to)
    for (std::size_t from = 0; from < kOperands.size(); ++from) {
      const AttentionOperand& x = inputs_.*kOperands[to];
      const AttentionOperand& y = inputs_.*kOperands[from];
      if (to == from || x.heads != y.heads) continue;
      add("scale_of_operand",
          fmt::format("{} has {}'s scales", kOperandNames[to], kOperandNames[from]),
          [&](AttentionMistake& m) {
            (m.inputs.*kOperands[to]).inverse_scales = y.inverse_scales;
          });
      if (to < from)
        add("scale_of_operand",
            fmt::format("the scales of {} and {} exchanged", kOperandNames[to],
                        kOperandNames[from]),
            [&](AttentionMistake& m) {
              std::swap((m.inputs.*kOperands[to]).inverse_scales,
                        (m.inputs.*kOperands[from]).inverse_scales);
            });
    }
}

/// Scales of K and V in the order of other heads, which heads of Q do not share.
void AttentionMistakes::scales_of_other_heads() {
  const std::int64_t kv_heads = inputs_.k.heads;
  if (kv_heads == 1 || shape_.group == 1) return;
  const auto own = [this](std::int64_t h) { return h / shape_.group; };
  for (const std::size_t i : {std::size_t{1}, std::size_t{2}})
    add("scale_in_turn",
        fmt::format("head h of Q has {}'s scale of head h mod kv_heads", kOperandNames[i]),
        [&](AttentionMistake& m) {
          for (const std::size_t of : {std::size_t{1}, std::size_t{2}})
            m.inputs.*kOperands[of] = operands_.with_heads(
                inputs_.*kOperands[of], shape_.heads, own,
                [&](std::int64_t h) { return of == i ? h % kv_heads : h / shape_.group; });
        });
}

void AttentionMistakes::rounded_scales() {
  struct Rounding {
    const char* text;
    std::function<float(float)> rounded;
  };
  const auto power = [](float x, bool up) {
    int exponent = 0;
    const float fraction = std::frexp(x, &exponent);
    return std::ldexp(1.0F, up && fraction > 0.5F ? exponent : exponent - 1);
  };
  const std::array<Rounding, 4> roundings{{
      {"rounded up to powers of two", [=](float x) { return power(x, true); }},
      {"rounded down to powers of two", [=](float x) { return power(x, false); }},
      {"rounded to bf16",
       [](float x) {
         return static_cast<float>(round_trip(format(FormatId::bf16), kNvidiaNosat, x));
       }},
      {"rounded to f16",
       [](float x) {
         return static_cast<float>(round_trip(format(FormatId::f16), kNvidiaNosat, x));
       }},
  }};
  struct Subset {
    const char* names;
    std::vector<std::size_t> operands;
  };
  const std::array<Subset, 6> subsets{{{"Q, K and V", {0, 1, 2}},
                                       {"Q and K", {0, 1}},
                                       {"K and V", {1, 2}},
                                       {"Q", {0}},
                                       {"K", {1}},
                                       {"V", {2}}}};
  for (const Rounding& rounding : roundings)
    for (const Subset& subset : subsets) {
      const bool changes = std::ranges::all_of(subset.operands, [&](std::size_t i) {
        const AttentionOperand& x = inputs_.*kOperands[i];
        return std::ranges::any_of(x.inverse_scales, [&](float scale) {
          return scale > 0.0F && std::isfinite(scale) && rounding.rounded(scale) != scale;
        });
      });
      if (!changes) continue;
      add("scale_rounded", fmt::format("the scales of {} are {}", subset.names, rounding.text),
          [&](AttentionMistake& m) {
            for (const std::size_t i : subset.operands)
              m.inputs.*kOperands[i] =
                  operands_.with_scales(inputs_.*kOperands[i], [&](std::int64_t head) {
                    const float scale = scale_of(inputs_.*kOperands[i], head);
                    return scale > 0.0F && std::isfinite(scale) ? rounding.rounded(scale) : scale;
                  });
          });
    }
}

void AttentionMistakes::formats() {
  const auto model_for = [&](AttentionMistake& m) {
    const auto qk = instruction_for(options_.qk_model, m.inputs.q.format, m.inputs.k.format);
    const auto pv = instruction_for(options_.pv_model, options_.p_format, m.inputs.v.format);
    if (!qk || !pv) return false;
    m.options.qk_model = *qk;
    m.options.pv_model = *pv;
    return true;
  };
  for (std::size_t i = 0; i < kOperands.size(); ++i) {
    const FormatId own = (inputs_.*kOperands[i]).format;
    const FormatId other = own == FormatId::e4m3fn ? FormatId::e5m2 : FormatId::e4m3fn;
    AttentionMistake mistake{
        "operand_format",
        fmt::format("the codes of {} read as {}", kOperandNames[i], format(other).name),
        inputs_,
        options_,
        {}};
    (mistake.inputs.*kOperands[i]).format = other;
    if (model_for(mistake) && can_run(mistake)) found_.push_back(std::move(mistake));
    for (const float factor : {0.5F, 2.0F})
      add("operand_format",
          factor < 1.0F ? fmt::format("the codes of {} read as FNUZ ones: half of their values",
                                      kOperandNames[i])
                        : fmt::format("{} read at twice its values, as FNUZ codes taken for OCP's",
                                      kOperandNames[i]),
          [&](AttentionMistake& m) {
            AttentionOperand& x = m.inputs.*kOperands[i];
            x = operands_.with_scales(x, [&](std::int64_t head) {
              return scale_of(inputs_.*kOperands[i], head) * factor;
            });
          });
  }
}

void AttentionMistakes::masks() {
  const std::int64_t right = options_.causal ? 0 : options_.window_right;
  const std::int64_t left = options_.window_left;
  const auto with = [&](const char* name, const char* text, std::int64_t to_left,
                        std::int64_t to_right) {
    add(name, text, [&](AttentionMistake& m) {
      m.options.causal = false;
      m.options.window_left = to_left;
      m.options.window_right = to_right;
    });
  };
  if (right != kNoWindow || left != kNoWindow)
    with("no_mask", "no mask", kNoWindow, kNoWindow);
  else
    with("mask", "a causal mask", kNoWindow, 0);
  if (right != kNoWindow) {
    with("mask_off_by_one", "one column too many on the right", left, right + 1);
    if (right > 0) with("mask_off_by_one", "one column too few on the right", left, right - 1);
  }
  if (left != kNoWindow) {
    with("mask_off_by_one", "one column too many on the left", left + 1, right);
    if (left > 0) with("mask_off_by_one", "one column too few on the left", left - 1, right);
    if (right != kNoWindow) {
      with("no_window", "no limit on the left", kNoWindow, right);
      with("no_window", "no limit on the right", left, kNoWindow);
      if (right > 0) with("mask", "the window is causal: nothing to the right", left, 0);
    }
  }
}

/// Masks that take the place of a row from elsewhere.
void AttentionMistakes::masks_of_rows() {
  const std::int64_t right = options_.causal ? 0 : options_.window_right;
  if (right == kNoWindow && options_.window_left == kNoWindow) return;
  const auto seen_as = [&](const char* name, const std::string& text, const auto& row_of) {
    bool all = true;  // no mask is another mistake
    for (std::int64_t row = 0; row < shape_.m; ++row) {
      const SeenColumns seen = seen_columns(shape_, options_, row_of(std::int64_t{0}, row));
      all &= seen.begin == 0 && seen.end == shape_.n;
    }
    if (all) return;
    add(name, text, [&](AttentionMistake& m) {
      for (std::int64_t head = 0; head < shape_.heads; ++head)
        for (std::int64_t row = 0; row < shape_.m; ++row)
          m.variant.seen.push_back(seen_columns(shape_, options_, row_of(head, row)));
    });
  };
  const std::int64_t block = options_.q_tile;
  seen_as("mask_of_tiles", "all rows of a block see what its first row sees",
          [=](std::int64_t, std::int64_t row) { return row / block * block; });
  if (shape_.group > 1) {
    const std::int64_t group = shape_.group;
    const std::int64_t m = shape_.m;
    seen_as("mask_of_packed_rows",
            "row i of head h sees what row i * group + h mod group sees, mod m: rows of a group's "
            "heads are counted together",
            [=](std::int64_t head, std::int64_t row) { return (row * group + head % group) % m; });
    seen_as("mask_of_packed_rows",
            "row i of head h sees what row (h mod group * m + i) / group sees: packed rows are "
            "divided by the group in the wrong order",
            [=](std::int64_t head, std::int64_t row) { return (head % group * m + row) / group; });
    seen_as("mask_of_packed_rows",
            "row i sees what row i / group sees: rows are divided by the group though they are not "
            "packed",
            [=](std::int64_t, std::int64_t row) { return row / group; });
  }
  if (right == kNoWindow) return;
  add("mask",
      "rows see the columns that the mask hides, and the diagonal: its direction is reversed",
      [&](AttentionMistake& m) {
        for (std::int64_t row = 0; row < shape_.m; ++row) {
          const std::int64_t own = row + shape_.n - shape_.m + right;
          m.variant.seen.push_back({std::clamp<std::int64_t>(own, 0, shape_.n), shape_.n});
        }
      });
}

void AttentionMistakes::hidden_columns() {
  if (!options_.causal && options_.window_right == kNoWindow && options_.window_left == kNoWindow)
    return;
  add("mask_value", "hidden scores are 0, not -infinity",
      [](AttentionMistake& m) { m.variant.hidden = 0.0F; });
  add("maximum_of_hidden", "the maximum of a row is taken before the mask, over hidden columns too",
      [](AttentionMistake& m) { m.variant.maximum_of_hidden = true; });
}

void AttentionMistakes::heads() {
  const std::int64_t kv_heads = inputs_.k.heads;
  if (kv_heads == 1) return;
  struct Mapping {
    const char* text;
    std::function<std::int64_t(std::int64_t)> from;
  };
  std::vector<Mapping> mappings{{"all heads read KV head 0", [](std::int64_t) { return 0; }}};
  if (shape_.group > 1)
    mappings.insert(mappings.begin(), {"head h reads KV head h mod kv_heads",
                                       [=](std::int64_t h) { return h % kv_heads; }});
  const auto right = [this](std::int64_t h) { return h / shape_.group; };
  for (const Mapping& mapping : mappings)
    for (const char* whose : {"K and V", "K", "V"})
      for (const bool scales : {true, false}) {
        const std::string part =
            std::string(whose) == "K and V" ? "" : fmt::format(" of {} alone", whose);
        add("head_mapping",
            fmt::format("{}{}{}", mapping.text, part,
                        scales ? "" : ", with the right head's scale"),
            [&](AttentionMistake& m) {
              const bool k = whose[0] == 'K';
              const bool v = part.empty() || whose[0] == 'V';
              const std::function<std::int64_t(std::int64_t)> own = right;
              m.inputs.k = operands_.with_heads(inputs_.k, shape_.heads, k ? mapping.from : own,
                                                k && scales ? mapping.from : own);
              m.inputs.v = operands_.with_heads(inputs_.v, shape_.heads, v ? mapping.from : own,
                                                v && scales ? mapping.from : own);
            });
      }
}

void AttentionMistakes::rows_of_v() {
  const auto permuted = [&](const std::string& text, const auto& from) {
    for (const std::size_t i : {std::size_t{2}, std::size_t{1}, std::size_t{0}})
      add("permuted_rows", fmt::format("{} of {}", text, kOperandNames[i]),
          [&](AttentionMistake& m) {
            AttentionOperand& x = m.inputs.*kOperands[i];
            x = operands_.with_rows(x, x.rows, [&](std::int64_t row) {
              const std::int64_t source = from(row);
              return source < x.rows && source >= 0 ? source : row;
            });
          });
  };
  for (const std::int64_t bit : {1, 2, 4, 8, 16, 32})
    permuted(fmt::format("row r xor {} in the place of row r", bit),
             [&](std::int64_t row) { return row ^ bit; });
  for (const std::int64_t group : {8, 16, 32, 64})
    permuted(fmt::format("the rows in each group of {} in reverse", group),
             [&](std::int64_t row) { return row / group * group + group - 1 - row % group; });
  for (const std::int64_t step : {-1, 1})
    permuted(fmt::format("row r {} 1 in the place of row r", step < 0 ? '-' : '+'),
             [&](std::int64_t row) { return row + step; });
}

/// The last rows of each tile, which a copy into shared memory did not reach.
void AttentionMistakes::zero_rows() {
  const std::int64_t tile = options_.kv_tile;
  for (const std::int64_t rows : {8, 16, 32, 64}) {
    if (rows >= tile) break;
    const auto kept = [=](std::int64_t row) { return row % tile < tile - rows ? row : -1; };
    const auto zero = [&](const char* names, bool k, bool v) {
      add("rows_of_zeros",
          fmt::format("the last {} rows of each whole tile of {} are zeros", rows, names),
          [&](AttentionMistake& m) {
            if (k) m.inputs.k = operands_.with_rows(inputs_.k, inputs_.k.rows, kept);
            if (v) m.inputs.v = operands_.with_rows(inputs_.v, inputs_.v.rows, kept);
          });
    };
    zero("V", false, true);
    zero("K", true, false);
    zero("K and V", true, true);
  }
}

void AttentionMistakes::add_tile(std::int64_t t) {
  const std::int64_t tiles = tiles_of(shape_.n, options_.kv_tile);
  const std::int64_t begin = t * options_.kv_tile;
  const std::int64_t end = std::min(begin + options_.kv_tile, shape_.n);
  const std::string tile = fmt::format("tile {} (columns {} to {})", t, begin, end - 1);
  for (const int times : {0, 2})
    if (tiles > 1)
      add(times == 0 ? "tile_skipped" : "tile_twice",
          tile + (times == 0 ? " is left out" : " is added twice"), [&](AttentionMistake& m) {
            m.variant.times.assign(static_cast<std::size_t>(tiles), 1);
            m.variant.times[static_cast<std::size_t>(t)] = times;
          });
  const auto kept = [&](const char* name, const char* what, bool o, bool sum) {
    add(name, fmt::format("{} not rescaled before {}", what, tile), [&](AttentionMistake& m) {
      m.variant.keeps_o = o;
      m.variant.keeps_sum = sum;
      m.variant.kept_tile = t;
    });
  };
  kept("o_not_rescaled", "O is", true, false);
  kept("sum_not_rescaled", "the row sum is", false, true);
  kept("nothing_rescaled", "O and the row sum are", true, true);
  const auto read = [&](const char* name, const std::string& text, std::size_t operand,
                        std::int64_t from) {
    add(name, text, [&](AttentionMistake& m) {
      AttentionOperand& x = m.inputs.*kOperands[operand];
      x = operands_.with_rows(x, x.rows, [&](std::int64_t row) {
        if (row < begin || row >= end) return row;
        if (from < 0) return std::int64_t{-1};
        return std::min(row - begin + from * options_.kv_tile, shape_.n - 1);
      });
    });
  };
  for (const std::size_t operand : {std::size_t{1}, std::size_t{2}}) {
    for (const std::int64_t from : {t - 1, t + 1})
      if (from >= 0 && from < tiles)
        read("stale_tile",
             fmt::format("{} reads {} of tile {}", tile, kOperandNames[operand], from), operand,
             from);
    read("tile_of_zeros", fmt::format("{} has zeros for {}", tile, kOperandNames[operand]), operand,
         -1);
  }
}

void AttentionMistakes::tails() {
  if (options_.causal || options_.window_right != kNoWindow || options_.window_left != kNoWindow)
    return;
  // Columns after the last one, up to a whole tile or one more, with scores and values of 0.
  std::vector<std::int64_t> ends{shape_.n + 1};
  for (const std::int64_t tile : {options_.kv_tile, std::int64_t{16}, std::int64_t{32},
                                  std::int64_t{64}, std::int64_t{128}, std::int64_t{256}}) {
    const std::int64_t end = tiles_of(shape_.n, tile) * tile;
    if (end != shape_.n && std::ranges::find(ends, end) == ends.end()) ends.push_back(end);
  }
  for (const std::int64_t end : ends)
    add("tail_counted",
        fmt::format("{} after the last one, with {} of 0, {} in the row sum",
                    counted(end - shape_.n, "column"), end == shape_.n + 1 ? "a score" : "scores",
                    end == shape_.n + 1 ? "counts" : "count"),
        [&](AttentionMistake& m) {
          const auto from = [&](std::int64_t row) { return row < shape_.n ? row : -1; };
          m.inputs.k = operands_.with_rows(inputs_.k, end, from);
          m.inputs.v = operands_.with_rows(inputs_.v, end, from);
        });
  const std::int64_t whole = shape_.n / options_.kv_tile * options_.kv_tile;
  if (whole != shape_.n && whole > 0)
    add("tail_lost", "the last, partial tile is left out", [&](AttentionMistake& m) {
      m.variant.seen.assign(static_cast<std::size_t>(shape_.m), {0, whole});
    });
}

void AttentionMistakes::memory() {
  tails();
  for (std::size_t i = 0; i < kOperands.size(); ++i) {
    const AttentionOperand& x = inputs_.*kOperands[i];
    const std::int64_t size = x.rows * x.columns;
    const auto changed = [&](const std::string& text, const auto& from) {
      add("layout", text,
          [&](AttentionMistake& m) { m.inputs.*kOperands[i] = operands_.with_memory(x, from); });
    };
    if (x.heads > 1) {
      changed(fmt::format("{} read as [rows, heads] where it is [heads, rows]", kOperandNames[i]),
              [&](std::int64_t at) {
                const std::int64_t head = at / size;
                const std::int64_t row = at / x.columns % x.rows;
                return (row * x.heads + head) * x.columns + at % x.columns;
              });
      changed(fmt::format("{} read as [heads, rows] where it is [rows, heads]", kOperandNames[i]),
              [&](std::int64_t at) {
                const std::int64_t line = at / x.columns;
                return (line % x.heads * x.rows + line / x.heads) * x.columns + at % x.columns;
              });
    }
    changed(fmt::format("{} read as transposed in each head", kOperandNames[i]),
            [&](std::int64_t at) {
              const std::int64_t in = at % size;
              return at - in + in % x.columns * x.rows + in / x.columns;
            });
  }
  terms_of_qk();
  if (shape_.d == shape_.d_v && inputs_.k.format == inputs_.v.format) {
    add("operands_exchanged", "V in the place of K",
        [&](AttentionMistake& m) { m.inputs.k = inputs_.v; });
    add("operands_exchanged", "K in the place of V",
        [&](AttentionMistake& m) { m.inputs.v = inputs_.k; });
    add("operands_exchanged", "K and V exchanged",
        [&](AttentionMistake& m) { std::swap(m.inputs.k, m.inputs.v); });
    add("operands_exchanged", "V in the place of K, with K's scales",
        [&](AttentionMistake& m) { m.inputs.k.codes = inputs_.v.codes; });
    add("operands_exchanged", "K in the place of V, with V's scales",
        [&](AttentionMistake& m) { m.inputs.v.codes = inputs_.k.codes; });
    add("operands_exchanged", "K and V exchanged, with each other's scales",
        [&](AttentionMistake& m) { std::swap(m.inputs.k.codes, m.inputs.v.codes); });
  }
}

/// Aligned parts of the sum of Q K^T, and all from a multiple of 64 on.
void AttentionMistakes::terms_of_qk() {
  const auto without = [&](std::int64_t begin, std::int64_t end) {
    add("qk_terms", fmt::format("Q K^T without terms {} to {}", begin, end - 1),
        [&](AttentionMistake& m) {
          m.inputs.q = operands_.without_columns(inputs_.q, begin, end);
        });
  };
  for (const std::int64_t step : {32, 64, 128})
    for (std::int64_t begin = 0; shape_.d > step && begin < shape_.d; begin += step)
      without(begin, std::min(begin + step, shape_.d));
  if (shape_.d > 16) without((shape_.d - 1) / 16 * 16, shape_.d);
  if (shape_.d > 8) without((shape_.d - 1) / 8 * 8, shape_.d);
}

}  // namespace fp8lab
