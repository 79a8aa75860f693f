#include "fp8lab/scaling/encode_transposed.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "fp8lab/core/cache_line.hpp"
#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/core/parallel.hpp"
#include "fp8lab/scaling/code_transposer.hpp"
#include "fp8lab/scaling/encode_tiles.hpp"
#include "fp8lab/scaling/tile_caster.hpp"
#include "fp8lab/scaling/tile_kernels.hpp"
#include "fp8lab/scaling/tile_scales.hpp"
#include "hwy/cache_control.h"

namespace fp8lab::scaling_detail {
namespace {

constexpr std::int64_t kStep = cast_kernels::kCrossStep;
constexpr std::int64_t kTileStep = cast_kernels::kTileStep;
/// What a core's second cache keeps, beside what passes through it, until codes are turned.
constexpr std::int64_t kBlockElements = std::int64_t{1} << 16;
constexpr std::int64_t kLeastColumns = 256;
constexpr std::int64_t kMostColumns = 512;
/// Blocks whose scales of rows are stored together.
constexpr std::int64_t kTogether = 16;

/// Whole tiles of `k_block` columns, and whole steps of the kernels.
std::int64_t block_columns(const QuantizedTensor& q) {
  if (q.k_block >= q.k) return ceil_divide(q.k, kStep) * kStep;
  const std::int64_t unit = q.k_block % kStep == 0 ? q.k_block : 2 * q.k_block;
  return ceil_divide(kLeastColumns, unit) * unit;
}

/// Fetches what a block of scales will be written to.
void fetch_scales(const QuantizedTensor& q, const ScaleBlock& block) {
  const auto across = static_cast<std::size_t>(q.tile_columns());
  std::size_t at = block.row * across + block.column;
  for (std::size_t r = 0; r < block.rows; ++r, at += across) {
    hwy::Prefetch(&q.scales[at]);
    hwy::Prefetch(&q.inverse_scales[at]);
    if (!q.e8m0.empty()) hwy::Prefetch(&q.e8m0[at]);
  }
}

}  // namespace

CrossBlocks::CrossBlocks(const QuantizedTensor& q, const QuantizedTensor& turned, int threads)
    : columns(block_columns(q)),
      tile(q.k_block >= q.k ? columns : q.k_block),
      tiles(columns / tile),
      height(turned.k_block) {
  const std::int64_t fit = std::min(CodeTransposer::kRows, kBlockElements / columns);
  rows = std::max<std::int64_t>(1, std::min(fit, q.rows / threads) / height) * height;
}

bool CrossBlocks::fit(const QuantizedTensor& q, const QuantizedTensor& turned) {
  const bool whole_steps = q.k_block >= q.k || q.k_block % kTileStep == 0;
  return q.row_block == 1 && turned.row_block == 1 && whole_steps &&
         block_columns(q) <= kMostColumns && turned.k_block <= CodeTransposer::kRows;
}

CrossEncoder::CrossEncoder(const Recipe& recipe, const FloatMatrix& x, const CrossBlocks& blocks,
                           Target target, QuantizedTensor& q, QuantizedTensor& turned)
    : recipe_(recipe),
      x_(x),
      blocks_(blocks),
      kernels_(tile_kernels(target)),
      caster_(recipe, target, q.codes.size() >= kLargeCodes),
      turner_(target, turned),
      groups_(kTogether,
              TileScales(recipe, target, static_cast<std::size_t>(blocks.rows * blocks.tiles))),
      column_scales_(
          recipe, target,
          static_cast<std::size_t>(ceil_divide(blocks.rows, turned.k_block) * blocks.columns)),
      q_(q),
      turned_(turned),
      stride_(blocks.columns + 16),
      values_(static_cast<std::size_t>(blocks.height * stride_)),
      code_stride_(blocks.columns + 64),
      column_codes_(static_cast<std::size_t>(blocks.rows * code_stride_)),
      row_codes_(
          q.k % blocks.columns == 0 ? 0 : static_cast<std::size_t>(blocks.height * code_stride_)) {}

void CrossEncoder::run_rows(std::int64_t row, std::int64_t rows) {
  const std::int64_t group = kTogether * blocks_.columns;
  for (std::int64_t begin = 0; begin < x_.k; begin += group) {
    const std::int64_t end = std::min(begin + group, x_.k);
    for (std::int64_t c = begin; c < end; c += blocks_.columns) {
      row_scales_ = &groups_[static_cast<std::size_t>((c - begin) / blocks_.columns)];
      run(row, rows, c);
    }
    TileScales::store_rows(
        groups_,
        {.row = static_cast<std::size_t>(row),
         .rows = static_cast<std::size_t>(rows),
         .column = static_cast<std::size_t>(begin / q_.k_block),
         .columns = static_cast<std::size_t>(ceil_divide(end - begin, q_.k_block)),
         .stride = static_cast<std::size_t>(blocks_.tiles)},
        q_);
  }
}

void CrossEncoder::run(std::int64_t row, std::int64_t rows, std::int64_t column) {
  const std::int64_t columns = std::min(blocks_.columns, x_.k - column);
  const std::int64_t bands = ceil_divide(rows, blocks_.height);
  row_scales_->clear(static_cast<std::size_t>(rows * blocks_.tiles));
  column_scales_.clear(static_cast<std::size_t>(bands * blocks_.columns));
  const bool last_column = column + columns == x_.k;
  const float* next_block =
      x_.values.data() + (last_column ? (row + rows) * x_.k : row * x_.k + column + columns);
  for (std::int64_t b = 0; b < bands; ++b) {
    Band band{.row = b * blocks_.height, .tile = b * blocks_.columns, .columns = columns};
    band.rows = std::min(blocks_.height, rows - band.row);
    band.x = x_.values.data() + (row + band.row) * x_.k + column;
    band.next = b + 1 < bands ? band.x + band.rows * x_.k : next_block;
    band.codes = q_.codes.data() + (row + band.row) * q_.k + column;
    run(band);
  }
  const ScaleBlock block{.row = static_cast<std::size_t>(column),
                         .rows = static_cast<std::size_t>(columns),
                         .column = static_cast<std::size_t>(row / blocks_.height),
                         .columns = static_cast<std::size_t>(bands),
                         .stride = static_cast<std::size_t>(blocks_.columns)};
  fetch_scales(turned_, block);
  turner_.run(column_codes_.data(), code_stride_, row, rows, column, columns);
  column_scales_.store_turned(block, turned_);
}

void CrossEncoder::run(const Band& band) {
  const auto row_tile = static_cast<std::size_t>(band.row * blocks_.tiles);
  const auto row_tiles = static_cast<std::size_t>(band.rows * blocks_.tiles);
  const auto column_tile = static_cast<std::size_t>(band.tile);
  const auto column_tiles = static_cast<std::size_t>(blocks_.columns);
  const auto make_scales = [&] {
    row_scales_->make(row_tile, row_tiles);
    column_scales_.make(column_tile, column_tiles);
  };
  load(band);
  make_scales();
  const std::uint32_t overflow_from = caster_.overflow_from();
  const bool bounded = row_scales_->bound(row_tile, row_tiles, overflow_from) &&
                       column_scales_.bound(column_tile, column_tiles, overflow_from);
  if (!bounded && amax_ignores_nan(recipe_.rule)) {
    ignore_nan(band);
    make_scales();
  }
  caster_.takes_crossed() ? encode_crossed(band, bounded) : encode_apart(band);
}

/// Values and amaxes, in which NaN counts.
void CrossEncoder::load(const Band& band) {
  CrossRows rows{.from = band.x,
                 .from_stride = static_cast<std::size_t>(x_.k),
                 .to = values_.data(),
                 .to_stride = static_cast<std::size_t>(stride_),
                 .rows = static_cast<std::size_t>(band.rows),
                 .columns = static_cast<std::size_t>(blocks_.columns),
                 .block = static_cast<std::size_t>(blocks_.tile)};
  if (band.columns != blocks_.columns) {
    for (std::int64_t r = 0; r < band.rows; ++r) {
      float* row = values_.data() + r * stride_;
      std::copy_n(band.x + r * x_.k, band.columns, row);
      std::fill(row + band.columns, row + blocks_.columns, 0.0F);
    }
    rows.from = rows.to;
    rows.from_stride = rows.to_stride;
  }
  kernels_.cross_amax(rows, row_scales_->amaxes() + band.row * blocks_.tiles,
                      column_scales_.amaxes() + band.tile);
}

/// Amaxes again, by a rule that does not see NaN.
void CrossEncoder::ignore_nan(const Band& band) {
  const auto columns = static_cast<std::size_t>(blocks_.columns);
  std::int32_t* by_row = row_scales_->amaxes() + band.row * blocks_.tiles;
  std::int32_t* by_column = column_scales_.amaxes() + band.tile;
  std::fill_n(by_row, band.rows * blocks_.tiles, 0);
  std::fill_n(by_column, columns, 0);
  for (std::int64_t r = 0; r < band.rows; ++r) {
    const float* values = values_.data() + r * stride_;
    kernels_.amax(values, columns, static_cast<std::size_t>(blocks_.tile), true, 0,
                  by_row + r * blocks_.tiles);
    kernels_.element_amax(values, columns, true, 0, by_column);
  }
}

void CrossEncoder::encode_crossed(const Band& band, bool bounded) {
  const bool whole = band.columns == blocks_.columns;
  caster_.add_crossed({.in = values_.data(),
                       .stride = static_cast<std::size_t>(stride_),
                       .rows = static_cast<std::size_t>(band.rows),
                       .columns = static_cast<std::size_t>(blocks_.columns),
                       .row_factors = row_scales_->factors() + band.row * blocks_.tiles,
                       .block = static_cast<std::size_t>(blocks_.tile),
                       .column_factors = column_scales_.factors() + band.tile,
                       .bounded = bounded,
                       .row_codes = whole ? band.codes : row_codes_.data(),
                       .row_stride = static_cast<std::size_t>(whole ? q_.k : code_stride_),
                       .column_codes = column_codes_.data() + band.row * code_stride_,
                       .column_stride = static_cast<std::size_t>(code_stride_),
                       .next = band.next,
                       .next_stride = static_cast<std::size_t>(x_.k)});
  if (whole) return;
  for (std::int64_t r = 0; r < band.rows; ++r)
    std::copy_n(row_codes_.data() + r * code_stride_, band.columns, band.codes + r * q_.k);
}

/// Under policies that `encode_crossed` has no kernel for.
void CrossEncoder::encode_apart(const Band& band) {
  const auto columns = static_cast<std::size_t>(band.columns);
  for (std::int64_t r = 0; r < band.rows; ++r) {
    const float* values = values_.data() + r * stride_;
    caster_.add(values, columns, static_cast<std::size_t>(blocks_.tile),
                row_scales_->factors() + (band.row + r) * blocks_.tiles, {}, band.codes + r * q_.k);
    caster_.add(values, columns, 1, column_scales_.factors() + band.tile, {},
                column_codes_.data() + (band.row + r) * code_stride_);
  }
}

namespace {

/// What a core reads fast a second time.
constexpr std::int64_t kBandBytes = 4 << 20;
/// Columns of x whose codes the second cache holds until they are turned.
constexpr std::int64_t kColumns = 512;
/// Rows whose amaxes are taken while the second cache has them.
constexpr std::int64_t kAmaxRows = 8;
/// How far ahead of a stream of elements memory is read.
constexpr std::size_t kAhead = 2048;

/// Rows of x that a thread takes at a time: whole tiles of `unit` rows.
std::int64_t band_rows(const FloatMatrix& x, std::int64_t unit, int threads) {
  const std::int64_t fit =
      std::min(CodeTransposer::kRows, kBandBytes / 4 / std::max<std::int64_t>(x.k, 1));
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
    CodeTransposer turner;
  };
  const auto make = [&] {
    return Encoders{StripEncoder(recipe, x, Source::as_is, strips, execution.target, false, q),
                    CodeTransposer(execution.target, turned)};
  };
  const auto encode_band = [&](Encoders& encoders, std::int64_t band) {
    const std::int64_t row = band * height;
    const std::int64_t end = std::min(row + height, q.rows);
    if (with_original) encoders.original.run_rows(row, end - row);
    for (std::int64_t r = row; r < end; r += CodeTransposer::kRows)
      encoders.turner.run(q.codes.data() + r * q.k, q.k, r,
                          std::min(CodeTransposer::kRows, end - r), 0, q.k);
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
        codes_(CodeTransposer::kRows * kStride) {}

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
  CodeTransposer turner_;
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
    for (std::int64_t row = 0; row < x.rows; row += CodeTransposer::kRows)
      error.guard([&] { encoder->encode(row, std::min(CodeTransposer::kRows, x.rows - row)); });
  }
  error.rethrow();
}

}  // namespace

void encode_transposed(const Recipe& recipe, const FloatMatrix& x, bool with_original,
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
