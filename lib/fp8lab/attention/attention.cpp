#include "fp8lab/attention/attention.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "fp8lab/attention/shape.hpp"
#include "fp8lab/attention/variant.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/cast/encode.hpp"
#include "fp8lab/core/first_error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/gemm/backend.hpp"

namespace fp8lab {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// Above which p saturates, and up to which it becomes 0.
struct PLimits {
  float saturates_above;
  float underflows_to;
};
PLimits limits_of(FormatId p_format) {
  // E4M3: halfway to 480, ties to the even 448. E5M2: ties at 61440 go up, to the even 65536.
  if (p_format == FormatId::e4m3fn) return {464.0F, 0x1p-10F};
  return {std::nextafter(61440.0F, 0.0F), 0x1p-17F};
}

float exp2_rounded(float x) { return static_cast<float>(std::exp2(static_cast<double>(x))); }

void round_all(std::span<float> values, std::optional<FormatId> to) {
  if (!to) return;
  for (float& value : values)
    value = static_cast<float>(round_trip(format(*to), kNvidiaNosat, value));
}

/// Rows of one block of one head, tile after tile.
class Block {
 public:
  Block(const AttentionInputs& inputs, const AttentionOptions& options,
        const AttentionVariant& variant, const AttentionRows& rows, std::span<float> o)
      : options_(options),
        variant_(variant),
        shape_(attention_shape(inputs)),
        q_(matrix_of(inputs.q, rows.head, rows.begin, rows.end, Major::rows)),
        k_(inputs.k),
        v_(inputs.v),
        head_(rows.head),
        kv_head_(rows.head / shape_.group),
        begin_(rows.begin),
        rows_(q_.rows),
        scale_log2_(scale_log2(inputs, options, rows.head)),
        soft_cap_scale_(options.soft_cap > 0.0F ? soft_cap_scale(inputs, options, rows.head)
                                                : 1.0F),
        v_scale_(scale_of(inputs.v, kv_head_)),
        limits_(limits_of(options.p_format)),
        o_(o),
        maximum_(static_cast<std::size_t>(rows_),
                 variant.maximum == RowMaximum::none ? 0.0F : kMinusInfinity),
        sum_(static_cast<std::size_t>(rows_), Partial{}) {}

  /// Reads part `part` of `options.splits` of the tiles that the block sees.
  void run(std::span<AttentionTile> tiles, std::int64_t part = 0) {
    const SeenColumns block = seen_by_block();
    std::vector<std::size_t> read;
    for (std::size_t i = 0; i < tiles.size(); ++i)
      if (tiles[i].begin < block.end && tiles[i].end > block.begin && !unread(tiles[i]))
        read.push_back(i);
    const auto splits = static_cast<std::size_t>(options_.splits);
    const std::size_t each = (read.size() + splits - 1) / splits;
    const std::size_t first = std::min(static_cast<std::size_t>(part) * each, read.size());
    if (!variant_.splits_columns)
      read = {read.begin() + static_cast<std::ptrdiff_t>(first),
              read.begin() + static_cast<std::ptrdiff_t>(std::min(first + each, read.size()))};
    if (options_.tile_order == TileOrder::last_to_first) std::reverse(read.begin(), read.end());
    for (const std::size_t index : read) {
      const int times = variant_.times.empty() ? 1 : variant_.times[index];
      for (int time = 0; time < times; ++time) add_tile(tiles[index]);
    }
    if (!options_.sinks.empty() && part == 0) add_sink();
    finish();
  }

  /// The natural logarithm of each row's sum of exponentials, after `run`; -Inf for an empty one.
  [[nodiscard]] std::vector<float> log_sums() const {
    std::vector<float> found;
    const auto scale = static_cast<float>(static_cast<double>(scale_log2_) * std::numbers::ln2);
    for (std::size_t row = 0; row < sum_.size(); ++row) {
      const float sum = total(sum_[row]) * exp2_rounded(-options_.p_offset);
      found.push_back(sum == 0.0F
                          ? kMinusInfinity
                          : std::fma(maximum_[row], scale,
                                     static_cast<float>(std::log(static_cast<double>(sum)))));
    }
    return found;
  }

