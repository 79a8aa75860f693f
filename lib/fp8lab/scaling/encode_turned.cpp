#include "fp8lab/scaling/encode_turned.hpp"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cfenv>
#include <span>
#include <vector>

#include "fp8lab/gemm/rounding_scope.hpp"
#include "fp8lab/scaling/strip_encoder.hpp"
#include "fp8lab/scaling/tile_caster.hpp"
#include "fp8lab/scaling/tile_kernels.hpp"
#include "fp8lab/scaling/tile_scales.hpp"
#include "fp8lab/scaling/turn_kernels.hpp"

namespace fp8lab::scaling_detail {
namespace {

/// Rows of x that are turned together: what is written is this many bytes long.
constexpr std::int64_t kRows = 256;
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
  const std::int64_t fit = std::min(kRows, kBandBytes / 4 / std::max<std::int64_t>(x.k, 1));
  return std::max<std::int64_t>(1, std::min(fit, x.rows / threads) / unit) * unit;
}

/// Writes codes to where they are in the transpose.
class CodeTurner {
 public:
  CodeTurner(Target target, QuantizedTensor& turned)
      : kernels_(turn_kernels(target)), turned_(turned) {}

  /// `rows` <= kRows rows from `row` on of `columns` codes from `column` on.
  void run(const std::uint8_t* codes, std::int64_t stride, std::int64_t row, std::int64_t rows,
           std::int64_t column, std::int64_t columns) {
    for (std::int64_t c = 0; c < columns; c += kBlock) {
      const std::int64_t width = std::min(kBlock, columns - c);
      // By way of a block: rows of the transpose may be powers of two apart, and their lines then
      // push each other out of the first cache.
      const auto height = static_cast<std::size_t>(rows);
      const auto turned_rows = static_cast<std::size_t>(width);
      kernels_.turn(codes + c, static_cast<std::size_t>(stride), height, turned_rows, block_.data(),
                    kStride);
      kernels_.copy(block_.data(), kStride, turned_rows, height,
                    turned_.codes.data() + (column + c) * turned_.k + row,
                    static_cast<std::size_t>(turned_.k));
    }
  }

 private:
  static constexpr std::int64_t kBlock = 64;
  static constexpr std::size_t kStride = kRows + 16;

  const TurnKernels& kernels_;
  QuantizedTensor& turned_;
  std::array<std::uint8_t, kBlock * kStride> block_;
};

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
#pragma omp parallel num_threads(execution.threads)
  {
    const gemm_detail::ScopedRounding nearest(FE_TONEAREST);
    StripEncoder original(recipe, x, Source::as_is, strips, execution.target, false, q);
    CodeTurner turner(execution.target, turned);
#pragma omp for schedule(static)
    for (std::int64_t row = 0; row < q.rows; row += height) {
      const std::int64_t end = std::min(row + height, q.rows);
      if (with_original) original.run_rows(row, end - row);
      for (std::int64_t r = row; r < end; r += kRows)
        turner.run(q.codes.data() + r * q.k, q.k, r, std::min(kRows, end - r), 0, q.k);
    }
  }
  move_scales(q, turned);
}

/// Tiles of the transpose that are one row of it: here they are parts of columns. One thread's
/// memory. Needs rounding to nearest, with subnormals.
class ColumnEncoder {
 public:
  ColumnEncoder(const Recipe& recipe, const FloatMatrix& x, Target target, std::int64_t bands,
                QuantizedTensor& turned)
      : recipe_(recipe),
        x_(x),
        kernels_(tile_kernels(target)),
        caster_(recipe, target, false),
        turner_(target, turned),
        turned_(turned),
        scales_(static_cast<std::size_t>(bands), TileScales(recipe, target, columns())),
        codes_(kRows * kStride) {}

  /// Raises the amaxes of columns by those of some rows.
  void add_amaxes(std::int64_t row, std::int64_t rows, std::int32_t* largest) const {
    for (std::int64_t r = row; r < row + rows; ++r)
      kernels_.element_amax(x_.values.data() + r * x_.k, columns(), amax_ignores_nan(recipe_.rule),
                            kAhead, largest);
  }

  [[nodiscard]] TileScales& scales(std::size_t band) { return scales_[band]; }
  [[nodiscard]] std::size_t columns() const { return static_cast<std::size_t>(x_.k); }

  /// Rows of x that hold whole tiles: amaxes, scales and codes.
  void run(std::int64_t row, std::int64_t rows) {
    const std::int64_t height = turned_.k_block;
    for (std::int64_t r = 0; r < rows; r += height) {
      TileScales& scales = scales_[static_cast<std::size_t>(r / height)];
      add_amaxes(row + r, std::min(height, rows - r), scales.clear(columns()));
      scales.make();
    }
    store_columns(std::span(scales_).first(static_cast<std::size_t>(ceil_divide(rows, height))),
                  static_cast<std::size_t>(row / height), turned_);
    for (std::int64_t r = 0; r < rows; r += kRows) encode(row, r, std::min(kRows, rows - r));
  }

