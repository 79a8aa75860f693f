#include "fp8lab/attention/attention.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "fp8lab/attention/shape.hpp"
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

/// One block of rows of one head, tile after tile.
class Block {
 public:
  Block(const AttentionInputs& inputs, const AttentionOptions& options, std::int64_t head,
        std::int64_t begin, std::span<float> o)
      : options_(options),
        shape_(attention_shape(inputs)),
        q_(matrix_of(inputs.q, head, begin, std::min(begin + options.q_tile, shape_.m),
                     Major::rows)),
        k_(inputs.k),
        v_(inputs.v),
        kv_head_(head / shape_.group),
        begin_(begin),
        rows_(q_.rows),
        scale_log2_(scale_log2(inputs, options, head)),
        v_scale_(scale_of(inputs.v, kv_head_)),
        limits_(limits_of(options.p_format)),
        o_(o),
        maximum_(static_cast<std::size_t>(rows_), kMinusInfinity),
        sum_(static_cast<std::size_t>(rows_), Partial{}) {}

  void run(std::span<AttentionTile> tiles) {
    // Both ends of what rows see grow with the row.
    const std::int64_t begin = seen_columns(shape_, options_, begin_).begin;
    const std::int64_t end = seen_columns(shape_, options_, begin_ + rows_ - 1).end;
    for (std::size_t i = 0; i < tiles.size(); ++i) {
      const bool reversed = options_.tile_order == TileOrder::last_to_first;
      AttentionTile& tile = tiles[reversed ? tiles.size() - 1 - i : i];
      if (tile.begin < end && tile.end > begin) add_tile(tile);
    }
    finish();
  }

 private:
  void add_tile(AttentionTile& tile) {
    const std::int64_t width = tile.end - tile.begin;
    GemmProblem qk;
    qk.model = find_instruction_model(options_.qk_model).accumulator;
    qk.a = q_;
    qk.b = matrix_of(k_, kv_head_, tile.begin, tile.end, Major::rows);
    p_.resize(static_cast<std::size_t>(rows_ * width));
    gemm_on(options_.backend, qk, p_, 1);
    for (std::int64_t row = 0; row < rows_; ++row) {
      const std::span<float> s = std::span(p_).subspan(static_cast<std::size_t>(row * width),
                                                       static_cast<std::size_t>(width));
      const SeenColumns seen = seen_columns(shape_, options_, begin_ + row);
      softmax(s,
              {std::clamp<std::int64_t>(seen.begin - tile.begin, 0, width),
               std::clamp<std::int64_t>(seen.end - tile.begin, 0, width)},
              static_cast<std::size_t>(row), tile);
    }
    codes_.resize(p_.size());
    if (!try_cast_on(options_.backend, options_.p_format, kNvidiaSatfinite, p_, codes_))
      encode(p_, codes_, {.format = options_.p_format, .policy = kNvidiaSatfinite});
    add_pv(tile, width);
  }

  /// Turns a row of S into p, and follows the maximum.
  void softmax(std::span<float> s, SeenColumns seen, std::size_t row, AttentionTile& tile) {
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
    add_to_sum(s, sum_[row]);
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
    if (options_.rescale_threshold > 0.0F && step >= -options_.rescale_threshold) {
      ++tile.stale;
      return;
    }
    const float alpha = exp2_rounded(step);
    maximum_[row] = grown;
    if (old == kMinusInfinity) return;  // nothing has been summed
    ++tile.rescaled;
    for (float& sum : sum_[row]) sum *= alpha;
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
    std::copy(next_.begin(), next_.end(), o_.begin());
  }

  void finish() {
    for (std::size_t row = 0; row < sum_.size(); ++row) {
      const Partial& s = sum_[row];
      const float sum = (s[0] + s[2]) + (s[1] + s[3]);
      const bool empty = sum == 0.0F || std::isnan(sum);
      const float scale = (empty ? 0.0F : 1.0F / sum) * v_scale_;
      for (float& value : row_of_o(row)) value *= scale;
    }
  }

  std::span<float> row_of_o(std::size_t row) {
    const auto width = static_cast<std::size_t>(shape_.d_v);
    return o_.subspan(row * width, width);
  }

  const AttentionOptions& options_;
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
  std::span<float> o_;          // the block's rows, [rows_, d_v]
  std::vector<float> maximum_;  // of each row, in units of S
  std::vector<Partial> sum_;    // of each row's p
  std::vector<float> p_;        // S, then p
  std::vector<float> next_;     // O after the tile
  std::vector<std::uint8_t> codes_;
};

std::vector<AttentionTile> empty_tiles(std::int64_t n, std::int64_t kv_tile) {
  std::vector<AttentionTile> tiles;
  for (std::int64_t begin = 0; begin < n; begin += kv_tile) {
    AttentionTile tile;
    tile.begin = begin;
    tile.end = std::min(begin + kv_tile, n);
    tiles.push_back(tile);
  }
  return tiles;
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

AttentionResult attention(const AttentionInputs& inputs, const AttentionOptions& options) {
  const FloatEnvironment environment;
  validate(inputs, options);
  const AttentionShape shape = attention_shape(inputs);
  AttentionResult result;
  result.o.resize(static_cast<std::size_t>(shape.heads * shape.m * shape.d_v));
  result.tiles = empty_tiles(shape.n, options.kv_tile);
  const std::int64_t blocks = (shape.m + options.q_tile - 1) / options.q_tile;
  FirstError error;
#pragma omp parallel for schedule(dynamic) num_threads(threads_of(options))
  for (std::int64_t i = 0; i < shape.heads * blocks; ++i)
    error.guard([&] {
      const FloatEnvironment of_thread;
      const std::int64_t head = i / blocks;
      const std::int64_t begin = i % blocks * options.q_tile;
      const std::int64_t rows = std::min(options.q_tile, shape.m - begin);
      std::vector<AttentionTile> tiles = empty_tiles(shape.n, options.kv_tile);
      const auto o = std::span(result.o).subspan(
          static_cast<std::size_t>((head * shape.m + begin) * shape.d_v),
          static_cast<std::size_t>(rows * shape.d_v));
      Block(inputs, options, head, begin, o).run(tiles);
#pragma omp critical(fp8lab_attention_tiles)
      for (std::size_t t = 0; t < tiles.size(); ++t) result.tiles[t] += tiles[t];
    });
  error.rethrow();
  return result;
}

}  // namespace fp8lab
