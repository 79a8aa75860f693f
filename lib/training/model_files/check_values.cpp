// Scales and codes of one weight: what no recipe writes.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>

#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/parallel.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/tensors/packed.hpp"
#include "training/model_files/check_parts.hpp"

namespace fp8lab {
namespace {

// Thresholds. Recipes scale the amax of a tile to the largest code, up to one power of two.

/// The largest code of a tile, of the format's largest: recipes reach a half, powers of two a
/// quarter, weights that share the amax of joined ones less.
constexpr float kUnused = 1.0F / 16.0F;
/// Among weights that share no scale, tiles of this share may use less of the range.
constexpr double kUnusedShare = 0.05;
/// FP4: the largest code of a tile is at least 3 of 6. Tiny tiles have coarse scales in NVFP4.
constexpr float kUnusedNarrow = 0.3F;
constexpr double kUnusedNarrowShare = 0.10;
/// Values of weights: a reciprocal in place of a quotient gives 448^2 / amax.
constexpr float kLargestValue = 100.0F;
constexpr float kSmallestValue = 1e-6F;
/// Of one tile among those of a weight, and of one weight among all: a scale of amax in place of
/// amax / 448 is 448 times too large.
constexpr float kOutlier = 256.0F;
/// Of a tile of many elements below the median of a weight; smaller ones may hold a dead channel.
constexpr float kFaint = 1024.0F;
constexpr std::int64_t kManyElements = 1024;
/// Of a group below the median: an exponent of zero is 2^-127.
constexpr float kNothing = 1.8446744e19F;  // 2^64
/// FP4 codes at the largest: 17 % of uniform values, 10 % of normal ones.
constexpr double kSaturatedNarrow = 0.25;

/// Codes of a format without their sign.
struct Magnitudes {
  std::uint8_t mask;
  std::uint8_t top;   ///< the largest finite one
  std::uint8_t next;  ///< the one below
  std::span<const float> values;

