#include "fp8lab/attention/sage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <string>

#include "fp8lab/attention/variant.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/names.hpp"
#include "fp8lab/core/parallel.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/gemm/gemm.hpp"

namespace fp8lab {
namespace {

constexpr std::array<std::string_view, 2> kGranularities{"per_thread", "per_warp"};
constexpr std::int64_t kBlock = 16;     ///< elements of an NVFP4 scale
constexpr std::int64_t kPadding = 128;  ///< rows of NVFP4 operands come in these
constexpr float kLog2e = 1.44269504F;   ///< as the kernels write it
constexpr float kInt8Offset = 8.807F;   ///< log2 of P's factor
constexpr float kHidden = -5000000.0F;  ///< a score outside of the mask, and the first maximum
constexpr float kNvfp4Offset = -11.392317422778762F;  ///< log2 of 1 / (448 * 6)
constexpr float kBlockOffset = -2.584962500721156F;   ///< log2 of 1 / 6
constexpr float kUnseen = -std::numeric_limits<float>::infinity();

constexpr std::string_view kSage2 =
    "thu-ml/SageAttention d1a57a5, sageattention/core.py, triton/quant_per_thread.py, csrc/fused "
    "and csrc/qattn: read, not measured. K's mean is removed, Q and K are INT8, P is E4M3 times "
    "2^8.807, V is E4M3 with one scale a channel; P V of a tile is added in FP32. ";

/// With what a kernel has of its own.
template <std::size_t N>
std::string_view with_source(const char (&own)[N]) {
  static const std::string text = std::string(kSage2) + own;
  return text;
}

float exp2_of(float x) { return static_cast<float>(std::exp2(static_cast<double>(x))); }

float rounded_to(FormatId to, double value) {
  return static_cast<float>(round_trip(format(to), kNvidiaNosat, static_cast<float>(value)));
}

std::uint8_t nearest_code(FormatId to, float value) {
  return static_cast<std::uint8_t>(encode(format(to), kNvidiaSatfinite, value));
}

std::int64_t padded(std::int64_t rows) { return round_up(rows, kPadding); }

/// A head [rows, columns] of values in the input's format.
struct Head {
  std::vector<float> values;
  std::int64_t rows;
  std::int64_t columns;

  Head(std::span<const float> all, std::int64_t head, std::int64_t rows_of_it,
       std::int64_t columns_of_it, FormatId input)
      : rows(rows_of_it), columns(columns_of_it) {
    const auto size = static_cast<std::size_t>(rows * columns);
    for (const float value : all.subspan(static_cast<std::size_t>(head) * size, size))
      values.push_back(rounded_to(input, static_cast<double>(value)));
  }

  [[nodiscard]] float& at(std::int64_t row, std::int64_t column) {
    return values[static_cast<std::size_t>(row * columns + column)];
  }
  [[nodiscard]] float at(std::int64_t row, std::int64_t column) const {
    return values[static_cast<std::size_t>(row * columns + column)];
  }

  /// The sum of a column over rows [begin, end), exact before one rounding to binary64 per step.
  [[nodiscard]] double sum(std::int64_t column, std::int64_t begin, std::int64_t end) const {
    double total = 0.0;
    for (std::int64_t row = begin; row < end; ++row) total += static_cast<double>(at(row, column));
    return total;
  }

  /// Subtracts each column's mean, which is rounded to `input`. `round`: the differences too.
  void remove_mean(FormatId input, bool round) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const float mean = rounded_to(input, sum(c, 0, rows) / static_cast<double>(rows));
      for (std::int64_t r = 0; r < rows; ++r) {
        const float apart = at(r, c) - mean;
        at(r, c) = round ? rounded_to(input, static_cast<double>(apart)) : apart;
      }
    }
  }

  /// Appends rows of zeros up to a multiple of 128.
  void pad() {
    rows = padded(rows);
    values.resize(static_cast<std::size_t>(rows * columns), 0.0F);
  }
};

/// The place `by` after `at` among `count`, around the end.
std::size_t place_after(std::int64_t at, std::int64_t by, std::int64_t count) {
  return static_cast<std::size_t>(((at + by) % count + count) % count);
}

/// The INT8 code of x under an inverse scale, ties away from zero unless the variant says else.
std::int8_t int8_of(float x, const SageVariant& variant, bool even) {
  const float away = variant.cut ? 0.0F : (x >= 0.0F ? 0.5F : -0.5F);
  const float code = even || variant.even_ties ? std::nearbyint(x) : std::trunc(x + away);
  return static_cast<std::int8_t>(std::clamp(code, -128.0F, 127.0F));
}

