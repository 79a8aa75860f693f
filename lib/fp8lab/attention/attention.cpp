#include "fp8lab/attention/attention.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

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
        kv_head_(rows.head / shape_.group),
        begin_(rows.begin),
        rows_(q_.rows),
        scale_log2_(scale_log2(inputs, options, rows.head)),
        v_scale_(scale_of(inputs.v, kv_head_)),
        limits_(limits_of(options.p_format)),
        o_(o),
        maximum_(static_cast<std::size_t>(rows_),
                 variant.maximum == RowMaximum::none ? 0.0F : kMinusInfinity),
        sum_(static_cast<std::size_t>(rows_), Partial{}) {}

  void run(std::span<AttentionTile> tiles) {
    const SeenColumns block = seen_by_block();
    for (std::size_t i = 0; i < tiles.size(); ++i) {
      const bool reversed = options_.tile_order == TileOrder::last_to_first;
      const std::size_t index = reversed ? tiles.size() - 1 - i : i;
      AttentionTile& tile = tiles[index];
      if (tile.begin >= block.end || tile.end <= block.begin) continue;
      const int times = variant_.times.empty() ? 1 : variant_.times[index];
      for (int time = 0; time < times; ++time) add_tile(tile);
    }
    finish();
  }

 private:
  [[nodiscard]] SeenColumns seen(std::int64_t row) const {
    if (!variant_.seen.empty()) return variant_.seen[static_cast<std::size_t>(row)];
    return seen_columns(shape_, options_, row);
  }

  /// What any row of the whole block sees.
  [[nodiscard]] SeenColumns seen_by_block() const {
    const std::int64_t first = begin_ / options_.q_tile * options_.q_tile;
    const std::int64_t last = std::min(first + std::min(options_.q_tile, shape_.m), shape_.m) - 1;
    // Both ends of what rows see grow with the row.
    return {seen(first).begin, seen(last).end};
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
    for (std::int64_t row = 0; row < rows_; ++row) {
      const std::span<float> s = std::span(p_).subspan(static_cast<std::size_t>(row * width),
                                                       static_cast<std::size_t>(width));
      const SeenColumns of_row = seen(begin_ + row);
      softmax(s,
              {std::clamp<std::int64_t>(of_row.begin - tile.begin, 0, width),
               std::clamp<std::int64_t>(of_row.end - tile.begin, 0, width)},
              static_cast<std::size_t>(row), tile);
    }
    if (variant_.p_wide) return add_wide_pv(tile, width);
    codes_.resize(p_.size());
    const CastPolicy policy = variant_.p_cast.value_or(kNvidiaSatfinite);
    if (!try_cast_on(options_.backend, options_.p_format, policy, p_, codes_))
      encode(p_, codes_, {.format = options_.p_format, .policy = policy});
    add_pv(tile, width);
  }

  /// Turns a row of S into p, and follows the maximum.
  void softmax(std::span<float> s, SeenColumns seen, std::size_t row, AttentionTile& tile) {
    if (variant_.hidden_in_sum) unmasked_.assign(s.begin(), s.end());
    std::fill(s.begin(), s.begin() + static_cast<std::ptrdiff_t>(seen.begin), kMinusInfinity);
    std::fill(s.begin() + static_cast<std::ptrdiff_t>(seen.end), s.end(), kMinusInfinity);
    follow_maximum(s, row, tile);
    const float maximum = maximum_[row] == kMinusInfinity ? 0.0F : maximum_[row];
    const float shift = std::fma(-maximum, scale_log2_, options_.p_offset);
    for (std::size_t j = 0; j < s.size(); ++j) {
      s[j] = exp2_rounded(std::fma(s[j], scale_log2_, shift));
      const auto column = static_cast<std::int64_t>(j);
      if (column >= seen.begin && column < seen.end) count(s[j], tile);
    }
    if (variant_.sum_restarts) sum_[row] = Partial{};
    if (variant_.sum_after_cast)
      for (float& p : s)
        p = static_cast<float>(round_trip(format(options_.p_format), kNvidiaSatfinite, p));
    for (float& p : unmasked_) p = exp2_rounded(std::fma(p, scale_log2_, shift));
    add_to_sum(variant_.hidden_in_sum ? std::span<const float>(unmasked_) : s, sum_[row]);
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

  void follow_maximum(std::span<const float> s, std::size_t row, AttentionTile& tile) {
    const float old = maximum_[row];
    const float grown = std::max(old, *std::max_element(s.begin(), s.end()));
    if (!(grown > old)) return;
    const float step = (old - grown) * scale_log2_;
    const bool fixed = variant_.maximum == RowMaximum::none ||
                       (variant_.maximum == RowMaximum::first_tile && old != kMinusInfinity);
    if (fixed || (options_.rescale_threshold > 0.0F && step >= -options_.rescale_threshold)) {
      ++tile.stale;
      return;
    }
    const float alpha = exp2_rounded(variant_.alpha_power * step);
    maximum_[row] = grown;
    if (old == kMinusInfinity) return;  // nothing has been summed
    ++tile.rescaled;
    const bool kept = variant_.kept_tile < 0 || variant_.kept_tile == tile.begin / options_.kv_tile;
    if (!(kept && variant_.keeps_sum))
      for (float& sum : sum_[row]) sum *= alpha;
    if (!(kept && variant_.keeps_o))
      for (float& value : row_of_o(row)) value *= alpha;
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

  void finish() {
    for (std::size_t row = 0; row < sum_.size(); ++row) {
      const Partial& s = sum_[row];
      const float sum = (s[0] + s[2]) + (s[1] + s[3]);
      const bool empty = sum == 0.0F || std::isnan(sum);
      float scale = variant_.divisions > 0 ? (empty ? 0.0F : 1.0F / sum) * v_scale_ : v_scale_;
      if (variant_.divisions > 1) scale = empty ? 0.0F : scale / sum;
      for (float& value : row_of_o(row)) value *= scale;
    }
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
  std::int64_t kv_head_;
  std::int64_t begin_;
  std::int64_t rows_;
  float scale_log2_;
  float v_scale_;
  PLimits limits_;
  std::span<float> o_;           // the block's rows, [rows_, d_v]
  std::vector<float> maximum_;   // of each row, in units of S
  std::vector<Partial> sum_;     // of each row's p
  std::vector<float> p_;         // S, then p
  std::vector<float> unmasked_;  // S of a row before the mask, then its p; empty if not wanted
  std::vector<float> next_;      // O after the tile
  std::vector<std::uint8_t> codes_;
};

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
  Block(inputs, options, variant, rows, o).run(tiles);
}

AttentionResult attention(const AttentionInputs& inputs, const AttentionOptions& options) {
  const FloatEnvironment environment;
  validate(inputs, options);
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
      attention_rows(inputs, options, {}, rows, o, tiles);
#pragma omp critical(fp8lab_attention_tiles)
      for (std::size_t t = 0; t < tiles.size(); ++t) result.tiles[t] += tiles[t];
    });
  error.rethrow();
  return result;
}

}  // namespace fp8lab