  [[nodiscard]] float largest() const { return values[top]; }
};

Magnitudes magnitudes_of(FormatId id) {
  const std::span<const float> values = decode_table(id);
  const auto mask = static_cast<std::uint8_t>((1U << (format(id).code_bits() - 1)) - 1U);
  std::uint8_t top = 0;
  for (unsigned code = 0; code <= mask; ++code)
    if (std::isfinite(values[code]) && values[code] > values[top])
      top = static_cast<std::uint8_t>(code);
  return {mask, top, static_cast<std::uint8_t>(top - 1), values};
}

/// What is counted over the codes of a weight.
struct CodeCounts {
  std::vector<std::uint8_t> tile_top;  ///< the largest magnitude of each tile
  std::int64_t elements = 0;
  std::int64_t top = 0;
  std::int64_t next = 0;
  std::int64_t not_finite = 0;
  std::uint8_t bits = 0;  ///< those that are set in any code
};

struct SegmentCounts {
  std::uint8_t largest = 0;
  std::uint8_t bits = 0;
  std::int64_t top = 0;
  std::int64_t next = 0;
  std::int64_t not_finite = 0;
};

/// A run of at most 255 codes that reaches the two largest magnitudes. Its counts fit bytes.
void count_large(std::span<const std::uint8_t> run, const Magnitudes& m, SegmentCounts& out) {
  std::uint8_t top = 0;
  std::uint8_t next = 0;
  std::uint8_t bad = 0;
  for (const std::uint8_t c : run) {
    const auto code = static_cast<std::uint8_t>(c & m.mask);
    top = static_cast<std::uint8_t>(top + (code == m.top ? 1 : 0));
    next = static_cast<std::uint8_t>(next + (code == m.next ? 1 : 0));
    bad = static_cast<std::uint8_t>(bad + (code > m.top ? 1 : 0));
  }
  out.top += top;
  out.next += next;
  out.not_finite += bad;
  if (top > 0) out.largest = m.top;
  if (top > 0 || bad == 0) return;
  for (const std::uint8_t c : run) {
    const auto code = static_cast<std::uint8_t>(c & m.mask);
    if (code <= m.top) out.largest = std::max(out.largest, code);
  }
}

/// Part of a row in one tile. Most runs stay below the largest magnitudes: a maximum, which
/// vectorizes, tells them.
void count_segment(std::span<const std::uint8_t> codes, const Magnitudes& m, SegmentCounts& out) {
  constexpr std::size_t kRun = 128;
  const std::uint8_t mask = m.mask;
  for (std::size_t begin = 0; begin < codes.size(); begin += kRun) {
    const std::size_t end = std::min(codes.size(), begin + kRun);
    const std::span<const std::uint8_t> run = codes.subspan(begin, end - begin);
    std::uint8_t largest = 0;
    std::uint8_t bits = 0;
    for (const std::uint8_t code : run) {
      largest = std::max(largest, static_cast<std::uint8_t>(code & mask));
      bits = static_cast<std::uint8_t>(bits | code);
    }
    out.bits = static_cast<std::uint8_t>(out.bits | bits);
    if (largest <= m.top) out.largest = std::max(out.largest, largest);
    if (largest >= m.next) count_large(run, m, out);
  }
}

/// Counts rows [first, last) of a part, all in tiles of one row of tiles.
void count_rows(const StoredWeight& weight, const WeightPart& part, const Magnitudes& m,
                std::int64_t first, std::int64_t last, std::vector<SegmentCounts>& columns) {
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(part.codes.codes.bytes.data());
  columns.assign(static_cast<std::size_t>(weight.tile_columns()), {});
  for (std::int64_t row = first; row < last; ++row)
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const std::int64_t begin = static_cast<std::int64_t>(c) * weight.k_block;
      const std::int64_t end = std::min(weight.k, begin + weight.k_block);
      count_segment({bytes + row * weight.k + begin, static_cast<std::size_t>(end - begin)}, m,
                    columns[c]);
    }
}

void merge(const std::vector<SegmentCounts>& columns, std::size_t first_tile, CodeCounts& counts) {
  for (std::size_t c = 0; c < columns.size(); ++c) {
    std::uint8_t& tile = counts.tile_top[first_tile + c];
    tile = std::max(tile, columns[c].largest);
    counts.top += columns[c].top;
    counts.next += columns[c].next;
    counts.not_finite += columns[c].not_finite;
    counts.bits = static_cast<std::uint8_t>(counts.bits | columns[c].bits);
  }
}

void count_part(const StoredWeight& weight, const WeightPart& part, const Magnitudes& m,
                CodeCounts& counts) {
  constexpr std::int64_t kMostRows = 64;
  // Rows of a tile are counted together where they are few, so that tiles are merged once.
  const std::int64_t unit =
      std::min(weight.row_block, kMostRows) == weight.row_block
          ? weight.row_block * std::max<std::int64_t>(1, 32 / weight.row_block)
          : kMostRows;
  const std::int64_t units = (part.rows + unit - 1) / unit;
  std::mutex mutex;
  parallel_for_with(
      units, team_size(0), [] { return std::vector<SegmentCounts>(); },
      [&](std::vector<SegmentCounts>& columns, std::int64_t u) {
        const std::int64_t end = std::min(part.rows, (u + 1) * unit);
        for (std::int64_t row = u * unit; row < end;) {
          const std::int64_t in_tile = (part.first + row) % weight.row_block;
          const std::int64_t last = std::min(end, row + weight.row_block - in_tile);
          count_rows(weight, part, m, row, last, columns);
          const std::int64_t tile =
              (part.expert * weight.tile_rows() + (part.first + row) / weight.row_block) *
              weight.tile_columns();
          const std::scoped_lock lock(mutex);
          merge(columns, static_cast<std::size_t>(tile), counts);
          row = last;
        }
      });
  counts.elements += part.rows * weight.k;
}

/// Adds findings of one weight.
class ValueCheck {
 public:
  ValueCheck(const StoredModel& model, const StoredWeight& weight, const std::vector<float>& scales,
             const CodeCounts& counts, std::vector<Finding>& findings)
      : model_(model),
        weight_(weight),
        scales_(scales),
        counts_(counts),
        m_(magnitudes_of(weight.form.format)),
        findings_(findings) {}

  /// Returns the largest value.
  float run() {
    const bool usable = check_scales();
    check_codes();
    if (!usable) return 0.0F;
    if (!check_exponents()) return 0.0F;
    check_signs();
    check_unused();
    check_saturation();
    return check_size();
  }