/// Rows that share a scale.
struct RowGroup {
  std::vector<std::int64_t> rows;
};

/// Groups of rows by block. `thread_of`: which thread of a block holds a row, or 0 for all.
template <typename ThreadOf>
std::vector<RowGroup> groups_of(std::int64_t rows, std::int64_t block, std::int64_t threads,
                                const ThreadOf& thread_of) {
  std::vector<RowGroup> groups(static_cast<std::size_t>(ceil_divide(rows, block) * threads));
  for (std::int64_t row = 0; row < rows; ++row)
    groups[static_cast<std::size_t>(row / block * threads + thread_of(row))].rows.push_back(row);
  std::erase_if(groups, [](const RowGroup& group) { return group.rows.empty(); });
  return groups;
}

/// Codes of a head in INT8, and each row's scale. `per_thread`: as the Triton kernel computes them;
/// else as the CUDA kernel does, which multiplies by 127 / amax and rounds ties to even.
SageCodes int8_codes(const Head& x, const std::vector<RowGroup>& groups, bool per_thread,
                     std::int64_t shift, const SageVariant& variant) {
  SageCodes found{std::vector<std::uint8_t>(x.values.size()),
                  std::vector<float>(static_cast<std::size_t>(x.rows))};
  std::vector<float> scales;
  for (const RowGroup& group : groups) {
    float amax = per_thread ? 0.0F : 1e-7F;
    for (const std::int64_t row : group.rows)
      for (std::int64_t c = 0; c < x.columns; ++c) amax = std::max(amax, std::abs(x.at(row, c)));
    const float scale = per_thread ? amax / 127.0F + 1e-7F : amax / 127.0F;
    scales.push_back(scale);
    for (const std::int64_t row : group.rows)
      for (std::int64_t c = 0; c < x.columns; ++c) {
        const float scaled = per_thread ? x.at(row, c) / scale : x.at(row, c) * (127.0F / amax);
        found.codes[static_cast<std::size_t>(row * x.columns + c)] =
            static_cast<std::uint8_t>(int8_of(scaled, variant, !per_thread));
      }
  }
  for (std::size_t group = 0; group < groups.size(); ++group)
    for (const std::int64_t row : groups[group].rows)
      found.scales[static_cast<std::size_t>(row)] =
          scales[place_after(static_cast<std::int64_t>(group), shift, std::ssize(groups))];
  return found;
}

/// Codes of V in E4M3, with a scale for each channel.
SageCodes e4m3_channels(const Head& v, float limit, const SageVariant& variant) {
  SageCodes found{std::vector<std::uint8_t>(v.values.size()),
                  std::vector<float>(static_cast<std::size_t>(v.columns))};
  for (std::int64_t c = 0; c < v.columns; ++c) {
    float amax = 0.0F;
    for (std::int64_t r = 0; r < v.rows; ++r) amax = std::max(amax, std::abs(v.at(r, c)));
    found.scales[place_after(c, -variant.v_scale_shift, v.columns)] =
        variant.no_v_scale ? 1.0F : amax / limit;
    for (std::int64_t r = 0; r < v.rows; ++r)
      found.codes[static_cast<std::size_t>(r * v.columns + c)] =
          nearest_code(FormatId::e4m3fn, v.at(r, c) * (limit / amax));
  }
  return found;
}

/// A block of 16 in NVFP4 with one level of scales: amax / 6 in E4M3, E2M1 codes of x times its
/// reciprocal. Returns the scale.
float nvfp4_block(std::span<const float> x, std::uint8_t* codes) {
  float amax = 0.0F;
  for (const float value : x) amax = std::max(amax, std::abs(value));
  const float scale = decode_table(FormatId::e4m3fn)[nearest_code(FormatId::e4m3fn, amax / 6.0F)];
  const float inverse = scale == 0.0F ? 0.0F : 1.0F / scale;
  for (const float value : x) *codes++ = nearest_code(FormatId::e2m1, value * inverse);
  return scale;
}

SageCodes nvfp4_rows(std::span<const float> values, std::int64_t shift) {
  SageCodes found{std::vector<std::uint8_t>(values.size()), {}};
  for (std::size_t at = 0; at < values.size(); at += kBlock)
    found.scales.push_back(nvfp4_block(values.subspan(at, kBlock), found.codes.data() + at));
  const std::size_t first = place_after(0, shift, std::ssize(found.scales));
  std::rotate(found.scales.begin(), found.scales.begin() + static_cast<std::ptrdiff_t>(first),
              found.scales.end());
  return found;
}

