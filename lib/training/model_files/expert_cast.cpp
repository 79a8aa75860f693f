#include "training/model_files/expert_cast.hpp"

#include <algorithm>
#include <cstring>

namespace fp8lab {
namespace {

template <class Word>
void transpose_words(const std::byte* from, std::int64_t rows, std::int64_t columns,
                     std::byte* to) {
  constexpr std::int64_t kSide = 32;
  for (std::int64_t r0 = 0; r0 < rows; r0 += kSide)
    for (std::int64_t c0 = 0; c0 < columns; c0 += kSide)
      for (std::int64_t c = c0; c < std::min(c0 + kSide, columns); ++c)
        for (std::int64_t r = r0; r < std::min(r0 + kSide, rows); ++r)
          std::memcpy(to + static_cast<std::size_t>(c * rows + r) * sizeof(Word),
                      from + static_cast<std::size_t>(r * columns + c) * sizeof(Word),
                      sizeof(Word));
}

}  // namespace

std::vector<std::byte> transposed(std::span<const std::byte> bytes, std::int64_t rows,
                                  std::int64_t columns, ElementType type) {
  std::vector<std::byte> result(bytes.size());
  switch (element_bytes(type)) {
    case 1:
      transpose_words<std::uint8_t>(bytes.data(), rows, columns, result.data());
      break;
    case 2:
      transpose_words<std::uint16_t>(bytes.data(), rows, columns, result.data());
      break;
    default:
      transpose_words<std::uint32_t>(bytes.data(), rows, columns, result.data());
      break;
  }
  return result;
}

std::int64_t quantize_experts(const WeightScheme& scheme, const Recipe& recipe,
                              const TensorView& experts, const WeightOutputs& outputs,
                              const ReleasePart& release, SafetensorsWriter& out) {
  const std::int64_t k = experts.shape[1];
  const std::int64_t rows = experts.shape[2];
  const auto elements = static_cast<std::size_t>(rows * k);
  const std::size_t size = elements * element_bytes(experts.type);
  std::int64_t nan = 0;
  for (std::int64_t e = 0; e < experts.shape[0]; ++e) {
    const auto expert = static_cast<std::size_t>(e);
    const std::span<const std::byte> part = experts.bytes.subspan(expert * size, size);
    const std::vector<std::byte> matrix = transposed(part, k, rows, experts.type);
    release(part);
    const auto take = [&](std::int64_t first, std::span<const std::uint8_t> codes) {
      write_codes(scheme, outputs.codes, expert * elements + static_cast<std::uint64_t>(first),
                  codes, out);
    };
    const QuantizedWeight quantized =
        quantize_weight(recipe, {experts.type, {rows, k}, matrix}, take, [](auto) {});
    out.write(outputs.scale.name, expert * quantized.scale_codes.size(),
              std::as_bytes(std::span(quantized.scale_codes)));
    nan += quantized.nan_codes;
  }
  return nan;
}

std::int64_t quantize_fused(const WeightScheme& scheme, const Recipe& recipe,
                            const TensorView& experts, const WeightOutputs& outputs,
                            const ReleasePart& release, SafetensorsWriter& out) {
  const std::int64_t rows = experts.shape[1];
  const std::int64_t k = experts.shape[2];
  const auto elements = static_cast<std::size_t>(rows * k);
  const std::size_t size = elements * element_bytes(experts.type);
  std::int64_t nan = 0;
  for (std::int64_t e = 0; e < experts.shape[0]; ++e) {
    const auto expert = static_cast<std::size_t>(e);
    const auto take = [&](std::int64_t first, std::span<const std::uint8_t> codes) {
      write_codes(scheme, outputs.codes, expert * elements + static_cast<std::uint64_t>(first),
                  codes, out);
    };
    const QuantizedWeight quantized = quantize_weight(
        recipe, {experts.type, {rows, k}, experts.bytes.subspan(expert * size, size)}, take,
        release);
    const auto scales = std::as_bytes(std::span(quantized.inverse_scales));
    out.write(outputs.scale.name, expert * scales.size(), scales);
    nan += quantized.nan_codes;
  }
  return nan;
}

}  // namespace fp8lab