  /// Codes of `rows` <= kRows rows, the first of which is `offset` below the first scales' row.
  void encode(std::int64_t first, std::int64_t offset, std::int64_t rows) {
    for (std::int64_t c = 0; c < x_.k; c += kColumns) {
      const std::int64_t width = std::min(kColumns, x_.k - c);
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto band = static_cast<std::size_t>((offset + r) / turned_.k_block);
        caster_.add(x_.values.data() + (first + offset + r) * x_.k + c,
                    static_cast<std::size_t>(width), 1, scales_[band].factors() + c,
                    static_cast<std::size_t>(x_.k), codes_.data() + r * kStride);
      }
      turner_.run(codes_.data(), kStride, first + offset, rows, c, width);
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
  QuantizedTensor& turned_;
  std::vector<TileScales> scales_;
  std::vector<std::uint8_t> codes_;
};

/// Tiles that are parts of columns of x, band after band of rows.
void encode_bands(const Recipe& recipe, const FloatMatrix& x, bool with_original,
                  QuantizedTensor& q, QuantizedTensor& turned, const Execution& execution) {
  const Strips strips(q, Source::as_is);
  const std::int64_t height = band_rows(x, turned.k_block, execution.threads);
#pragma omp parallel num_threads(execution.threads)
  {
    const gemm_detail::ScopedRounding nearest(FE_TONEAREST);
    StripEncoder original(recipe, x, Source::as_is, strips, execution.target,
                          q.codes.size() >= kLargeCodes, q);
    ColumnEncoder encoder(recipe, x, execution.target, height / turned.k_block, turned);
#pragma omp for schedule(static)
    for (std::int64_t row = 0; row < x.rows; row += height) {
      const std::int64_t rows = std::min(height, x.rows - row);
      if (with_original) original.run_rows(row, rows);
      encoder.run(row, rows);
    }
  }
}

/// Tiles that are whole columns of x: the amaxes of all of it stand before the first code.
void encode_columns(const Recipe& recipe, const FloatMatrix& x, bool with_original,
                    QuantizedTensor& q, QuantizedTensor& turned, const Execution& execution) {
  const Strips strips(q, Source::as_is);
  const std::int64_t tiles = ceil_divide(kAmaxRows, q.row_block);
  const std::int64_t height = tiles * q.row_block;
  std::vector<std::int32_t> largest(static_cast<std::size_t>(x.k));
#pragma omp parallel num_threads(execution.threads)
  {
    const gemm_detail::ScopedRounding nearest(FE_TONEAREST);
    StripEncoder original(recipe, x, Source::as_is, strips, execution.target,
                          q.codes.size() >= kLargeCodes, q);
    ColumnEncoder encoder(recipe, x, execution.target, 1, turned);
    TileScales& scales = encoder.scales(0);
    std::int32_t* mine = scales.clear(encoder.columns());
#pragma omp for schedule(static)
    for (std::int64_t row = 0; row < x.rows; row += height) {
      const std::int64_t rows = std::min(height, x.rows - row);
      if (with_original) original.run_rows(row, rows);
      encoder.add_amaxes(row, rows, mine);
    }
#pragma omp critical(fp8lab_scaling_columns)
    for (std::size_t c = 0; c < largest.size(); ++c) largest[c] = std::max(largest[c], mine[c]);
#pragma omp barrier
    std::copy(largest.begin(), largest.end(), mine);
    scales.make();
#pragma omp single
    store_columns(std::span(&scales, 1), 0, turned);
#pragma omp for schedule(static)
    for (std::int64_t row = 0; row < x.rows; row += kRows)
      encoder.encode(0, row, std::min(kRows, x.rows - row));
  }
}

}  // namespace

void encode_turned(const Recipe& recipe, const FloatMatrix& x, bool with_original,
                   QuantizedTensor& q, QuantizedTensor& turned, const Execution& execution) {
  if (q.codes.empty()) return;
  if (same_tiles(q, turned)) return encode_and_move(recipe, x, with_original, q, turned, execution);
  const bool rows_fit = turned.k_block % q.row_block == 0;
  if (turned.row_block != 1 || !rows_fit) {
    if (with_original) encode_tiles(recipe, x, Source::as_is, q, execution);
    return encode_tiles(recipe, x, Source::transposed, turned, execution);
  }
  const auto encode = turned.tile_columns() == 1 ? encode_columns : encode_bands;
  encode(recipe, x, with_original, q, turned, execution);
}

}  // namespace fp8lab::scaling_detail