 private:
  [[nodiscard]] SeenColumns seen(std::int64_t row) const {
    if (variant_.seen.empty()) return seen_columns(shape_, options_, row);
    const bool each_head = std::ssize(variant_.seen) > shape_.m;
    return variant_.seen[static_cast<std::size_t>(each_head ? head_ * shape_.m + row : row)];
  }

  /// What any row of the whole block sees.
  [[nodiscard]] SeenColumns seen_by_block() const {
    const std::int64_t first = begin_ / options_.q_tile * options_.q_tile;
    const std::int64_t last = std::min(first + std::min(options_.q_tile, shape_.m), shape_.m) - 1;
    // Both ends of what rows see grow with the row.
    if (variant_.seen.empty()) return {seen(first).begin, seen(last).end};
    SeenColumns all = seen(first);
    for (std::int64_t row = first; row <= last; ++row) {
      all.begin = std::min(all.begin, seen(row).begin);
      all.end = std::max(all.end, seen(row).end);
    }
    return all;
  }

  void add_tile(AttentionTile& tile) {
    const std::int64_t width = tile.end - tile.begin;
    GemmProblem qk;
    qk.model = find_instruction_model(options_.qk_model).accumulator;
    qk.a = q_;
    qk.b = matrix_of(k_, kv_head_, tile.begin, tile.end, Major::rows);
    p_.resize(static_cast<std::size_t>(rows_ * width));
    gemm_on(options_.backend, qk, p_, 1);
    round_all(p_, variant_.s_format);
    const auto row_of = [&](std::int64_t row) {
      return std::span(p_).subspan(static_cast<std::size_t>(row * width),
                                   static_cast<std::size_t>(width));
    };
    const auto own = [&](std::int64_t row) -> SeenColumns {
      const SeenColumns of_row = seen(begin_ + row);
      return {std::clamp<std::int64_t>(of_row.begin - tile.begin, 0, width),
              std::clamp<std::int64_t>(of_row.end - tile.begin, 0, width)};
    };
    steps_.assign(static_cast<std::size_t>(rows_), 0.0F);
    unmasked_.clear();
    for (std::int64_t row = 0; row < rows_; ++row) {
      const auto at = static_cast<std::size_t>(row);
      const std::span<float> s = row_of(row);
      change_scores(s, begin_ + row, tile.begin);
      const float before = variant_.maximum_of_hidden ? largest(s) : kMinusInfinity;
      if (variant_.hidden_in_sum) unmasked_.insert(unmasked_.end(), s.begin(), s.end());
      hide(s, own(row), tile.begin);
      steps_[at] = follow_maximum(std::max(before, largest(s)), at, tile);
    }
    for (std::int64_t row = 0; row < rows_; ++row) rescale(row, tile);
    for (std::int64_t row = 0; row < rows_; ++row)
      softmax(row_of(row), own(row), static_cast<std::size_t>(row), tile);
    if (variant_.p_wide) return add_wide_pv(tile, width);
    codes_.resize(p_.size());
    const CastPolicy policy = variant_.p_cast.value_or(kNvidiaSatfinite);
    if (!try_cast_on(options_.backend, options_.p_format, policy, p_, codes_))
      encode(p_, codes_, {.format = options_.p_format, .policy = policy});
    add_pv(tile, width);
  }

  [[nodiscard]] bool unread(const AttentionTile& tile) const {
    if (variant_.unread.empty()) return false;
    const auto first = variant_.unread.begin();
    return std::all_of(first + tile.begin, first + tile.end, [](char one) { return one != 0; });
  }

  static float largest(std::span<const float> s) { return *std::max_element(s.begin(), s.end()); }