/// V's codes, transposed.
SageCodes nvfp4_columns(const Head& v, std::int64_t shift) {
  std::vector<float> turned;
  for (std::int64_t c = 0; c < v.columns; ++c)
    for (std::int64_t r = 0; r < v.rows; ++r) turned.push_back(v.at(r, c));
  return nvfp4_rows(turned, shift);
}

/// The product of Q's mean of a block and K, rounded to the input's format.
std::vector<float> product_of_means(const std::vector<float>& mean, const Head& k, FormatId input) {
  std::vector<float> found;
  for (std::int64_t j = 0; j < k.rows; ++j) {
    double sum = 0.0;
    for (std::int64_t c = 0; c < k.columns; ++c)
      sum +=
          static_cast<double>(mean[static_cast<std::size_t>(c)]) * static_cast<double>(k.at(j, c));
    found.push_back(rounded_to(input, sum));
  }
  return found;
}

/// Removes the mean of each block of 128 rows of Q, and gives what S starts from.
std::vector<float> remove_block_means(Head& q, const Head& k, FormatId input) {
  std::vector<float> added;
  for (std::int64_t first = 0; first < q.rows; first += kPadding) {
    std::vector<float> mean;
    for (std::int64_t c = 0; c < q.columns; ++c) {
      const auto wide =
          static_cast<float>(q.sum(c, first, first + kPadding) / static_cast<double>(kPadding));
      for (std::int64_t r = first; r < first + kPadding; ++r)
        q.at(r, c) = rounded_to(input, static_cast<double>(q.at(r, c) - wide));
      mean.push_back(rounded_to(input, static_cast<double>(wide)));
    }
    const std::vector<float> of_block = product_of_means(mean, k, input);
    added.insert(added.end(), of_block.begin(), of_block.end());
  }
  return added;
}

SageOperands quantize_nvfp4(const SageInputs& in, const SageOptions& o, std::int64_t kv_head,
                            const SageVariant& variant) {
  const AttentionShape& s = in.shape;
  Head k(in.k, kv_head, s.n, s.d, o.input);
  if (o.smooth) k.remove_mean(o.input, true);
  k.pad();
  Head v(in.v, kv_head, s.n, s.d_v, o.input);
  v.pad();
  SageOperands found;
  for (std::int64_t head = kv_head * s.group; head < (kv_head + 1) * s.group; ++head) {
    Head q(in.q, head, s.m, s.d, o.input);
    q.pad();
    found.added.push_back(remove_block_means(q, k, o.input));
    found.q.push_back(nvfp4_rows(q.values, variant.q_scale_shift));
  }
  found.k = nvfp4_rows(k.values, variant.k_scale_shift);
  found.v = nvfp4_columns(v, variant.v_scale_shift);
  return found;
}

SageOperands quantize_int8(const SageInputs& in, const SageKernel& kernel, const SageOptions& o,
                           std::int64_t kv_head, const SageVariant& variant) {
  const AttentionShape& s = in.shape;
  const bool per_thread = o.granularity == SageGranularity::thread;
  SageOperands found;
  const auto q_groups =
      per_thread ? groups_of(s.m, kernel.q_rows, 8, [](std::int64_t row) { return row % 8; })
                 : groups_of(s.m, kernel.q_rows, 1, [](std::int64_t) { return 0; });
  for (std::int64_t head = kv_head * s.group; head < (kv_head + 1) * s.group; ++head)
    found.q.push_back(int8_codes(Head(in.q, head, s.m, s.d, o.input), q_groups, per_thread,
                                 variant.q_scale_shift, variant));
  Head k(in.k, kv_head, s.n, s.d, o.input);
  if (o.smooth) k.remove_mean(o.input, per_thread);
  const auto k_groups =
      per_thread ? groups_of(s.n, kernel.kv_tile, 4, [](std::int64_t row) { return row % 8 / 2; })
                 : groups_of(s.n, kernel.kv_tile, 1, [](std::int64_t) { return 0; });
  found.k = int8_codes(k, k_groups, per_thread, variant.k_scale_shift, variant);
  found.v = e4m3_channels(Head(in.v, kv_head, s.n, s.d_v, o.input), kernel.v_limit, variant);
  return found;
}

/// Adds P V of a tile to O [rows, d_v] in binary32, or in the unit.
void add_product(GemmProblem pv, bool one_level, std::span<float> o) {
  std::vector<float> tile(o.size());
  if (one_level) {
    pv.c = o.data();
    pv.c_enters = CPlacement::accumulator;
  }
  gemm(pv, tile, 1);
  for (std::size_t i = 0; i < o.size(); ++i) o[i] = one_level ? tile[i] : o[i] + tile[i];
}

