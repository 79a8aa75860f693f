#include "fp8lab/gemm/pack.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>

#include "fp8lab/core/ceil_divide.hpp"

namespace fp8lab::gemm_detail {
namespace {

constexpr std::int64_t kGroup = 16;  // rows that are transposed together
constexpr std::int64_t kCacheLine = 64;

/// Codes below the smallest normal number become +0.
template <typename Code>
void flush(const Format& f, Code* codes, std::int64_t count) {
  const auto magnitude = static_cast<Code>(f.magnitude_mask());
  const auto smallest = static_cast<Code>(1u << f.mantissa_bits);
  for (std::int64_t i = 0; i < count; ++i)
    codes[i] = (codes[i] & magnitude) < smallest ? Code{0} : codes[i];
}

/// Each bit at twice its place.
std::uint32_t spread(std::uint32_t bits) {
  bits = (bits | bits << 8) & 0x00ff00ffu;
  bits = (bits | bits << 4) & 0x0f0f0f0fu;
  bits = (bits | bits << 2) & 0x33333333u;
  return (bits | bits << 1) & 0x55555555u;
}

template <typename Code>
void copy_strided(const unsigned char* from, std::int64_t stride, std::int64_t count,
                  unsigned char* to) {
  for (std::int64_t i = 0; i < count; ++i)
    std::memcpy(to + i * static_cast<std::int64_t>(sizeof(Code)),
                from + i * stride * static_cast<std::int64_t>(sizeof(Code)), sizeof(Code));
}

}  // namespace

CodeLayout code_layout(const Format& f) {
  return {.mantissa_bits = f.mantissa_bits,
          .bias = f.bias,
          .sign_bit = f.exponent_bits + f.mantissa_bits,
          .dropped_bits = f.storage_bits == 32 ? 23 - f.mantissa_bits : 0,
          .nan_code = f.specials == SpecialValues::fnuz ? f.sign_mask() : 0};
}

RowSummary summarize(const Format& f, const CodeRange& range, bool all_numbers) {
  RowSummary s;
  if (range.largest == 0) return s;
  s.infinite = !all_numbers && f.has_infinity() && range.largest == f.infinity_code();
  s.nan = !all_numbers && !s.infinite && range.largest > f.max_finite_code();
  const auto exponent = [&](std::uint32_t magnitude) {
    return std::max(static_cast<int>(magnitude >> f.mantissa_bits), 1) - f.bias;
  };
  s.largest = exponent(range.largest);
  s.lowest = exponent(range.smallest) - f.mantissa_bits;
  return s;
}

void gather_codes(const CodeMatrix& m, std::int64_t row, std::int64_t first, std::int64_t count,
                  std::int64_t padded, unsigned char* to) {
  const std::int64_t bytes = format(m.format).bytes();
  const auto* from =
      static_cast<const unsigned char*>(m.data) + (row * m.row_stride + first * m.k_stride) * bytes;
  if (m.k_stride == 1)
    std::memcpy(to, from, static_cast<std::size_t>(count * bytes));
  else if (bytes == 1)
    copy_strided<std::uint8_t>(from, m.k_stride, count, to);
  else if (bytes == 2)
    copy_strided<std::uint16_t>(from, m.k_stride, count, to);
  else
    copy_strided<std::uint32_t>(from, m.k_stride, count, to);
  std::memset(to + count * bytes, 0, static_cast<std::size_t>((padded - count) * bytes));
}

void prefetch_codes(const CodeMatrix& m, std::int64_t row, std::int64_t first, std::int64_t count) {
  if (m.k_stride != 1) return;
  const std::int64_t code_bytes = format(m.format).bytes();
  const auto* from =
      static_cast<const unsigned char*>(m.data) + (row * m.row_stride + first) * code_bytes;
  const std::int64_t bytes = std::min(count, m.k - first) * code_bytes;
  for (std::int64_t i = 0; i < bytes; i += kCacheLine) __builtin_prefetch(from + i);
}

void flush_codes(const Format& f, unsigned char* codes, std::int64_t count) {
  if (f.storage_bits == 8)
    flush(f, codes, count);
  else
    flush(f, reinterpret_cast<std::uint16_t*>(codes), count);
}

template <typename T>
RowSummary summarize(const KernelTable& kernels, const CodeMatrix& m, bool all_numbers,
                     int threads) {
  const Format& f = format(m.format);
  const CodeLayout layout = code_layout(f);
  RowSummary all;
#pragma omp parallel num_threads(threads)
  {
    RowSummary seen;
    AlignedArray<unsigned char> codes(m.k * f.bytes());
#pragma omp for
    for (std::int64_t row = 0; row < m.rows; ++row) {
      gather_codes(m, row, 0, m.k, m.k, codes.data());
      const CodeRange range = kernels.codes<T>(f.storage_bits).row_range(codes.data(), m.k, layout);
      seen.add(summarize(f, range, all_numbers));
    }
#pragma omp critical
    all.add(seen);
  }
  return all;
}

template <typename T>
PackedPanel<T>::PackedPanel(const Kernels& kernels, const PackForm& form, const CodeMatrix& b,
                            std::int64_t slab_steps, std::int64_t decoded_steps,
                            const BlockScaleRows* unit_scales)
    : kernels_(&kernels.codes<T>(format(b.format).storage_bits)),
      decode_kernels_(&kernels.decode<T>(format(b.format).storage_bits)),
      unit_kernels_(kernels.units),
      b_(&b),
      scales_(b, unit_scales, Side::b, form, kernels.width<T>()),
      terms_(form.terms),
      flushes_(form.flushes_subnormals),
      all_numbers_(form.all_numbers),
      fused_(form.fused()),
      packs_scales_(form.packs_scales()),
      has_exponents_(form.has_exponents()),
      dots_(form.along_k()),
      word_dots_(form.word_dots.used()),
      group_dots_(form.group_dots),
      lines_(form.lines),
      line_terms_(word_dots_              ? form.word_dots.terms
                  : group_dots_ || lines_ ? form.terms
                                          : kDotTerms),
      fold_(form.fold),
      width_(kernels.width<T>() / fold_),
      code_bytes_(format(b.format).bytes()),
      slab_terms_(slab_steps * terms_),
      fetches_(form.fused() && decoded_steps < slab_steps && b.k_stride == 1),
      row_stride_(round_up(slab_steps * terms_, kGroup) + (dots_ ? line_terms_ : kGroup)),
      rows_((dots_ ? width_ : kGroup) * row_stride_ * code_bytes_),
      codes_(dots_ ? 0 : round_up(slab_steps * terms_, kGroup) * width_ * code_bytes_),
      values_(dots_ ? 0 : decoded_steps * terms_ * width_),
      exponents_(has_exponents_ && !dots_ ? decoded_steps * terms_ * width_ : 0),
      signs_(fused_ && !dots_ ? decoded_steps * width_ : 0),
      folded_signs_(fold_ > 1 ? decoded_steps * fold_ * width_ : 0),
      ranges_(static_cast<std::size_t>(fold_ * width_)),
      lane_ranges_(word_dots_ ? width_ * 2 * kWordDotBytes
                   : dots_    ? width_ * kDotTerms
                              : 0) {
  if (dots_)
    std::memset(rows_.data(), 0, static_cast<std::size_t>(width_ * row_stride_ * code_bytes_));
}

template <typename T>
void PackedPanel<T>::start(std::int64_t begin) {
  begin_ = begin;
  columns_ = std::min(width_, b_->rows - begin);
  scales_.read(begin, columns_);
  std::ranges::fill(ranges_, CodeRange{});
  if (word_dots_)
    clear_lane_ranges(lane_ranges_.data(), width_);
  else if (dots_)
    std::memset(lane_ranges_.data(), 0, static_cast<std::size_t>(width_ * kDotTerms));
}

template <typename T>
RowSummary PackedPanel<T>::summary(std::int64_t column) const {
  const RowSummary codes = summarize(format(b_->format), range_of_column(column), all_numbers_);
  return scales_.scaled(codes, column);
}

template <typename T>
CodeRange PackedPanel<T>::range_of_column(std::int64_t column) const {
  if (!dots_ || lines_) {
    CodeRange range;
    for (std::int64_t i = 0; i < fold_; ++i)
      range.add(ranges_[static_cast<std::size_t>(i * width_ + column)]);
    return range;
  }
  // All of E2M1's numbers are finite, and few.
  if (group_dots_) return {.largest = format(b_->format).max_finite_code(), .smallest = 1};
  if (word_dots_)
    return range_of_lanes(lane_ranges_.data() + column * 2 * kWordDotBytes,
                          static_cast<int>(code_bytes_));
  const unsigned char* largest = lane_ranges_.data() + column * kDotTerms;
  return {.largest = *std::max_element(largest, largest + kDotTerms), .smallest = 1};
}

/// Rows of B are copied before they are transposed: a power of two between them
/// would make their cache lines displace each other. What the next call copies is
/// fetched meanwhile, or by kernels.
template <typename T>
void PackedPanel<T>::load(std::int64_t first, std::int64_t steps) {
  loaded_ = first;
  if (dots_) return load_rows(first, steps);
  const std::int64_t inside = std::min(steps * terms_, b_->k - first * terms_);
  const std::int64_t padded = round_up(steps * terms_, kGroup);
  const std::int64_t group = std::min(kGroup, width_);
  for (std::int64_t j = 0; j < width_; j += group) {
    for (std::int64_t i = 0; i < group; ++i) {
      const bool exists = j + i < columns_;
      if (exists && !fetches_) prefetch_codes(*b_, begin_ + j + i, first * terms_ + inside, inside);
      gather_codes(*b_, exists ? begin_ + j + i : 0, first * terms_, exists ? inside : 0, padded,
                   rows_.data() + i * row_stride_ * code_bytes_);
    }
    kernels_->transpose({.from = rows_.data(),
                         .row_stride = row_stride_,
                         .rows = group,
                         .terms = padded,
                         .width = width_,
                         .to = codes_.data() + j * code_bytes_});
  }
  kernels_->column_ranges(codes_.data(), steps * terms_ / fold_, code_layout(format(b_->format)),
                          ranges_.data());
  if (flushes_) flush_codes(format(b_->format), codes_.data(), steps * terms_ * width_);
}

/// Codes stay where they are, unless kernels would read past their rows.
template <typename T>
void PackedPanel<T>::load_rows(std::int64_t first, std::int64_t steps) {
  const std::int64_t read = (steps - 1) * terms_ + line_terms_;
  copied_ = b_->k_stride != 1 || columns_ < width_ || first * terms_ + read > b_->k;
  const std::int64_t inside = std::min(steps * terms_, b_->k - first * terms_);
  for (std::int64_t j = 0; j < columns_ && copied_; ++j)
    gather_codes(*b_, begin_ + j, first * terms_, inside, row_stride_,
                 rows_.data() + j * row_stride_ * code_bytes_);
  if (!lines_) return;
  PanelLines lines;
  place(lines, first);
  for (std::int64_t j = 0; j < columns_; ++j)
    ranges_[static_cast<std::size_t>(j)].add(
        kernels_->row_range(lines.codes + j * lines.code_stride, inside, lines.layout));
}

template <typename T>
void PackedPanel<T>::decode(std::int64_t first, std::int64_t steps) {
  if (dots_) return;
  decoded_ = first;
  decode_kernels_->panel(
      {.codes = codes_.data() + (first - loaded_) * terms_ * width_ * code_bytes_,
       .steps = steps,
       .terms = terms_ / fold_,
       .layout = code_layout(format(b_->format)),
       .fused = fused_,
       .values = values_.data(),
       .exponents = exponents_.data(),
       .signs = fold_ > 1 ? folded_signs_.data() : signs_.data()});
  if (fold_ > 1) join_signs(steps);
  if (scales_.used() && packs_scales_) scale_steps(first, steps);
  if (has_exponents_ && !fused_) find_exponents(steps);
}

/// Words of every term from those of every fold-th one.
template <typename T>
void PackedPanel<T>::join_signs(std::int64_t steps) {
  for (std::int64_t step = 0; step < steps; ++step) {
    std::uint32_t* to = signs_.data() + step * width_;
    std::fill_n(to, width_, 0u);
    for (std::int64_t i = 0; i < fold_; ++i) {
      const std::uint32_t* from = folded_signs_.data() + (step * fold_ + i) * width_;
      for (std::int64_t j = 0; j < width_; ++j) {
        const std::uint32_t bits = spread(from[j]);
        to[j] |= (fold_ == 2 ? bits : spread(bits)) << i;
      }
    }
  }
}

template <typename T>
void PackedPanel<T>::find_exponents(std::int64_t steps) {
  if constexpr (std::is_same_v<T, float>)
    unit_kernels_->words.exponents(values_.data(), steps * terms_ * width_,
                                   format(b_->format).min_exponent(), exponents_.data());
}

/// Multiplies each column's step by its scale, a power of two.
template <typename T>
void PackedPanel<T>::scale_steps(std::int64_t first, std::int64_t steps) {
  using Exponent = typename PackedTypes<T>::Exponent;
  std::array<T, kMaxWidth> scale;
  std::array<Exponent, kMaxWidth> change;
  for (std::int64_t step = 0; step < steps; ++step) {
    for (std::int64_t j = 0; j < width_; ++j) {
      const auto at = static_cast<std::size_t>(j);
      scale[at] = static_cast<T>(scales_.scale(first + step, j));
      change[at] = static_cast<Exponent>(scales_.exponent(first + step, j));
    }
    for (std::int64_t t = 0; t < terms_; ++t) {
      T* values = values_.data() + (step * terms_ + t) * width_;
      for (std::int64_t j = 0; j < width_; ++j) values[j] *= scale[static_cast<std::size_t>(j)];
      if (!has_exponents_) continue;
      Exponent* exponents = exponents_.data() + (step * terms_ + t) * width_;
      for (std::int64_t j = 0; j < width_; ++j) {
        const auto at = static_cast<std::size_t>(j);
        exponents[j] =
            exponents[j] == 0 ? Exponent{0} : static_cast<Exponent>(exponents[j] + change[at]);
      }
    }
  }
}

template <typename T>
const unsigned char* PackedPanel<T>::codes_at(std::int64_t row, std::int64_t term) const {
  return static_cast<const unsigned char*>(b_->data) + (row * b_->row_stride + term) * code_bytes_;
}

/// What is in the place of the steps from `step` on in the next slab or, after the last one, in the
/// next panel's first.
template <typename T>
NextCodes PackedPanel<T>::next_codes(std::int64_t step) const {
  const std::int64_t term = step * terms_ + slab_terms_;
  const bool inside = term < b_->k;
  const std::int64_t row = inside ? begin_ : begin_ + width_;
  const std::int64_t first = inside ? term : term % slab_terms_;
  const std::int64_t rows = std::min(width_, b_->rows - row);
  if (rows <= 0) return {};
  return {.codes = codes_at(row, first),
          .row_stride = b_->row_stride * code_bytes_,
          .rows = rows,
          .term_bytes = code_bytes_};
}

template <typename T>
void PackedPanel<T>::place(StepBlock<T>& block, std::int64_t step) const {
  if (fetches_) block.next = next_codes(step);
  const std::int64_t offset = step - decoded_;
  block.b = values_.data() + offset * terms_ * width_;
  block.b_exponents = exponents_.data() + (has_exponents_ ? offset * terms_ * width_ : 0);
  block.b_signs = signs_.data() + (fused_ ? offset * width_ : 0);
}

template <typename T>
void PackedPanel<T>::place(DotBlock& block, std::int64_t step) {
  block.columns = round_up(columns_, 8);
  block.largest = lane_ranges_.data();
  place_codes(block, step);
  place_next(block, step);
}

template <typename T>
void PackedPanel<T>::place(WordDotBlock& block, std::int64_t step) {
  block.ranges = lane_ranges_.data();
  place_codes(block, step);
  place_next(block, step);
}

template <typename T>
void PackedPanel<T>::place(GroupDotBlock& block, std::int64_t step) {
  place_codes(block, step);
  place_next(block, step);
}

template <typename T>
void PackedPanel<T>::place(PanelLines& lines, std::int64_t step) {
  place_codes(lines, step);
  lines.columns = columns_;
  lines.storage_bits = static_cast<int>(8 * code_bytes_);
  lines.layout = code_layout(format(b_->format));
}

template <typename T>
template <typename Block>
void PackedPanel<T>::place_codes(Block& block, std::int64_t step) const {
  block.width = width_;
  block.codes = rows_.data() + (step - loaded_) * terms_ * code_bytes_;
  block.code_stride = row_stride_ * code_bytes_;
  if (copied_) return;
  block.codes = codes_at(begin_, step * terms_);
  block.code_stride = b_->row_stride * code_bytes_;
}

/// Kernels fetch codes of whole panels: where there is none, those that they read.
template <typename T>
template <typename Block>
void PackedPanel<T>::place_next(Block& block, std::int64_t step) const {
  const NextCodes next = next_codes(step);
  const bool whole = !copied_ && next.rows == width_;
  block.next_codes = whole ? next.codes : block.codes;
  block.next_stride = whole ? next.row_stride : block.code_stride;
}

template RowSummary summarize<double>(const KernelTable&, const CodeMatrix&, bool, int);
template class PackedPanel<float>;
template class PackedPanel<double>;

namespace {

/// Sets the codes from `first` up to `end` to -0.
void fill_negative_zeros(const Format& f, unsigned char* codes, std::int64_t first,
                         std::int64_t end) {
  const std::uint32_t word = f.sign_mask() << (f.storage_bits == 32 ? 23 - f.mantissa_bits : 0);
  const std::int64_t bytes = f.bytes();
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
  const std::int64_t row_bytes = stride * f.bytes();
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
  if (scales.used() && form.packs_scales()) scale_steps();
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
      if (!form_->has_exponents()) continue;
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

namespace {

constexpr int kHalfBias = 15;

/// What codes become; NaN and Inf, whose outputs no kernel computes, like zeros.
struct Table {
  std::array<float, 256> values{};
  std::array<std::uint8_t, 256> exponents{};
  std::array<std::int8_t, 256> signs{};
  std::array<std::int8_t, 256> zeros{};

  Table(const Format& f, int b_bias) {
    const float scale = std::ldexp(kStretchFloat, kHalfBias - b_bias);
    const std::span<const Unpacked> unpacked = unpack_table(f.id);
    const std::span<const float> decoded = decode_table(f.id);
    for (std::size_t code = 0; code < values.size(); ++code) {
      const Unpacked& x = unpacked[code % unpacked.size()];  // whatever is above a narrow code
      const bool zero = !x.is_finite() || x.significand == 0;
      values[code] = zero ? 0.0F : decoded[code % decoded.size()] * scale;
      exponents[code] =
          zero ? std::uint8_t{0} : static_cast<std::uint8_t>(x.exponent + kFloatBiasA);
      signs[code] = x.negative ? 0 : -128;
      zeros[code] = zero ? 127 : 0;
    }
  }
};

/// Where a step's values are: in each chunk those of even place first.
std::array<std::int64_t, kDotTerms> places_of_values(std::int64_t chunk) {
  std::array<std::int64_t, kDotTerms> places{};
  for (std::int64_t t = 0; t < kDotTerms; ++t) {
    const std::int64_t i = t % chunk;
    places[static_cast<std::size_t>(t)] = t - i + i % 2 * (chunk / 2) + i / 2;
  }
  return places;
}

}  // namespace

bool has_half_fields(const Format& f) {
  return f.code_bits() == 8 && f.has_sign && (f.exponent_bits == 4 || f.exponent_bits == 5) &&
         f.specials != SpecialValues::fnuz;
}

PackedDotRows::PackedDotRows(const DotSource& from, const Format& a, const DotLayout& b,
                             const DotKernels& kernels)
    : rows_(from.rows),
      values_(from.rows * from.steps * kDotTerms),
      exponents_(from.rows * from.steps * kDotTerms),
      signs_(from.rows * from.steps * kDotTerms),
      zeros_(from.rows * from.steps * kDotTerms) {
  if (!has_half_fields(a)) {
    look_up(from, a, b, kernels.chunk);
    return;
  }
  kernels.pack({.codes = from.codes,
                .row_stride = from.row_stride,
                .rows = from.rows,
                .steps = from.steps,
                .terms = from.terms,
                .exponent_bits = a.exponent_bits,
                .bias = a.bias,
                .scale = std::ldexp(kStretchFloat, kHalfBias - a.bias + kHalfBias - b.bias),
                .values = values_.data(),
                .exponents = exponents_.data(),
                .signs = signs_.data(),
                .zeros = zeros_.data()});
}

void PackedDotRows::look_up(const DotSource& from, const Format& a, const DotLayout& b,
                            std::int64_t chunk) {
  const Table table(a, b.bias);
  const auto places = places_of_values(chunk);
  std::array<std::uint8_t, kDotTerms> codes{};  // what is beyond the step's terms stays zero
  std::array<float, kDotTerms> values{};
  const auto copy = [&](const auto& in, auto* to) {
    for (std::size_t t = 0; t < codes.size(); ++t) to[t] = in[codes[t]];
  };
  for (std::int64_t step = 0; step < from.steps; ++step) {
    for (std::int64_t row = 0; row < from.rows; ++row) {
      const std::int64_t at = (step * from.rows + row) * kDotTerms;
      std::copy_n(from.codes + row * from.row_stride + step * from.terms, from.terms,
                  codes.begin());
      copy(table.values, values.data());
      for (std::size_t t = 0; t < values.size(); ++t) values_.data()[at + places[t]] = values[t];
      copy(table.exponents, exponents_.data() + at);
      copy(table.signs, signs_.data() + at);
      copy(table.zeros, zeros_.data() + at);
    }
  }
}

DotRows PackedDotRows::from(std::int64_t step) const {
  const std::int64_t at = step * rows_ * kDotTerms;
  return {values_.data() + at, exponents_.data() + at, signs_.data() + at, zeros_.data() + at};
}

}  // namespace fp8lab::gemm_detail
