#include "fp8lab/scaling/code_transposer.hpp"

#include <algorithm>

#include "fp8lab/scaling/tile_caster.hpp"
#include "hwy/cache_control.h"

namespace fp8lab::scaling_detail {

CodeTransposer::CodeTransposer(Target target, QuantizedTensor& turned)
    : kernels_(transpose_kernels(target)),
      turned_(turned),
      stream_(turned.codes.size() >= kLargeCodes && turned.k % kCacheLine == 0) {}

CodeTransposer::~CodeTransposer() {
  if (stream_) hwy::FlushStream();
}

void CodeTransposer::run(const std::uint8_t* codes, std::int64_t stride, std::int64_t row,
                         std::int64_t rows, std::int64_t column, std::int64_t columns) {
  const auto write = stream_ && row % kCacheLine == 0 ? kernels_.stream : kernels_.copy;
  const auto height = static_cast<std::size_t>(rows);
  for (std::int64_t c = 0; c < columns; c += kBlock) {
    const auto width = static_cast<std::size_t>(std::min(kBlock, columns - c));
    // By way of a block: rows of the transpose may be powers of two apart, and their lines then
    // push each other out of the first cache.
    kernels_.turn(codes + c, static_cast<std::size_t>(stride), height, width, block_.data(),
                  kStride);
    write(block_.data(), kStride, width, height,
          turned_.codes.data() + (column + c) * turned_.k + row,
          static_cast<std::size_t>(turned_.k));
  }
}

}  // namespace fp8lab::scaling_detail