/// Rows of one block of a head: what they are computed from, and where to.
class SageBlock {
 protected:
  SageBlock(const SageInputs& in, const SageKernel& kernel, const SageOptions& options,
            const SageVariant& variant, const SageOperands& operands, const AttentionRows& rows,
            std::span<float> o)
      : shape_(in.shape),
        kernel_(kernel),
        options_(options),
        variant_(variant),
        q_(operands.q[static_cast<std::size_t>(rows.head % in.shape.group)]),
        k_(operands.k),
        v_(operands.v),
        begin_(rows.begin),
        rows_(rows.end - rows.begin),
        o_(o) {}

  const AttentionShape& shape_;
  const SageKernel& kernel_;
  const SageOptions& options_;
  const SageVariant& variant_;
  const SageCodes& q_;
  const SageCodes& k_;
  const SageCodes& v_;
  std::int64_t begin_;
  std::int64_t rows_;
  std::span<float> o_;
};

/// With INT8 Q and K.
class Int8Block : SageBlock {
 public:
  Int8Block(const SageInputs& in, const SageKernel& kernel, const SageOptions& options,
            const SageVariant& variant, const SageOperands& operands, const AttentionRows& rows,
            std::span<float> o)
      : SageBlock(in, kernel, options, variant, operands, rows, o),
        scale_(softmax_scale(options.softmax_scale, in.shape.d) * kLog2e),
        offset_(variant.plain_p ? 0.0F : kInt8Offset),
        maximum_(static_cast<std::size_t>(rows_), kHidden),
        sums_(static_cast<std::size_t>(rows_), {1.0F, 1.0F, 1.0F, 1.0F}) {}

  void run() {
    const std::int64_t last = begin_ / kernel_.q_tile * kernel_.q_tile + kernel_.q_tile;
    const std::int64_t seen = options_.causal ? std::min(shape_.n, last) : shape_.n;
    const std::int64_t tiles = ceil_divide(seen, kernel_.kv_tile);
    // The last tiles are masked, and their scores are multiplied by the scales of Q and K first.
    const std::int64_t masked = std::max<std::int64_t>(1, kernel_.q_tile / kernel_.kv_tile);
    for (std::int64_t t = 0; t < tiles; ++t) add_tile(t * kernel_.kv_tile, t >= tiles - masked);
    finish();
  }

 private:
  static std::size_t thread_of(std::int64_t column) {
    return static_cast<std::size_t>(column % 8 / 2);
  }

  [[nodiscard]] std::int32_t int_product(std::int64_t row, std::int64_t column) const {
    const auto* q = reinterpret_cast<const std::int8_t*>(q_.codes.data()) + row * shape_.d;
    const auto* k = reinterpret_cast<const std::int8_t*>(k_.codes.data()) + column * shape_.d;
    std::int32_t sum = 0;
    for (std::int64_t i = 0; i < shape_.d; ++i) sum += std::int32_t{q[i]} * std::int32_t{k[i]};
    return sum;
  }

  void add_tile(std::int64_t first, bool masked) {
    const std::int64_t width = std::min(kernel_.kv_tile, shape_.n - first);
    codes_.resize(static_cast<std::size_t>(rows_ * width));
    for (std::int64_t row = 0; row < rows_; ++row) add_scores(row, first, width, masked);
    GemmProblem pv;
    pv.model = find_instruction_model(kernel_.pv_model).accumulator;
    pv.a = {FormatId::e4m3fn, codes_.data(), rows_, width, width, 1};
    pv.b = {FormatId::e4m3fn, v_.codes.data() + first * shape_.d_v, shape_.d_v, width, 1,
            shape_.d_v};
    add_product(pv, variant_.one_level, o_);
  }