  /// The soft cap, and what a mistaken kernel adds to the scores of a row.
  void change_scores(std::span<float> s, std::int64_t row, std::int64_t begin) const {
    if (options_.soft_cap > 0.0F)
      for (float& one : s)
        one = static_cast<float>(std::tanh(static_cast<double>(one * soft_cap_scale_)));
    if (variant_.slopes.empty()) return;
    // In units of S.
    const float slope = variant_.slopes[static_cast<std::size_t>(head_)] *
                        std::numbers::log2e_v<float> / scale_log2_;
    for (std::size_t j = 0; j < s.size(); ++j) {
      const std::int64_t apart = begin + static_cast<std::int64_t>(j) - row - shape_.n + shape_.m;
      s[j] += slope * static_cast<float>(apart);
    }
  }

  void hide(std::span<float> s, SeenColumns seen, std::int64_t begin) const {
    const float hidden = variant_.hidden.value_or(kMinusInfinity);
    std::fill(s.begin(), s.begin() + static_cast<std::ptrdiff_t>(seen.begin), hidden);
    std::fill(s.begin() + static_cast<std::ptrdiff_t>(seen.end), s.end(), hidden);
    if (variant_.unread.empty()) return;
    for (std::size_t j = 0; j < s.size(); ++j)
      if (variant_.unread[static_cast<std::size_t>(begin) + j] != 0) s[j] = kMinusInfinity;
  }

  /// Turns a row of S into p, and sums it.
  void softmax(std::span<float> s, SeenColumns seen, std::size_t row, AttentionTile& tile) {
    const float maximum = maximum_[row] == kMinusInfinity ? 0.0F : maximum_[row];
    const float shift = std::fma(-maximum, scale_log2_, options_.p_offset);
    for (std::size_t j = 0; j < s.size(); ++j) {
      s[j] = exponential(std::fma(s[j], scale_log2_, shift));
      if (variant_.p_format)
        s[j] = static_cast<float>(round_trip(format(*variant_.p_format), kNvidiaNosat, s[j]));
      const auto column = static_cast<std::int64_t>(j);
      if (column >= seen.begin && column < seen.end) count(s[j], tile);
    }
    if (variant_.sum_restarts) sum_[row] = Partial{};
    if (variant_.sum_after_cast)
      for (float& p : s)
        p = static_cast<float>(round_trip(format(options_.p_format), kNvidiaSatfinite, p));
    if (!variant_.hidden_in_sum) return add_to_sum(s, sum_[row]);
    const std::span<float> all = std::span(unmasked_).subspan(row * s.size(), s.size());
    for (float& p : all) p = exponential(std::fma(p, scale_log2_, shift));
    add_to_sum(all, sum_[row]);
  }

  [[nodiscard]] float exponential(float x) const {
    if (variant_.exponential == Exponential::rounded) return exp2_rounded(x);
    if (!(x > -126.0F)) return 0.0F;
    const float whole = std::floor(x);
    return std::ldexp(1.0F + (x - whole), static_cast<int>(whole));
  }

  /// What each thread of a quad has summed; under `RowSum::columns` the first has all.
  using Partial = std::array<float, 4>;

  void add_to_sum(std::span<const float> p, Partial& sum) const {
    if (options_.row_sum == RowSum::columns) {
      for (const float one : p) sum[0] = sum[0] + one;
      return;
    }
    Partial of_tile{};
    for (std::size_t j = 0; j < p.size(); ++j) of_tile[j / 2 % 4] += p[j];
    for (std::size_t t = 0; t < sum.size(); ++t) sum[t] = sum[t] + of_tile[t];
  }

