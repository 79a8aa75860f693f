#include <algorithm>
#include <cstring>

#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/gemm/pack.hpp"

namespace fp8lab::gemm_detail {
namespace {

/// Sets the codes from `first` up to `end` to -0.
void fill_negative_zeros(const Format& f, unsigned char* codes, std::int64_t first,
                         std::int64_t end) {
  const std::uint32_t word = f.sign_mask() << (f.storage_bits == 32 ? 23 - f.mantissa_bits : 0);
  const std::int64_t bytes = f.storage_bits / 8;
  for (std::int64_t i = first; i < end; ++i)
    std::memcpy(codes + i * bytes, &word, static_cast<std::size_t>(bytes));
}

}  // namespace

template <typename T>
PackedRows<T>::PackedRows(const Kernels& kernels, const PackForm& form, const CodeMatrix& a,
                          const BlockScaleRows* unit_scales, std::int64_t most_rows,
                          std::int64_t most_steps)
    : scales(a, unit_scales, Side::a, form, most_rows), kernels_(&kernels), form_(&form), a_(&a) {
  if (form.dots.used()) return;
  const std::int64_t row_steps = round_up(most_rows, form.fold) * most_steps;
  const std::int64_t size = row_steps * form.terms + kMaxWidth;
  values = AlignedArray<T>(size);
  if (form.has_exponents()) exponents = AlignedArray<std::uint32_t>(size);
  if (form.fused()) signs = AlignedArray<std::uint32_t>(row_steps);
}

/// The codes of the steps, [padded_rows][stride], zeros after K.
template <typename T>
AlignedArray<unsigned char> PackedRows<T>::gather(std::int64_t begin, std::int64_t stride,
                                                  std::span<CodeRange> ranges) const {
  const Format& f = format(a_->format);
  const std::int64_t row_bytes = stride * f.storage_bits / 8;
  const std::int64_t first_term = first * form_->terms;
  const std::int64_t inside = std::min(steps * form_->terms, a_->k - first_term);
  AlignedArray<unsigned char> codes(padded_rows * row_bytes);
  for (std::int64_t r = 0; r < rows; ++r) {
    unsigned char* row = codes.data() + r * row_bytes;
    prefetch_codes(*a_, begin + r, first_term + inside, inside);
    gather_codes(*a_, begin + r, first_term, inside, stride, row);
    ranges[static_cast<std::size_t>(r)].add(
        kernels_->codes<T>(f.storage_bits).row_range(row, inside, code_layout(f)));
    if (form_->flushes_subnormals) flush_codes(f, row, inside);
    // What is after the last group must leave a sum of -0 alone.
    if (form_->group != 0) {
      const std::int64_t end = ceil_divide(a_->k, form_->group) * form_->group - first_term;
      fill_negative_zeros(f, row, end, steps * form_->terms);
    }
  }
  std::memset(codes.data() + rows * row_bytes, 0,
              static_cast<std::size_t>((padded_rows - rows) * row_bytes));
  return codes;
}

template <typename T>
void PackedRows<T>::load(std::int64_t begin, std::int64_t count, std::int64_t first_step,
                         std::int64_t step_count, std::span<CodeRange> ranges) {
  const PackForm& form = *form_;
  const Format& f = format(a_->format);
  rows = count;
  padded_rows = round_up(count, form.fold);
  first = first_step;
  steps = step_count;
  scales.read(begin, count);
  const std::int64_t stride = steps * form.terms + kMaxWidth;
  const AlignedArray<unsigned char> codes = gather(begin, stride, ranges);
  if (form.dots.used()) {
    dots = PackedDotRows({codes.data(), stride, rows, steps, form.terms}, f, form.dots,
                         kernels_->dots);
    return;
  }
  kernels_->decode<T>(f.storage_bits)
      .rows({.codes = codes.data(),
             .row_stride = stride,
             .rows = padded_rows,
             .steps = steps,
             .terms = form.terms,
             .layout = code_layout(f),
             .fused = form.fused(),
             .values = values.data(),
             .exponents = exponents.data(),
             .signs = signs.data()});
  if (scales.used() && form.fused()) scale_steps();
  if (form.words()) find_exponents(kernels_->units->words, f.min_exponent());
  if (form.group_dots) {
    twice = AlignedArray<std::int16_t>(rows * steps * form.terms);
    for (std::int64_t i = 0; i < rows * steps * form.terms; ++i)
      twice.data()[i] = static_cast<std::int16_t>(2 * values.data()[i]);
  }
  if constexpr (std::is_same_v<T, float>) {
    if (!form.word_dots.used()) return;
    word_dots = PackedWordDotRows({.rows = rows,
                                   .steps = steps,
                                   .terms = form.terms,
                                   .a = values.data(),
                                   .a_exponents = exponents.data()},
                                  form.word_dots, kernels_->units->word_dots->byte_chunk);
  }
}

template <typename T>
void PackedRows<T>::find_exponents(const WordKernels& kernels, int smallest) {
  if constexpr (std::is_same_v<T, float>) {
    const std::int64_t count = (rows * steps * form_->terms + kMaxWidth) / kMaxWidth * kMaxWidth;
    AlignedArray<std::uint8_t> bytes(count);
    kernels.exponents(values.data(), count, smallest, bytes.data());
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint32_t pair = bytes.data()[i] | std::uint32_t{bytes.data()[i]} << 8;
      exponents.data()[i] = pair | pair << 16;
    }
  }
}

/// Multiplies each step by its scale, a power of two.
template <typename T>
void PackedRows<T>::scale_steps() {
  const std::int64_t terms = form_->terms;
  for (std::int64_t step = 0; step < steps; ++step)
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t at = (step * rows + r) * terms;
      const auto scale = static_cast<T>(scales.scale(step, r));
      for (std::int64_t t = 0; t < terms; ++t) values.data()[at + t] *= scale;
      // Two 16-bit exponents a word, of binary64.
      const auto change = static_cast<std::uint16_t>(scales.exponent(step, r));
      for (std::int64_t t = 0; t < terms; ++t) {
        const std::uint32_t word = exponents.data()[at + t];
        const auto next = static_cast<std::uint16_t>(word + change);
        exponents.data()[at + t] = word == 0 ? 0 : next * 0x10001u;
      }
    }
}

template struct PackedRows<float>;
template struct PackedRows<double>;

}  // namespace fp8lab::gemm_detail