  void add_scores(std::int64_t row, std::int64_t first, std::int64_t width, bool masked) {
    const auto at = static_cast<std::size_t>(row);
    const float q_scale = q_.scales[static_cast<std::size_t>(begin_ + row)];
    std::vector<float> s;
    std::vector<float> factors;
    std::array<float, 4> largest{kHidden, kHidden, kHidden, kHidden};
    std::array<float, 4> factor_of{scale_, scale_, scale_, scale_};
    for (std::int64_t j = 0; j < width; ++j) {
      const float own = q_scale * k_.scales[static_cast<std::size_t>(first + j)];
      auto score = static_cast<float>(int_product(begin_ + row, first + j));
      if (masked) score *= own;
      if (options_.causal && first + j > begin_ + row) score = kHidden;
      s.push_back(score);
      factors.push_back(masked ? scale_ : scale_ * own);
      largest[thread_of(j)] = std::max(largest[thread_of(j)], score);
      factor_of[thread_of(j)] = factors.back();
    }
    const float before = maximum_[at];
    for (std::size_t t = 0; t < 4; ++t)
      maximum_[at] = std::max(maximum_[at], std::fma(largest[t], factor_of[t], -offset_));
    const float alpha = exp2_of(before - maximum_[at]);
    for (float& sum : sums_[at]) sum *= alpha;
    for (float& value : row_of_o(at)) value *= alpha;
    for (std::size_t j = 0; j < s.size(); ++j)
      s[j] = exp2_of(std::fma(s[j], factors[j], -maximum_[at]));
    add_sums(s, at);
    std::ranges::transform(s, codes_.begin() + row * width,
                           [](float p) { return nearest_code(FormatId::e4m3fn, p); });
  }

  /// Each thread adds up its four p of 16 columns, and adds that to its sum.
  void add_sums(std::vector<float> p, std::size_t row) {
    p.resize((p.size() + 15) / 16 * 16, 0.0F);
    if (variant_.sum_after_cast)
      for (float& one : p)
        one = decode_table(FormatId::e4m3fn)[nearest_code(FormatId::e4m3fn, one)];
    for (std::size_t first = 0; first < p.size(); first += 16)
      for (std::size_t t = 0; t < 4; ++t) {
        const std::size_t at = first + 2 * t;
        sums_[row][t] += ((p[at] + p[at + 1]) + p[at + 8]) + p[at + 9];
      }
  }

  void finish() {
    for (std::size_t row = 0; row < sums_.size(); ++row) {
      const std::array<float, 4>& s = sums_[row];
      const float inverse = 1.0F / ((s[0] + s[1]) + (s[2] + s[3]));
      const std::span<float> o = row_of_o(row);
      for (std::size_t c = 0; c < o.size(); ++c) o[c] = o[c] * inverse * v_.scales[c];
    }
  }

  std::span<float> row_of_o(std::size_t row) {
    const auto width = static_cast<std::size_t>(shape_.d_v);
    return o_.subspan(row * width, width);
  }

  float scale_;                             // of the softmax, to base 2
  float offset_;                            // log2 of P's factor
  std::vector<float> maximum_;              // of each row, to base 2, less the offset
  std::vector<std::array<float, 4>> sums_;  // of the four threads of a row
  std::vector<std::uint8_t> codes_;         // of P
};

/// In NVFP4.
class Nvfp4Block : SageBlock {
 public:
  Nvfp4Block(const SageInputs& in, const SageKernel& kernel, const SageOptions& options,
             const SageVariant& variant, const SageOperands& operands, const AttentionRows& rows,
             std::span<float> o)
      : SageBlock(in, kernel, options, variant, operands, rows, o),
        added_(operands.added[static_cast<std::size_t>(rows.head % in.shape.group)]),
        scale_(static_cast<float>(
            static_cast<double>(softmax_scale(options.softmax_scale, in.shape.d)) *
            std::numbers::log2e)),
        offset_(variant.plain_p ? 0.0F : kNvfp4Offset),
        maximum_(static_cast<std::size_t>(rows_), kUnseen),
        sums_(static_cast<std::size_t>(rows_), 0.0F) {}

  void run() {
    const std::int64_t last = std::min(begin_ / kPadding * kPadding + kPadding, shape_.m);
    const std::int64_t seen = options_.causal ? last : shape_.n;
    for (std::int64_t t = ceil_divide(seen, kPadding) - 1; t >= 0; --t) add_tile(t * kPadding);
    const auto width = static_cast<std::size_t>(shape_.d_v);
    for (std::size_t row = 0; row < sums_.size(); ++row) {
      const float inverse = sums_[row] == 0.0F ? 0.0F : 1.0F / sums_[row];
      for (float& value : o_.subspan(row * width, width)) value *= inverse;
    }
  }

 private:
  /// Blocks of UE4M3 scales of rows that start at `first`.
  static InverseScales scales_at(const std::vector<float>& scales, std::int64_t first) {
    return {std::span(scales).subspan(static_cast<std::size_t>(first)), 1, kBlock,
            FormatId::e4m3fn};
  }