  /// Updates the maximum of a row; returns the log2 of what its sums have to be multiplied by.
  float follow_maximum(float found, std::size_t row, AttentionTile& tile) {
    const float old = maximum_[row];
    if (variant_.maximum == RowMaximum::own_tile && found != kMinusInfinity) {
      maximum_[row] = found;
      return old == kMinusInfinity ? 0.0F : (old - found) * scale_log2_;
    }
    const float grown = std::max(old, found);
    if (!(grown > old)) return 0.0F;
    const float step = (old - grown) * scale_log2_;
    const bool fixed = variant_.maximum == RowMaximum::none ||
                       (variant_.maximum == RowMaximum::first_tile && old != kMinusInfinity);
    if (fixed || (options_.rescale_threshold > 0.0F && step >= -options_.rescale_threshold)) {
      ++tile.stale;
      return 0.0F;
    }
    maximum_[row] = grown;
    if (old == kMinusInfinity) return 0.0F;  // nothing has been summed
    ++tile.rescaled;
    return step;
  }

  void rescale(std::int64_t row, const AttentionTile& tile) {
    const std::int64_t of =
        variant_.alpha_row_xor == 0 ? row : ((begin_ + row) ^ variant_.alpha_row_xor) - begin_;
    const float step = steps_[static_cast<std::size_t>(of >= 0 && of < rows_ ? of : row)];
    if (step == 0.0F) return;
    const float alpha = exponential(variant_.alpha_power * step);
    const auto at = static_cast<std::size_t>(row);
    const bool kept = variant_.kept_tile < 0 || variant_.kept_tile == tile.begin / options_.kv_tile;
    if (!(kept && variant_.keeps_sum))
      for (float& sum : sum_[at]) sum *= alpha;
    if (!(kept && variant_.keeps_o))
      for (float& value : row_of_o(at)) value *= alpha;
  }

  void count(float p, AttentionTile& tile) const {
    ++tile.elements;
    if (p > limits_.saturates_above) ++tile.saturated;
    if (p > 0.0F && p <= limits_.underflows_to) ++tile.underflowed;
    tile.p_max = std::max(tile.p_max, p);
  }

  void add_pv(const AttentionTile& tile, std::int64_t width) {
    GemmProblem pv;
    pv.model = find_instruction_model(options_.pv_model).accumulator;
    pv.a = {options_.p_format, codes_.data(), rows_, width, width, 1};
    pv.b = matrix_of(v_, kv_head_, tile.begin, tile.end, Major::columns);
    pv.c = o_.data();
    // One promotion interval over the tile: its sum starts from zero, O is added in FP32.
    if (options_.two_level) pv.promotion_interval = options_.kv_tile;
    pv.c_enters = options_.two_level ? CPlacement::promoted_sum : CPlacement::accumulator;
    next_.resize(o_.size());
    gemm_on(options_.backend, pv, next_, 1);
    round_all(next_, variant_.o_format);
    std::copy(next_.begin(), next_.end(), o_.begin());
  }

  /// P in 16 bits, and exact sums.
  void add_wide_pv(const AttentionTile& tile, std::int64_t width) {
    std::vector<std::uint16_t> wide(p_.size());
    encode(p_, wide, {.format = *variant_.p_wide, .policy = kNvidiaNosat});
    GemmProblem pv;
    pv.model = find_instruction_model("exact").accumulator;
    pv.a = {*variant_.p_wide, wide.data(), rows_, width, width, 1};
    pv.b = matrix_of(v_, kv_head_, tile.begin, tile.end, Major::columns);
    pv.c = o_.data();
    pv.c_enters = CPlacement::accumulator;
    next_.resize(o_.size());
    gemm(pv, next_, 1);
    std::copy(next_.begin(), next_.end(), o_.begin());
  }

  void add_sink() {
    const auto log2_sink = std::fma(options_.sinks[static_cast<std::size_t>(head_)],
                                    std::numbers::log2e_v<float>, options_.p_offset);
    for (std::size_t row = 0; row < sum_.size(); ++row)
      if (maximum_[row] != kMinusInfinity)
        sum_[row][0] += exp2_rounded(std::fma(-maximum_[row], scale_log2_, log2_sink));
  }

  static float total(const Partial& s) { return (s[0] + s[2]) + (s[1] + s[3]); }

