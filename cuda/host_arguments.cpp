#include "host_arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "fp8lab/core/error.hpp"

namespace fp8lab::cuda {
namespace {

template <typename T>
T round_up(T value, T unit) {
  return (value + unit - 1) / unit * unit;
}

int checked_int(std::int64_t value, const char* name,
                std::int64_t most = std::numeric_limits<int>::max() / 256) {
  require(value <= most, name, fmt::format("a size of at most {}", most), fmt::format("{}", value));
  return static_cast<int>(value);
}

ScaleArguments scale_shape(const InverseScales& scales, const CodeMatrix& matrix) {
  if (scales.empty()) return {};
  require(scales.tensor_scale == 1.0F, "tensor_scale",
          "1, the only value that this backend supports", fmt::format("{}", scales.tensor_scale));
  const std::int64_t k_block = scales.k_block == 0 ? matrix.k : scales.k_block;
  const auto fitted = [](std::int64_t block, std::int64_t size) {
    return static_cast<int>(std::min(block, std::max<std::int64_t>(size, 1)));
  };
  return {nullptr, fitted(scales.row_block, matrix.rows), fitted(k_block, matrix.k),
          static_cast<int>((matrix.k + k_block - 1) / k_block)};
}

}  // namespace

int padded_row_bytes(const CodeMatrix& matrix) {
  return checked_int(
      round_up<std::int64_t>(matrix.k * format(matrix.format).storage_bits / 8, kPaddedBytes), "k");
}

std::vector<std::uint8_t> padded_rows(const CodeMatrix& matrix, int row_bytes) {
  const auto bytes = static_cast<std::size_t>(format(matrix.format).storage_bits / 8);
  const auto rows = round_up(static_cast<std::size_t>(matrix.rows), std::size_t{kPaddedRows});
  std::vector<std::uint8_t> padded(rows * static_cast<std::size_t>(row_bytes));
  const auto* from = static_cast<const std::uint8_t*>(matrix.data);
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    std::uint8_t* to = padded.data() + static_cast<std::size_t>(row * row_bytes);
    const std::uint8_t* source = from + row * matrix.row_stride * static_cast<std::int64_t>(bytes);
    if (matrix.k_stride == 1) {
      std::memcpy(to, source, static_cast<std::size_t>(matrix.k) * bytes);
      continue;
    }
    for (std::int64_t k = 0; k < matrix.k; ++k)
      std::memcpy(to + static_cast<std::size_t>(k) * bytes,
                  source + k * matrix.k_stride * static_cast<std::int64_t>(bytes), bytes);
  }
  return padded;
}

GemmArguments shape_arguments(const GemmProblem& p) {
  GemmArguments g;
  g.row_bytes = padded_row_bytes(p.a);
  require(padded_row_bytes(p.b) == g.row_bytes, "b", "the storage width of a",
          format(p.b.format).name);
  g.m = checked_int(p.a.rows, "m", kMostRows);
  g.n = checked_int(p.b.rows, "n");
  g.k = checked_int(p.a.k, "k");
  g.promotion_interval = checked_int(p.promotion_interval, "promotion_interval");
  g.scale_a = scale_shape(p.scale_a, p.a);
  g.scale_b = scale_shape(p.scale_b, p.b);
  g.order = p.scale_order;
  g.scaled_along_k = g.scale_a.columns > 1 || g.scale_b.columns > 1;
  g.scaled_at_end = (!p.scale_a.empty() || !p.scale_b.empty()) && !g.scaled_along_k;
  return g;
}

HostArguments::HostArguments(const GemmProblem& p)
    : d_(static_cast<std::size_t>(p.a.rows * p.b.rows), -1.0F), arguments_(shape_arguments(p)) {
  a_ = padded_rows(p.a, arguments_.row_bytes);
  b_ = padded_rows(p.b, arguments_.row_bytes);
  arguments_.a = a_.data();
  arguments_.b = b_.data();
  arguments_.c = p.c;
  arguments_.d = d_.data();
  if (!p.scale_a.empty()) arguments_.scale_a.values = p.scale_a.values.data();
  if (!p.scale_b.empty()) arguments_.scale_b.values = p.scale_b.values.data();
}

}  // namespace fp8lab::cuda
