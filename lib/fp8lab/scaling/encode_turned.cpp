#include "fp8lab/scaling/encode_turned.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "fp8lab/core/cache_line.hpp"
#include "fp8lab/core/parallel.hpp"
#include "fp8lab/scaling/code_turner.hpp"
#include "fp8lab/scaling/cross_encoder.hpp"
#include "fp8lab/scaling/strip_encoder.hpp"
#include "fp8lab/scaling/tile_caster.hpp"
#include "fp8lab/scaling/tile_kernels.hpp"
#include "fp8lab/scaling/tile_scales.hpp"

namespace fp8lab::scaling_detail {
namespace {

/// What a core reads fast a second time.
constexpr std::int64_t kBandBytes = 4 << 20;
/// Columns of x whose codes the second cache holds until they are turned.
constexpr std::int64_t kColumns = 512;
/// Rows whose amaxes are taken while the second cache has them.
constexpr std::int64_t kAmaxRows = 8;
/// How far ahead of a stream of elements memory is read.
constexpr std::size_t kAhead = 2048;

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Rows of x that a thread takes at a time: whole tiles of `unit` rows.
std::int64_t band_rows(const FloatMatrix& x, std::int64_t unit, int threads) {
  const std::int64_t fit =
      std::min(CodeTurner::kRows, kBandBytes / 4 / std::max<std::int64_t>(x.k, 1));
  return std::max<std::int64_t>(1, std::min(fit, x.rows / threads) / unit) * unit;
}

/// Whether the tiles of the transpose hold the same elements.
bool same_tiles(const QuantizedTensor& q, const QuantizedTensor& turned) {
  return q.row_block == turned.k_block && q.k_block == turned.row_block;
}

void move_scales(const QuantizedTensor& q, QuantizedTensor& turned) {
  for (std::int64_t r = 0; r < q.tile_rows(); ++r)
    for (std::int64_t c = 0; c < q.tile_columns(); ++c) {
      const auto from = static_cast<std::size_t>(r * q.tile_columns() + c);
      const auto to = static_cast<std::size_t>(c * q.tile_rows() + r);
      store_scale(turned, to,
                  {q.scales[from], q.inverse_scales[from],
                   q.e8m0.empty() ? std::uint8_t{0} : q.e8m0[from]});
    }
}

/// The original, and its codes moved while a core's caches have them.
void encode_and_move(const Recipe& recipe, const FloatMatrix& x, bool with_original,
                     QuantizedTensor& q, QuantizedTensor& turned, const Execution& execution) {
  const Strips strips(q, Source::as_is);
  const std::int64_t height = band_rows(x, with_original ? q.row_block : 1, execution.threads);
  struct Encoders {
    StripEncoder original;
    CodeTurner turner;
  };
  const auto make = [&] {
    return Encoders{StripEncoder(recipe, x, Source::as_is, strips, execution.target, false, q),
                    CodeTurner(execution.target, turned)};
  };
  const auto encode_band = [&](Encoders& encoders, std::int64_t band) {
    const std::int64_t row = band * height;
    const std::int64_t end = std::min(row + height, q.rows);
    if (with_original) encoders.original.run_rows(row, end - row);
    for (std::int64_t r = row; r < end; r += CodeTurner::kRows)
      encoders.turner.run(q.codes.data() + r * q.k, q.k, r, std::min(CodeTurner::kRows, end - r), 0,
                          q.k);
  };
  parallel_for_with(ceil_divide(q.rows, height), execution.threads, make, encode_band);
  move_scales(q, turned);
}

/// Tiles that are parts of rows, and for the transpose parts of columns.
void encode_crossed(const Recipe& recipe, const FloatMatrix& x, QuantizedTensor& q,
                    QuantizedTensor& turned, const Execution& execution) {
  const CrossBlocks blocks(q, turned, execution.threads);
  parallel_for_with(
      ceil_divide(x.rows, blocks.rows), execution.threads,
      [&] { return CrossEncoder(recipe, x, blocks, execution.target, q, turned); },
      [&](CrossEncoder& encoder, std::int64_t block) {
        const std::int64_t row = block * blocks.rows;
        encoder.run_rows(row, std::min(blocks.rows, x.rows - row));
      });
}

/// The transpose under a scale a row of it: here they are whole columns. One thread's memory. Needs
/// rounding to nearest, with subnormals.
class ColumnEncoder {
 public:
  ColumnEncoder(const Recipe& recipe, const FloatMatrix& x, Target target, QuantizedTensor& turned)
      : recipe_(recipe),
        x_(x),
        kernels_(tile_kernels(target)),
        caster_(recipe, target, false),
        turner_(target, turned),
        scales_(recipe, target, columns()),
        codes_(CodeTurner::kRows * kStride) {}