  void finish() {
    for (std::size_t row = 0; row < sum_.size(); ++row) {
      const std::span<float> o = row_of_o(row);
      if (variant_.sum_of_thread) {
        for (std::size_t c = 0; c < o.size(); ++c) o[c] *= o_scale(sum_[row][c / 2 % 4]);
        continue;
      }
      const std::int64_t of =
          ((begin_ + static_cast<std::int64_t>(row)) ^ variant_.sum_row_xor) - begin_;
      const Partial& s = sum_[of >= 0 && of < rows_ ? static_cast<std::size_t>(of) : row];
      const float scale = o_scale(total(s));
      for (float& value : o) value *= scale;
    }
  }

  /// What O is multiplied by at the end.
  [[nodiscard]] float o_scale(float sum) const {
    const bool empty = sum == 0.0F || std::isnan(sum);
    float scale = variant_.divisions > 0 ? (empty ? 0.0F : 1.0F / sum) * v_scale_ : v_scale_;
    if (variant_.divisions > 1) scale = empty ? 0.0F : scale / sum;
    return scale;
  }

  std::span<float> row_of_o(std::size_t row) {
    const auto width = static_cast<std::size_t>(shape_.d_v);
    return o_.subspan(row * width, width);
  }

  const AttentionOptions& options_;
  const AttentionVariant& variant_;
  AttentionShape shape_;
  CodeMatrix q_;
  const AttentionOperand& k_;
  const AttentionOperand& v_;
  std::int64_t head_;
  std::int64_t kv_head_;
  std::int64_t begin_;
  std::int64_t rows_;
  float scale_log2_;
  float soft_cap_scale_;
  float v_scale_;
  PLimits limits_;
  std::span<float> o_;           // the block's rows, [rows_, d_v]
  std::vector<float> maximum_;   // of each row, in units of S
  std::vector<Partial> sum_;     // of each row's p
  std::vector<float> p_;         // S, then p
  std::vector<float> unmasked_;  // S before the mask, then its p; empty if not wanted
  std::vector<float> steps_;     // log2 of each row's alpha; 0: it is not rescaled
  std::vector<float> next_;      // O after the tile
  std::vector<std::uint8_t> codes_;
};

/// `variant` with what rows see of part `part` of the columns.
AttentionVariant part_of_columns(const AttentionInputs& inputs, const AttentionOptions& options,
                                 const AttentionVariant& variant, std::int64_t part) {
  const AttentionShape shape = attention_shape(inputs);
  AttentionVariant found = variant;
  found.seen.clear();
  for (std::int64_t row = 0; row < shape.m; ++row) {
    const SeenColumns seen = seen_columns(shape, options, row);
    found.seen.push_back({std::clamp(part * shape.n / options.splits, seen.begin, seen.end),
                          std::clamp((part + 1) * shape.n / options.splits, seen.begin, seen.end)});
  }
  return found;
}

/// Adds the outputs of parts [rows, d_v], weighted by the exponentials of `log_sums` [rows].
void merge(std::span<const std::vector<float>> parts, std::span<const std::vector<float>> log_sums,
           SplitMerge how, std::span<float> o) {
  const std::size_t rows = log_sums.front().size();
  const std::size_t width = o.size() / rows;
  const double base = how == SplitMerge::powers_of_two ? std::numbers::ln2
                      : how == SplitMerge::e_of_log2   ? std::numbers::log2e
                                                       : 1.0;
  for (std::size_t row = 0; row < rows; ++row) {
    float largest = kMinusInfinity;
    for (const std::vector<float>& one : log_sums) largest = std::max(largest, one[row]);
    if (largest == kMinusInfinity) continue;
    std::vector<float> weights;
    float sum = 0.0F;
    for (const std::vector<float>& one : log_sums) {
      const float apart = how == SplitMerge::average ? 0.0F : one[row] - largest;
      weights.push_back(static_cast<float>(std::exp(static_cast<double>(apart) * base)));
      sum += weights.back();
    }
    const float inverse = how == SplitMerge::not_normalized ? 1.0F : 1.0F / sum;
    for (std::size_t part = 0; part < parts.size(); ++part)
      for (std::size_t c = 0; c < width; ++c) {
        float& to = o[row * width + c];
        to = std::fma(weights[part] * inverse, parts[part][row * width + c], to);
      }
  }
}

}  // namespace