  /// S of a tile [rows, 128]: what Q's mean contributes, and the products of the codes.
  [[nodiscard]] std::vector<float> scores(std::int64_t first) const {
    const std::int64_t blocks = shape_.d / kBlock;
    const std::int64_t block = variant_.same_q_mean ? 0 : begin_ / kPadding;
    const std::int64_t columns = padded(shape_.n);
    std::vector<float> c;
    for (std::int64_t row = 0; row < rows_; ++row)
      for (std::int64_t j = 0; j < kPadding; ++j)
        c.push_back(variant_.no_q_mean
                        ? 0.0F
                        : added_[static_cast<std::size_t>(block * columns + first + j)]);
    GemmProblem qk;
    qk.model = find_instruction_model(kernel_.qk_model).accumulator;
    qk.a = {FormatId::e2m1, q_.codes.data() + begin_ * shape_.d, rows_, shape_.d, shape_.d, 1};
    qk.b = {FormatId::e2m1, k_.codes.data() + first * shape_.d, kPadding, shape_.d, shape_.d, 1};
    qk.scale_a = scales_at(q_.scales, begin_ * blocks);
    qk.scale_a.values = qk.scale_a.values.first(static_cast<std::size_t>(rows_ * blocks));
    qk.scale_b = scales_at(k_.scales, first * blocks);
    qk.scale_b.values = qk.scale_b.values.first(static_cast<std::size_t>(kPadding * blocks));
    qk.c = c.data();
    qk.c_enters = CPlacement::accumulator;
    std::vector<float> s(c.size());
    gemm(qk, s, 1);
    return s;
  }

  void add_tile(std::int64_t first) {
    std::vector<float> s = scores(first);
    codes_.resize(s.size());
    p_scales_.assign(s.size() / static_cast<std::size_t>(kBlock), 0.0F);
    for (std::int64_t row = 0; row < rows_; ++row)
      add_row(std::span(s).subspan(static_cast<std::size_t>(row * kPadding), kPadding), row, first);
    const std::int64_t rows = padded(shape_.n);
    const std::int64_t blocks = rows / kBlock;
    std::vector<float> v_scales;
    for (std::int64_t c = 0; c < shape_.d_v; ++c)
      for (std::int64_t b = 0; b < kPadding / kBlock; ++b)
        v_scales.push_back(v_.scales[static_cast<std::size_t>(c * blocks + first / kBlock + b)]);
    GemmProblem pv;
    pv.model = find_instruction_model(kernel_.pv_model).accumulator;
    pv.a = {FormatId::e2m1, codes_.data(), rows_, kPadding, kPadding, 1};
    pv.b = {FormatId::e2m1, v_.codes.data() + first, shape_.d_v, kPadding, rows, 1};
    pv.scale_a = scales_at(p_scales_, 0);
    pv.scale_b = scales_at(v_scales, 0);
    add_product(pv);
  }

  /// O = fma(O, alpha, P V).
  void add_product(GemmProblem pv) {
    std::vector<float> tile(o_.size());
    const auto width = static_cast<std::size_t>(shape_.d_v);
    if (variant_.one_level) {
      for (std::size_t i = 0; i < o_.size(); ++i) o_[i] *= alphas_[i / width];
      pv.c = o_.data();
      pv.c_enters = CPlacement::accumulator;
    }
    gemm(pv, tile, 1);
    for (std::size_t i = 0; i < o_.size(); ++i)
      o_[i] = variant_.one_level ? tile[i] : std::fma(o_[i], alphas_[i / width], tile[i]);
  }

  void add_row(std::span<float> s, std::int64_t row, std::int64_t first) {
    const auto at = static_cast<std::size_t>(row);
    const std::int64_t seen = options_.causal ? begin_ + row + 1 : shape_.n;
    for (std::int64_t j = std::max<std::int64_t>(seen - first, 0); j < kPadding; ++j)
      s[static_cast<std::size_t>(j)] = kUnseen;
    const float before = maximum_[at];
    maximum_[at] = std::max(before, *std::ranges::max_element(s));
    alphas_.resize(sums_.size());
    alphas_[at] = before == kUnseen ? 0.0F : exp2_of((before - maximum_[at]) * scale_);
    sums_[at] *= alphas_[at];
    const float shift = std::fma(maximum_[at], scale_, offset_);
    for (std::int64_t block = 0; block < kPadding / kBlock; ++block) {
      const auto own = s.subspan(static_cast<std::size_t>(block * kBlock), kBlock);
      const auto place = static_cast<std::size_t>(row * kPadding / kBlock + block);
      if (maximum_[at] != kUnseen) add_block(own, at, place, shift);
    }
  }