 private:
  void tell(const char* kind, const std::string& name, std::string text) {
    findings_.push_back({kind, name, std::move(text)});
  }

  [[nodiscard]] const std::string& scale_name() const { return weight_.scale.spec.name; }
  [[nodiscard]] bool is_narrow() const { return format(weight_.form.format).code_bits() < 8; }

  /// Whether all scales are numbers above 0, or 0 for tiles of zeros.
  bool check_scales() {
    std::int64_t nan = 0;
    std::int64_t infinite = 0;
    std::int64_t negative = 0;
    std::int64_t zero = 0;
    for (std::size_t i = 0; i < scales_.size(); ++i) {
      nan += std::isnan(scales_[i]) ? 1 : 0;
      infinite += std::isinf(scales_[i]) ? 1 : 0;
      negative += scales_[i] < 0.0F ? 1 : 0;
      zero += scales_[i] == 0.0F && counts_.tile_top[i] != 0 ? 1 : 0;
    }
    const auto say = [&](std::int64_t count, std::string_view what) {
      if (count > 0)
        tell("scale value", scale_name(),
             fmt::format("expected finite scales above 0, got {} of {} that {} {}", count,
                         scales_.size(), count == 1 ? "is" : "are", what));
    };
    say(nan, "NaN");
    say(infinite, "infinite");
    say(negative, "negative");
    // Tiny groups of NVFP4 may have a scale that rounds to 0.
    const bool may_be_zero = weight_.form.scales == ScaleKind::two_level &&
                             static_cast<double>(zero) < 0.02 * static_cast<double>(scales_.size());
    if (!may_be_zero) say(zero, "zero, for codes that are not");
    return nan + infinite + negative == 0;
  }

  void check_codes() {
    if (counts_.not_finite > 0)
      tell("NaN codes", weight_.codes.name,
           fmt::format("expected codes of numbers, got {} of NaN or infinity among {}",
                       counts_.not_finite, counts_.elements));
    if (counts_.elements == 0 || counts_.not_finite > 0) return;
    const std::size_t tiles = counts_.tile_top.size() / static_cast<std::size_t>(weight_.batch);
    std::int64_t zeros = 0;
    for (std::size_t first = 0; first < counts_.tile_top.size(); first += tiles) {
      const auto begin = counts_.tile_top.begin() + static_cast<std::ptrdiff_t>(first);
      zeros += std::all_of(begin, begin + static_cast<std::ptrdiff_t>(tiles),
                           [](std::uint8_t top) { return top == 0; })
                   ? 1
                   : 0;
    }
    if (zeros > 0 && weight_.batch == 1)
      tell("range", weight_.codes.name, "expected codes that are not all 0, got zeros");
    else if (zeros > 0)
      tell("range", weight_.codes.name,
           fmt::format("expected codes that are not all 0, got zeros in {} of {}", zeros,
                       counted(weight_.batch, "expert")));
  }

  /// Bytes of E8M0 stored as numbers, and scales that are no powers of two where the configuration
  /// says that they are. Returns false for the former.
  bool check_exponents() {
    if (weight_.form.scales != ScaleKind::plain || scales_.empty()) return true;
    const bool are_bytes = std::all_of(scales_.begin(), scales_.end(), [](float s) {
      return s >= 32.0F && s <= 254.0F && s == std::floor(s);
    });
    if (are_bytes) {
      tell("E8M0", scale_name(),
           fmt::format("expected scales, got whole numbers from {} to {}: bytes of E8M0 that were "
                       "stored as numbers",
                       *std::min_element(scales_.begin(), scales_.end()),
                       *std::max_element(scales_.begin(), scales_.end())));
      return false;
    }
    const bool says_powers = model_.stored.power_of_two;
    const auto other = std::find_if(scales_.begin(), scales_.end(), [](float s) {
      return (std::bit_cast<std::uint32_t>(s) & 0x7fffffU) != 0;
    });
    if (says_powers && other != scales_.end())
      tell("E8M0", scale_name(),
           fmt::format("expected powers of two (scale_fmt: ue8m0), got {}", *other));
    return true;
  }

