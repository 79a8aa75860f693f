#pragma once
// Transposes of codes in blocks, written to where they are in a transposed copy.

#include <array>
#include <cstddef>
#include <cstdint>

#include "fp8lab/core/cache_line.hpp"
#include "fp8lab/core/target.hpp"
#include "fp8lab/scaling/quantize.hpp"

namespace fp8lab::scaling_detail {

struct TransposeKernels {
  /// to[c * to_stride + r] = from[r * from_stride + c] for r < rows, c < columns.
  void (*turn)(const std::uint8_t* from, std::size_t from_stride, std::size_t rows,
               std::size_t columns, std::uint8_t* to, std::size_t to_stride);
  /// to[r * to_stride + c] = from[r * from_stride + c]: rows are short, and calls of memcpy dear.
  void (*copy)(const std::uint8_t* from, std::size_t from_stride, std::size_t rows,
               std::size_t columns, std::uint8_t* to, std::size_t to_stride);
  /// The same around the caches. Rows of `to` begin on whole cache lines.
  void (*stream)(const std::uint8_t* from, std::size_t from_stride, std::size_t rows,
                 std::size_t columns, std::uint8_t* to, std::size_t to_stride);
};

const TransposeKernels& transpose_kernels(Target target);

/// One thread's memory for that.
class CodeTransposer {
 public:
  /// Rows that are turned together: what is written is this many bytes long.
  static constexpr std::int64_t kRows = 256;

  CodeTransposer(Target target, QuantizedTensor& turned);

  /// What was written around the caches is there for other threads after that.
  ~CodeTransposer();
  CodeTransposer(const CodeTransposer&) = delete;
  CodeTransposer& operator=(const CodeTransposer&) = delete;

  /// `rows` <= kRows rows from `row` on of `columns` codes from `column` on.
  void run(const std::uint8_t* codes, std::int64_t stride, std::int64_t row, std::int64_t rows,
           std::int64_t column, std::int64_t columns);

 private:
  static constexpr std::int64_t kBlock = 64;
  static constexpr std::size_t kStride = kRows + 16;

  const TransposeKernels& kernels_;
  QuantizedTensor& turned_;
  bool stream_;
  alignas(kCacheLine) std::array<std::uint8_t, kBlock * kStride> block_;
};

}  // namespace fp8lab::scaling_detail