  [[nodiscard]] TileScales& scales() { return scales_; }
  [[nodiscard]] std::size_t columns() const { return static_cast<std::size_t>(x_.k); }

  /// Raises the amaxes of columns by those of some rows.
  void add_amaxes(std::int64_t row, std::int64_t rows, std::int32_t* largest) const {
    for (std::int64_t r = row; r < row + rows; ++r)
      kernels_.element_amax(x_.values.data() + r * x_.k, columns(), amax_ignores_nan(recipe_.rule),
                            kAhead, largest);
  }

  /// Codes of `rows` <= kRows rows.
  void encode(std::int64_t row, std::int64_t rows) {
    for (std::int64_t c = 0; c < x_.k; c += kColumns) {
      const std::int64_t width = std::min(kColumns, x_.k - c);
      for (std::int64_t r = 0; r < rows; ++r)
        caster_.add(x_.values.data() + (row + r) * x_.k + c, static_cast<std::size_t>(width), 1,
                    scales_.factors() + c, {.near = static_cast<std::size_t>(x_.k)},
                    codes_.data() + r * kStride);
      turner_.run(codes_.data(), kStride, row, rows, c, width);
    }
  }

 private:
  /// Rows that do not begin in the same set of the cache.
  static constexpr std::int64_t kStride = kColumns + 64;

  const Recipe& recipe_;
  const FloatMatrix& x_;
  const TileKernels& kernels_;
  TileCaster caster_;
  CodeTurner turner_;
  TileScales scales_;
  CodeVector codes_;
};

/// Tiles that are whole columns of x: the amaxes of all of it stand before the first code.
void encode_columns(const Recipe& recipe, const FloatMatrix& x, bool with_original,
                    QuantizedTensor& q, QuantizedTensor& turned, const Execution& execution) {
  const Strips strips(q, Source::as_is);
  const std::int64_t tiles = ceil_divide(kAmaxRows, q.row_block);
  const std::int64_t height = tiles * q.row_block;
  std::vector<std::int32_t> largest(static_cast<std::size_t>(x.k));
  FirstError error;
#pragma omp parallel num_threads(execution.threads)
  {
    const FloatEnvironment environment;
    std::optional<StripEncoder> original;
    std::optional<ColumnEncoder> encoder;
    std::int32_t* mine = nullptr;
    error.guard([&] {
      original.emplace(recipe, x, Source::as_is, strips, execution.target,
                       q.codes.size() >= kLargeCodes, q);
      encoder.emplace(recipe, x, execution.target, turned);
      mine = encoder->scales().clear(encoder->columns());
    });
#pragma omp for schedule(static)
    for (std::int64_t row = 0; row < x.rows; row += height)
      error.guard([&] {
        const std::int64_t rows = std::min(height, x.rows - row);
        if (with_original) original->run_rows(row, rows);
        encoder->add_amaxes(row, rows, mine);
      });
    error.guard([&] {
#pragma omp critical(fp8lab_scaling_columns)
      for (std::size_t c = 0; c < largest.size(); ++c) largest[c] = std::max(largest[c], mine[c]);
    });
#pragma omp barrier
    error.guard([&] {
      std::copy(largest.begin(), largest.end(), mine);
      encoder->scales().make();
    });
#pragma omp single
    error.guard([&] { encoder->scales().store(0, turned); });
#pragma omp for schedule(static)
    for (std::int64_t row = 0; row < x.rows; row += CodeTurner::kRows)
      error.guard([&] { encoder->encode(row, std::min(CodeTurner::kRows, x.rows - row)); });
  }
  error.rethrow();
}

}  // namespace

void encode_turned(const Recipe& recipe, const FloatMatrix& x, bool with_original,
                   QuantizedTensor& q, QuantizedTensor& turned, const Execution& execution) {
  if (q.codes.empty()) return;
  if (same_tiles(q, turned)) return encode_and_move(recipe, x, with_original, q, turned, execution);
  if (with_original && CrossBlocks::fit(q, turned))
    return encode_crossed(recipe, x, q, turned, execution);
  if (turned.row_block == 1 && turned.tile_columns() == 1)
    return encode_columns(recipe, x, with_original, q, turned, execution);
  if (with_original) encode_tiles(recipe, x, Source::as_is, q, execution);
  encode_tiles(recipe, x, Source::transposed, turned, execution);
}

}  // namespace fp8lab::scaling_detail
