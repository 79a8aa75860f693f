#include "fp8lab/gemm/pack.hpp"

#include <algorithm>
#include <array>
#include <cstring>

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

RowSummary summarize(const Format& f, const CodeRange& range) {
  RowSummary s;
  if (range.largest == 0) return s;
  s.infinite = f.has_infinity() && range.largest == f.infinity_code();
  s.nan = !s.infinite && range.largest > f.max_finite_code();
  const auto exponent = [&](std::uint32_t magnitude) {
    return std::max(static_cast<int>(magnitude >> f.mantissa_bits), 1) - f.bias;
  };
  s.largest = exponent(range.largest);
  s.lowest = exponent(range.smallest) - f.mantissa_bits;
  return s;
}

void gather_codes(const CodeMatrix& m, std::int64_t row, std::int64_t first, std::int64_t count,
                  std::int64_t padded, unsigned char* to) {
  const std::int64_t bytes = format(m.format).storage_bits / 8;
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
  const std::int64_t code_bytes = format(m.format).storage_bits / 8;
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
RowSummary summarize(const KernelTable& kernels, const CodeMatrix& m, int threads) {
  const Format& f = format(m.format);
  const CodeLayout layout = code_layout(f);
  RowSummary all;
#pragma omp parallel num_threads(threads)
  {
    RowSummary seen;
    AlignedArray<unsigned char> codes(m.k * f.storage_bits / 8);
#pragma omp for
    for (std::int64_t row = 0; row < m.rows; ++row) {
      gather_codes(m, row, 0, m.k, m.k, codes.data());
      seen.add(summarize(f, kernels.codes<T>(f.storage_bits).row_range(codes.data(), m.k, layout)));
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
      fused_(form.fused()),
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
      code_bytes_(format(b.format).storage_bits / 8),
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
  const RowSummary codes = summarize(format(b_->format), range_of_column(column));
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
  if (scales_.used() && fused_) scale_steps(first, steps);
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
      Exponent* exponents = exponents_.data() + (step * terms_ + t) * width_;
      for (std::int64_t j = 0; j < width_; ++j) {
        const auto at = static_cast<std::size_t>(j);
        values[j] *= scale[at];
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

template RowSummary summarize<double>(const KernelTable&, const CodeMatrix&, int);
template class PackedPanel<float>;
template class PackedPanel<double>;

}  // namespace fp8lab::gemm_detail