  /// p of 16 columns, their scale, and E2M1 codes of p over the scale before the scale's cast.
  void add_block(std::span<float> s, std::size_t row, std::size_t place, float shift) {
    const float largest = *std::ranges::max_element(s);
    float wide = exp2_of(std::fma(largest, scale_, -shift) + kBlockOffset);
    const std::span<const float> table = decode_table(FormatId::e4m3fn);
    p_scales_[place] = table[nearest_code(FormatId::e4m3fn, wide)];
    if (variant_.repaired_p_scale) wide = p_scales_[place];
    for (std::size_t j = 0; j < s.size(); ++j) {
      const float p = exp2_of(std::fma(s[j], scale_, -shift));
      const std::uint8_t code = wide == 0.0F ? 0 : nearest_code(FormatId::e2m1, p / wide);
      codes_[place * static_cast<std::size_t>(kBlock) + j] = code;
      sums_[row] +=
          variant_.sum_after_cast ? decode_table(FormatId::e2m1)[code] * p_scales_[place] : p;
    }
  }

  const std::vector<float>& added_;
  float scale_;                 // of the softmax, to base 2
  float offset_;                // log2 of 1 over P's factor
  std::vector<float> maximum_;  // of each row, in units of S
  std::vector<float> sums_;
  std::vector<float> alphas_;
  std::vector<std::uint8_t> codes_;  // of P
  std::vector<float> p_scales_;
};

void validate_side(std::string_view name, std::span<const float> values, std::int64_t size) {
  require(std::ssize(values) == size, name, counted(static_cast<std::size_t>(size), "value"),
          counted(values.size(), "value"));
  for (const float value : values)
    if (!std::isfinite(value)) throw Error(name, "finite numbers", fmt::format("{}", value));
}

void validate(const SageInputs& in, const SageKernel& kernel, const SageOptions& o) {
  const AttentionShape& s = in.shape;
  require(s.heads > 0 && s.m > 0 && s.n > 0 && s.d > 0 && s.d_v > 0 && s.group > 0 &&
              s.heads % s.group == 0,
          "shape", "heads, rows and columns above 0, and whole groups of heads",
          fmt::format("[{}, {}, {}], group {}", s.heads, s.m, s.d, s.group));
  validate_side("Q", in.q, s.heads * s.m * s.d);
  validate_side("K", in.k, s.heads / s.group * s.n * s.d);
  validate_side("V", in.v, s.heads / s.group * s.n * s.d_v);
  const bool fits = kernel.nvfp4 ? s.d == 64 || s.d == 128 : s.d <= 128;
  require(fits, "Q", kernel.nvfp4 ? "d = 64 or 128" : "d of at most 128",
          fmt::format("d = {}", s.d));
  require(!o.causal || s.m == s.n, "causal", fmt::format("as many rows of K as of Q, {}", s.m),
          fmt::format("{}", s.n));
  require(o.input == FormatId::bf16 || o.input == FormatId::f16, "input", "bf16 or f16",
          format(o.input).name);
  require(std::isfinite(o.softmax_scale) && o.softmax_scale >= 0.0F, "softmax_scale",
          "a finite number >= 0", fmt::format("{}", o.softmax_scale));
}

/// The codes of valid inputs.
SageOperands operands_of(const SageInputs& inputs, const SageKernel& kernel,
                         const SageOptions& options, std::int64_t kv_head,
                         const SageVariant& variant) {
  const FloatEnvironment environment;
  return kernel.nvfp4 ? quantize_nvfp4(inputs, options, kv_head, variant)
                      : quantize_int8(inputs, kernel, options, kv_head, variant);
}

/// O of some rows of valid inputs.
std::vector<float> rows_of(const SageInputs& inputs, const SageKernel& kernel,
                           const SageOptions& options, const SageVariant& variant,
                           std::span<const AttentionRows> rows) {
  const FloatEnvironment environment;
  const AttentionShape& s = inputs.shape;
  std::vector<std::optional<SageOperands>> operands(static_cast<std::size_t>(s.heads / s.group));
  std::vector<std::int64_t> first{0};
  for (const AttentionRows& part : rows) {
    first.push_back(first.back() + (part.end - part.begin) * s.d_v);
    operands[static_cast<std::size_t>(part.head / s.group)].emplace();
  }
  const int threads = team_size(options.threads);
  parallel_for(std::ssize(operands), threads, [&](std::int64_t i) {
    std::optional<SageOperands>& own = operands[static_cast<std::size_t>(i)];
    if (own) own = operands_of(inputs, kernel, options, i, variant);
  });
  std::vector<float> o(static_cast<std::size_t>(first.back()), 0.0F);
  parallel_for(std::ssize(rows), threads, [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    const SageOperands& own = *operands[static_cast<std::size_t>(rows[at].head / s.group)];
    const auto part = std::span(o).subspan(static_cast<std::size_t>(first[at]),
                                           static_cast<std::size_t>(first[at + 1] - first[at]));
    if (kernel.nvfp4)
      Nvfp4Block(inputs, kernel, options, variant, own, rows[at], part).run();
    else
      Int8Block(inputs, kernel, options, variant, own, rows[at], part).run();
  });
  return o;
}

}  // namespace

