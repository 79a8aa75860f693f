#pragma once
// Writes codes to where they are in a transpose.

#include <array>
#include <cstddef>
#include <cstdint>

#include "fp8lab/core/cache_line.hpp"
#include "fp8lab/core/target.hpp"
#include "fp8lab/scaling/quantize.hpp"
#include "fp8lab/scaling/turn_kernels.hpp"

namespace fp8lab::scaling_detail {

/// One thread's memory for that.
class CodeTurner {
 public:
  /// Rows that are turned together: what is written is this many bytes long.
  static constexpr std::int64_t kRows = 256;

  CodeTurner(Target target, QuantizedTensor& turned);

  /// What was written around the caches is there for other threads after that.
  ~CodeTurner();
  CodeTurner(const CodeTurner&) = delete;
  CodeTurner& operator=(const CodeTurner&) = delete;

  /// `rows` <= kRows rows from `row` on of `columns` codes from `column` on.
  void run(const std::uint8_t* codes, std::int64_t stride, std::int64_t row, std::int64_t rows,
           std::int64_t column, std::int64_t columns);

 private:
  static constexpr std::int64_t kBlock = 64;
  static constexpr std::size_t kStride = kRows + 16;

  const TurnKernels& kernels_;
  QuantizedTensor& turned_;
  bool stream_;
  alignas(kCacheLine) std::array<std::uint8_t, kBlock * kStride> block_;
};

}  // namespace fp8lab::scaling_detail
