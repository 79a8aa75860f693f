#include "fp8lab/scaling/strip_encoder.hpp"

#include <algorithm>

namespace fp8lab::scaling_detail {
namespace {

/// What a core reads fast a second time, row after row of a band of tall tiles.
constexpr std::int64_t kBandBytes = 2 << 20;
/// What its first cache keeps between the amaxes and the codes of small tiles, in elements: those
/// of processors with AVX-512 are larger.
std::int64_t piece_of(Target target) { return target == Target::avx512 ? 4096 : 2048; }
/// Elements that a thread takes at a time, where it may choose.
constexpr std::int64_t kChunk = 1 << 14;
/// How far ahead of a stream of elements memory is read.
constexpr std::size_t kAhead = 2048;
/// And by a cast into the second cache, over the amaxes of the next piece, which fetch nothing.
constexpr std::size_t kFarAhead = 8192;
/// Rows of a strip whose source is transposed: whole cache lines of it.
constexpr std::int64_t kTransposedRows = 64;

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Rows of a turned strip do not begin in the same set of the cache.
std::int64_t turned_stride(std::int64_t columns) { return columns + 16; }

}  // namespace

Strips::Strips(const QuantizedTensor& q, Source source) {
  const std::int64_t least_rows = source == Source::transposed ? kTransposedRows : 1;
  rows = ceil_divide(least_rows, q.row_block) * q.row_block;
  const std::int64_t fit = kBandBytes / 4 / rows / q.k_block * q.k_block;
  columns = std::max(q.k_block, fit);
  if (columns >= q.k) {
    columns = std::max<std::int64_t>(q.k, 1);
    rows = std::max(rows, kChunk / columns / q.row_block * q.row_block);
  }
  down = ceil_divide(q.rows, rows);
  across = ceil_divide(q.k, columns);
}

StripEncoder::StripEncoder(const Recipe& recipe, const FloatMatrix& x, Source source,
                           const Strips& strips, Target target, bool stream, QuantizedTensor& q)
    : recipe_(recipe),
      x_(x),
      strips_(strips),
      piece_(piece_of(target)),
      kernels_(tile_kernels(target)),
      caster_(recipe, target, stream),
      scales_(recipe, target, static_cast<std::size_t>(ceil_divide(strips.columns, q.k_block))),
      q_(q) {
  if (source == Source::transposed)
    turned_.resize(static_cast<std::size_t>(strips.rows * turned_stride(strips.columns)));
}

void StripEncoder::run(std::int64_t strip) {
  const std::int64_t row = strip / strips_.across * strips_.rows;
  const std::int64_t column = strip % strips_.across * strips_.columns;
  run(row, std::min(strips_.rows, q_.rows - row), column, std::min(strips_.columns, q_.k - column));
}

void StripEncoder::run_rows(std::int64_t row, std::int64_t rows) {
  const std::int64_t end = row + rows;
  for (; row < end; row += strips_.rows)
    for (std::int64_t c = 0; c < q_.k; c += strips_.columns)
      run(row, std::min(strips_.rows, end - row), c, std::min(strips_.columns, q_.k - c));
}

void StripEncoder::run(std::int64_t row, std::int64_t rows, std::int64_t column,
                       std::int64_t columns) {
  const float* values = x_.values.data() + row * x_.k + column;
  std::int64_t stride = x_.k;
  if (!turned_.empty()) {
    turn(row, rows, column, columns);
    values = turned_.data();
    stride = turned_stride(columns);
  }
  // Tiles of one row are finished while the first cache has them.
  const std::int64_t piece =
      q_.row_block == 1 ? std::max(q_.k_block, piece_ / q_.k_block * q_.k_block) : columns;
  for (std::int64_t r = 0; r < rows; r += q_.row_block)
    for (std::int64_t c = 0; c < columns; c += piece)
      tile_row(values + r * stride + c, stride, row + r, column + c, std::min(piece, columns - c));
}

/// The strip's part of the transpose.
void StripEncoder::turn(std::int64_t row, std::int64_t rows, std::int64_t column,
                        std::int64_t columns) {
  constexpr std::int64_t kLine = 16;
  const std::int64_t stride = turned_stride(columns);
  for (std::int64_t line = 0; line < rows; line += kLine)
    for (std::int64_t c = 0; c < columns; ++c) {
      const float* from = x_.values.data() + (column + c) * x_.k + row + line;
      float* to = turned_.data() + line * stride + c;
      for (std::int64_t r = 0; r < std::min(kLine, rows - line); ++r) to[r * stride] = from[r];
    }
}

/// Those tiles of one row of tiles that hold `columns` columns from `column` on.
void StripEncoder::tile_row(const float* values, std::int64_t stride, std::int64_t row,
                            std::int64_t column, std::int64_t columns) {
  const std::int64_t rows = std::min(q_.row_block, q_.rows - row);
  const auto count = static_cast<std::size_t>(columns);
  const auto block = static_cast<std::size_t>(q_.k_block);
  std::int32_t* largest = scales_.clear(static_cast<std::size_t>(ceil_divide(columns, q_.k_block)));
  // The cast of a piece is bound by arithmetic, and fetches the next piece on its way.
  const bool one_piece = rows == 1;
  for (std::int64_t r = 0; r < rows; ++r)
    kernels_.amax(values + r * stride, count, block, amax_ignores_nan(recipe_.rule),
                  one_piece ? 0 : kAhead, largest);
  scales_.make();
  scales_.store(
      static_cast<std::size_t>(row / q_.row_block * q_.tile_columns() + column / q_.k_block), q_);
  for (std::int64_t r = 0; r < rows; ++r)
    caster_.add(values + r * stride, count, block, scales_.factors(),
                {.near = one_piece ? count : kAhead, .far = kFarAhead},
                q_.codes.data() + (row + r) * q_.k + column);
}

}  // namespace fp8lab::scaling_detail