std::string_view to_string(SageGranularity granularity) {
  return kGranularities[static_cast<std::size_t>(granularity)];
}

SageGranularity find_sage_granularity(std::string_view name) {
  return find_enumerator<SageGranularity>(kGranularities, "granularity", name);
}

std::span<const SageKernel> sage_kernels() {
  static const std::array<SageKernel, 4> kKernels{{
      {"sageattention2.sm89", false, 128, 32, 64, 448.0F, "exact", "sm89.mma.e4m3",
       with_source("Ada, pv_accum_dtype fp32+fp32: tiles of 128 x 64")},
      {"sageattention2pp.sm89", false, 128, 32, 64, 2.25F, "exact", "sm89.mma.e4m3.f16",
       with_source(
           "Ada, pv_accum_dtype fp32+fp16 (SageAttention2++, the default of sm89): V's codes are "
           "at most 2.25, P V of a tile is summed in FP16")},
      {"sageattention2.sm90", false, 64, 16, 128, 448.0F, "exact", "sm90.wgmma.e4m3",
       with_source("Hopper: tiles of 64 x 128")},
      {"sageattention3", true, 128, 128, 128, 448.0F, "sm120.mma.mxf4nvf4", "sm120.mma.mxf4nvf4",
       "thu-ml/SageAttention d1a57a5, sageattention3_blackwell (api.py, fp4_quantization_4d.cu, "
       "softmax_fused.h, mainloop_tma_ws.h): read, not measured. Q, K, V and P in NVFP4; K's mean "
       "and that of each 128 rows of Q are removed, and Q's is added to S. Assumed: the order of "
       "the row sum; that the permutation of K changes no bit; causal tiles, of which the source "
       "leaves out the second"},
  }};
  return kKernels;
}

const SageKernel& find_sage_kernel(std::string_view name) {
  return find_named(sage_kernels(), "call", name);
}

SageOperands quantize_sage(const SageInputs& inputs, const SageKernel& kernel,
                           const SageOptions& options, std::int64_t kv_head,
                           const SageVariant& variant) {
  validate(inputs, kernel, options);
  const std::int64_t kv_heads = inputs.shape.heads / inputs.shape.group;
  require(kv_head >= 0 && kv_head < kv_heads, "kv_head", fmt::format("0 to {}", kv_heads - 1),
          fmt::format("{}", kv_head));
  return operands_of(inputs, kernel, options, kv_head, variant);
}

std::vector<float> sage_rows(const SageInputs& inputs, const SageKernel& kernel,
                             const SageOptions& options, const SageVariant& variant,
                             std::span<const AttentionRows> rows) {
  validate(inputs, kernel, options);
  return rows_of(inputs, kernel, options, variant, rows);
}

std::vector<float> sage_attention(const SageInputs& inputs, const SageKernel& kernel,
                                  const SageOptions& options, const SageVariant& variant) {
  validate(inputs, kernel, options);
  return rows_of(inputs, kernel, options, variant, attention_blocks(inputs.shape, kernel.q_tile));
}

std::vector<double> sage_reference(const SageInputs& inputs, const SageOptions& options) {
  const FloatEnvironment environment;
  const AttentionShape& s = inputs.shape;
  // Only their shapes matter.
  const std::vector<std::uint8_t> zeros(
      std::max({inputs.q.size(), inputs.k.size(), inputs.v.size()}));
  const std::int64_t kv_heads = s.heads / s.group;
  const auto shaped = [&](std::span<const float> x, std::int64_t heads, std::int64_t rows,
                          std::int64_t columns) {
    return AttentionOperand{FormatId::e4m3fn, std::span(zeros).first(x.size()), heads, rows,
                            columns};
  };
  AttentionOptions exact;
  exact.softmax_scale = options.softmax_scale;
  exact.causal = options.causal;
  exact.threads = options.threads;
  return attention_reference(
      {shaped(inputs.q, s.heads, s.m, s.d), shaped(inputs.k, kv_heads, s.n, s.d),
       shaped(inputs.v, kv_heads, s.n, s.d_v)},
      inputs.q, inputs.k, inputs.v, exact);
}

}  // namespace fp8lab