  /// Of weights that lost their signs.
  void check_signs() {
    const int sign = m_.mask + 1;
    if (counts_.elements >= kManyElements && (counts_.bits & m_.mask) != 0 &&
        (counts_.bits & sign) == 0)
      tell("range", weight_.codes.name,
           fmt::format("expected codes of both signs, got {} without a negative one",
                       counts_.elements));
  }

  /// The upper level is too large if no group uses the range of its own scales.
  void check_unused() {
    const float limit = is_narrow() ? kUnusedNarrow : kUnused;
    std::int64_t used = 0;
    std::int64_t unused = 0;
    std::uint8_t top = 0;
    for (const std::uint8_t tile : counts_.tile_top) {
      top = std::max(top, tile);
      if (tile == 0) continue;
      ++(m_.values[tile] < limit * m_.largest() ? unused : used);
    }
    const double share = is_narrow() ? kUnusedNarrowShare : kUnusedShare;
    if (static_cast<double>(unused) > share * static_cast<double>(used + unused))
      tell("range", weight_.codes.name,
           fmt::format("expected codes up to {} in every tile, got at most {} in {} of {} tiles "
                       "with codes: the scales are too large",
                       m_.largest(),
                       counts_.tile_top.size() == 1 ? m_.values[top] : limit * m_.largest(), unused,
                       used + unused));
  }

  void check_saturation() {
    const auto top = static_cast<double>(counts_.top);
    const auto next = static_cast<double>(counts_.next);
    const auto tiles = static_cast<double>(scales_.size());
    const auto elements = static_cast<double>(counts_.elements);
    if (elements == 0.0) return;
    // Each tile has one value at its amax. Values that were cut off stand at the largest code,
    // whose bin is then fuller than the one below, which is wider.
    const bool narrow = is_narrow();
    const bool fuller = top > 1.6 * next + 1.5 * tiles + 4.0 * std::sqrt(next + tiles) + 8.0;
    const bool saturated = narrow ? top > kSaturatedNarrow * elements + 16.0 : fuller;
    if (saturated)
      tell(
          "saturation", weight_.codes.name,
          fmt::format("expected few codes of {}, got {} of {} ({:.2g} %): the scales are too small",
                      m_.largest(), counts_.top, counts_.elements, 100.0 * top / elements));
  }

  /// Values of weights have a usual size.
  float check_size() {
    std::vector<float> sizes;
    for (std::size_t i = 0; i < scales_.size(); ++i)
      if (counts_.tile_top[i] != 0 && scales_[i] != 0.0F)
        sizes.push_back(m_.values[counts_.tile_top[i]] * scales_[i]);
    if (sizes.empty()) return 0.0F;
    const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
    const float smallest = *least;
    const float largest = *most;
    const auto middle = sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() / 2);
    std::nth_element(sizes.begin(), middle, sizes.end());
    if (*middle >= kLargestValue) {
      tell("inverted", scale_name(),
           fmt::format("expected scales that give values of weights, got a tile with values up to "
                       "{:.3g} as the median of {}: reciprocals, or bytes that are no exponents",
                       *middle, counted(sizes.size(), "tile")));
    } else if (largest < kSmallestValue) {
      tell("inverted", scale_name(),
           fmt::format("expected scales that give values of weights, got at most {:.3g}: "
                       "reciprocals, or numbers that were stored as bytes",
                       largest));
    } else if (largest > kOutlier * *middle) {
      tell("outlier", scale_name(),
           fmt::format("expected tiles of similar size, got one with values up to {:.3g} where the "
                       "median is {:.3g}",
                       largest, *middle));
    } else if (smallest * (has_large_tiles() ? kFaint : kNothing) < *middle) {
      tell("outlier", scale_name(),
           fmt::format("expected tiles of similar size, got one with values up to {:.3g} where the "
                       "median is {:.3g}",
                       smallest, *middle));
    }
    return *middle >= kLargestValue ? 0.0F : largest;
  }

  [[nodiscard]] bool has_large_tiles() const {
    return std::min(weight_.row_block, weight_.rows) > 1 &&
           std::min(weight_.row_block, weight_.rows) * std::min(weight_.k_block, weight_.k) >=
               kManyElements;
  }

  const StoredModel& model_;
  const StoredWeight& weight_;
  const std::vector<float>& scales_;
  const CodeCounts& counts_;
  Magnitudes m_;
  std::vector<Finding>& findings_;
};