AttentionTile& AttentionTile::operator+=(const AttentionTile& other) {
  elements += other.elements;
  saturated += other.saturated;
  underflowed += other.underflowed;
  rescaled += other.rescaled;
  stale += other.stale;
  p_max = std::max(p_max, other.p_max);
  return *this;
}

std::vector<AttentionTile> attention_tiles(std::int64_t n, std::int64_t kv_tile) {
  std::vector<AttentionTile> tiles;
  for (std::int64_t begin = 0; begin < n; begin += kv_tile) {
    AttentionTile tile;
    tile.begin = begin;
    tile.end = std::min(begin + kv_tile, n);
    tiles.push_back(tile);
  }
  return tiles;
}

std::vector<AttentionRows> attention_blocks(const AttentionShape& shape, std::int64_t q_tile) {
  std::vector<AttentionRows> blocks;
  for (std::int64_t head = 0; head < shape.heads; ++head)
    for (std::int64_t begin = 0; begin < shape.m; begin += q_tile)
      blocks.push_back({head, begin, std::min(begin + q_tile, shape.m)});
  return blocks;
}

void attention_rows(const AttentionInputs& inputs, const AttentionOptions& options,
                    const AttentionVariant& variant, const AttentionRows& rows, std::span<float> o,
                    std::span<AttentionTile> tiles) {
  if (options.splits == 1) return Block(inputs, options, variant, rows, o).run(tiles);
  std::vector<std::vector<float>> parts;
  std::vector<std::vector<float>> log_sums;
  for (std::int64_t part = 0; part < options.splits; ++part) {
    if (part == variant.lost_part) continue;
    std::vector<float>& own = parts.emplace_back(o.size(), 0.0F);
    const AttentionVariant of_part =
        variant.splits_columns ? part_of_columns(inputs, options, variant, part) : variant;
    Block block(inputs, options, of_part, rows, own);
    block.run(tiles, part);
    log_sums.push_back(block.log_sums());
  }
  merge(parts, log_sums, variant.merge, o);
}

AttentionResult attention_with(const AttentionInputs& inputs, const AttentionOptions& options,
                               const AttentionVariant& variant) {
  const AttentionShape shape = attention_shape(inputs);
  AttentionResult result;
  result.o.resize(static_cast<std::size_t>(shape.heads * shape.m * shape.d_v));
  result.tiles = attention_tiles(shape.n, options.kv_tile);
  const std::vector<AttentionRows> blocks = attention_blocks(shape, options.q_tile);
  FirstError error;
#pragma omp parallel for schedule(dynamic) num_threads(threads_of(options))
  for (std::size_t i = 0; i < blocks.size(); ++i)
    error.guard([&] {
      const FloatEnvironment of_thread;
      const AttentionRows& rows = blocks[i];
      std::vector<AttentionTile> tiles = attention_tiles(shape.n, options.kv_tile);
      const auto o = std::span(result.o).subspan(
          static_cast<std::size_t>((rows.head * shape.m + rows.begin) * shape.d_v),
          static_cast<std::size_t>((rows.end - rows.begin) * shape.d_v));
      attention_rows(inputs, options, variant, rows, o, tiles);
#pragma omp critical(fp8lab_attention_tiles)
      for (std::size_t t = 0; t < tiles.size(); ++t) result.tiles[t] += tiles[t];
    });
  error.rethrow();
  return result;
}

AttentionResult attention(const AttentionInputs& inputs, const AttentionOptions& options) {
  const FloatEnvironment environment;
  validate(inputs, options);
  return attention_with(inputs, options, {});
}

}  // namespace fp8lab