struct FloatCounts {
  std::int64_t nan = 0;
  std::int64_t infinite = 0;
  bool has_value = false;  ///< other than 0
};

/// Counts by bits: `infinity` is the code of the positive one.
template <class Word>
void count_floats(std::span<const std::byte> bytes, Word infinity, FloatCounts& counts) {
  const auto magnitudes = static_cast<Word>(static_cast<Word>(~Word{0}) >> 1U);
  constexpr std::size_t kRun = std::size_t{1} << 14;
  std::array<Word, kRun> words;
  for (std::size_t begin = 0; begin < bytes.size(); begin += sizeof(words)) {
    const std::size_t size = std::min(sizeof(words), bytes.size() - begin);
    std::memcpy(words.data(), bytes.data() + begin, size);
    Word largest = 0;
    for (std::size_t i = 0; i < size / sizeof(Word); ++i)
      largest = std::max(largest, static_cast<Word>(words[i] & magnitudes));
    counts.has_value = counts.has_value || largest != 0;
    if (largest < infinity) continue;
    for (std::size_t i = 0; i < size / sizeof(Word); ++i) {
      const auto magnitude = static_cast<Word>(words[i] & magnitudes);
      counts.nan += magnitude > infinity ? 1 : 0;
      counts.infinite += magnitude == infinity ? 1 : 0;
    }
  }
}

}  // namespace

void check_floats(const TensorSpec& spec, const SafetensorsFile& file, const TensorView& tensor,
                  std::vector<Finding>& findings) {
  constexpr std::size_t kPart = std::size_t{8} << 20;
  FloatCounts counts;
  for (std::size_t at = 0; at < tensor.bytes.size(); at += kPart) {
    const auto part = tensor.bytes.subspan(at, std::min(kPart, tensor.bytes.size() - at));
    if (spec.type == ElementType::bf16)
      count_floats<std::uint16_t>(part, 0x7f80U, counts);
    else if (spec.type == ElementType::f16)
      count_floats<std::uint16_t>(part, 0x7c00U, counts);
    else if (spec.type == ElementType::f32)
      count_floats<std::uint32_t>(part, 0x7f800000U, counts);
    else
      return;
    file.file().release(part);
  }
  // Masks are added to logits.
  const bool is_mask = spec.name.find("mask") != std::string::npos;
  if (counts.nan > 0 || (counts.infinite > 0 && !is_mask))
    findings.push_back({"NaN values", spec.name,
                        fmt::format("expected finite values, got {} of NaN and {} of infinity",
                                    counts.nan, counts.infinite)});
  const bool is_matrix = spec.shape.size() >= 2 && spec.name.ends_with(".weight");
  if (is_matrix && !counts.has_value && element_count(spec.shape, spec.name) >= kManyElements)
    findings.push_back({"range", spec.name, "expected values that are not all 0, got zeros"});
}

void check_values(const StoredModel& model, const StoredWeight& weight,
                  const std::vector<float>& scales, const SafetensorsFile& file,
                  const TensorView& codes, std::vector<WeightRange>& ranges,
                  std::vector<Finding>& findings) {
  CodeCounts counts;
  counts.tile_top.resize(scales.size());
  const Magnitudes m = magnitudes_of(weight.form.format);
  for_each_part_of(weight, scales, file, codes,
                   [&](const WeightPart& part) { count_part(weight, part, m, counts); });
  const float largest = ValueCheck(model, weight, scales, counts, findings).run();
  if (largest > 0.0F) ranges.push_back({weight.scale.spec.name, largest});
}

void check_ranges(const std::vector<WeightRange>& ranges, std::vector<Finding>& findings) {
  if (ranges.size() < 3) return;
  std::vector<float> sizes;
  for (const WeightRange& range : ranges) sizes.push_back(range.largest);
  const auto middle = sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() / 2);
  std::nth_element(sizes.begin(), middle, sizes.end());
  for (const WeightRange& range : ranges)
    if (range.largest > kOutlier * *middle || range.largest * kOutlier < *middle)
      findings.push_back({"outlier", range.name,
                          fmt::format("expected values of the size of other weights, {:.3g}, got "
                                      "{:.3g}",
                                      *middle, range.largest)});
}

}  // namespace fp8lab
