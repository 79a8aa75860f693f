#include "fp8lab/gemm/pack.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

namespace fp8lab::gemm_detail {
namespace {

// B is stretched by 1 + epsilon so that no negative product is a whole number
// of units: README.md, "one FMA per product".
template <typename T>
constexpr T kStretch = std::is_same_v<T, float> ? T(1.0F + 0x1p-19F) : T(1.0 + 0x1p-40);
template <typename T>
constexpr T kTiny = std::is_same_v<T, float> ? T(kTinyFloat) : T(kTinyDouble);
template <typename T>
constexpr int kBiasA = std::is_same_v<T, float> ? kFloatBiasA : kDoubleBiasA;
template <typename T>
constexpr int kBiasB = std::is_same_v<T, float> ? kFloatBiasB : kDoubleBiasB;

template <typename T>
std::uint32_t replicate(typename PackedTypes<T>::Exponent e) {
  return std::is_same_v<T, float> ? e * 0x01010101u : e * 0x00010001u;
}

RowSummary summarize(const Unpacked& u) {
  RowSummary s;
  s.nan = u.value_class == ValueClass::nan;
  s.infinite = u.value_class == ValueClass::infinity;
  if (u.is_finite() && u.significand != 0) {
    s.largest = u.exponent;
    s.lowest = u.exponent - u.mantissa_bits + std::countr_zero(u.significand);
  }
  return s;
}

}  // namespace

template <typename T>
CodePacker<T>::CodePacker(const Plan& plan, const CodeMatrix& matrix, Side side)
    : format_(&format(matrix.format)), side_(side), fused_(plan.fused()) {
  if (format_->storage_bits != 8) return;
  for (std::uint32_t code = 0; code < 256; ++code) table_.push_back(pack(code));
}

template <typename T>
PackedCode<T> CodePacker<T>::pack(std::uint32_t code) const {
  const Unpacked u = unpack(*format_, code);
  PackedCode<T> p;
  p.summary = summarize(u);
  p.negative = u.negative;
  // Outputs that meet NaN or Inf are not the kernel's; it sees zeros there.
  const bool zero = !u.is_finite() || u.significand == 0;
  if (!zero) {
    p.value = static_cast<T>(
        std::ldexp(static_cast<double>(u.significand), u.exponent - u.mantissa_bits));
    if (fused_ && side_ == Side::b) p.value *= kStretch<T>;
    p.exponent = static_cast<typename PackedTypes<T>::Exponent>(
        u.exponent + (side_ == Side::a ? kBiasA<T> : kBiasB<T>));
  } else if (fused_) {
    p.value = kTiny<T>;
  }
  if (p.negative) p.value = -p.value;
  return p;
}

template <typename T>
PackedRows<T>::PackedRows(const CodePacker<T>& packer, const Plan& plan, const CodeMatrix& a,
                          std::int64_t begin, std::int64_t count)
    : rows(count),
      steps((a.k + plan.terms - 1) / plan.terms),
      values(rows * steps * plan.terms),
      exponents(plan.fused() ? rows * steps * plan.terms : 0),
      signs(plan.fused() ? rows * steps : 0),
      summaries(static_cast<std::size_t>(count)) {
  const auto table = packer.table();
  for (std::int64_t r = 0; r < rows; ++r) {
    RowSummary summary;
    for (std::int64_t step = 0; step < steps; ++step) {
      typename PackedTypes<T>::Word sign = 0;
      for (std::int64_t t = 0; t < plan.terms; ++t) {
        const std::int64_t k = step * plan.terms + t;
        const std::uint32_t code = k < a.k ? code_at(a, begin + r, k) : 0;
        const PackedCode<T> p = table.empty() ? packer.pack(code) : table[code];
        const std::int64_t at = (step * rows + r) * plan.terms + t;
        values.data()[at] = p.value;
        if (plan.fused()) {
          exponents.data()[at] = replicate<T>(p.exponent);
          sign |= static_cast<typename PackedTypes<T>::Word>(p.negative) << t;
        }
        summary.add(p.summary);
      }
      if (plan.fused()) signs.data()[step * rows + r] = sign;
    }
    summaries[static_cast<std::size_t>(r)] = summary;
  }
}

template <typename T>
PackedPanel<T>::PackedPanel(const CodePacker<T>& packer, const Plan& plan, const CodeMatrix& b,
                            std::int64_t width, std::int64_t slab_steps)
    : packer_(&packer),
      b_(&b),
      terms_(plan.terms),
      fused_(plan.fused()),
      width_(width),
      values_(slab_steps * plan.terms * width),
      exponents_(fused_ ? slab_steps * plan.terms * width : 0),
      signs_(fused_ ? slab_steps * width : 0),
      codes_(static_cast<std::size_t>(plan.terms * width)),
      summaries_(static_cast<std::size_t>(width)) {}

template <typename T>
void PackedPanel<T>::start(std::int64_t begin) {
  begin_ = begin;
  columns_ = std::min(width_, b_->rows - begin);
  std::ranges::fill(summaries_, RowSummary{});
}

template <typename T>
void PackedPanel<T>::fill(std::int64_t first, std::int64_t steps) {
  for (std::int64_t i = 0; i < steps; ++i) {
    if (packer_->table().empty())
      fill_step(first + i, i);
    else
      fill_step_bytes(first + i, i);
  }
}

template <typename T>
void PackedPanel<T>::fill_step(std::int64_t step, std::int64_t slot) {
  using Word = typename PackedTypes<T>::Word;
  for (std::int64_t j = 0; j < width_; ++j) {
    Word sign = 0;
    for (std::int64_t t = 0; t < terms_; ++t) {
      const std::int64_t k = step * terms_ + t;
      const bool inside = j < columns_ && k < b_->k;
      const PackedCode<T> p = packer_->pack(inside ? code_at(*b_, begin_ + j, k) : 0);
      const std::int64_t at = (slot * terms_ + t) * width_ + j;
      values_.data()[at] = p.value;
      if (fused_) {
        exponents_.data()[at] = p.exponent;
        sign |= static_cast<Word>(p.negative) << t;
      }
      summaries_[static_cast<std::size_t>(j)].add(p.summary);
    }
    if (fused_) signs_.data()[slot * width_ + j] = sign;
  }
}

/// 8-bit codes: transposed first, so that the tables are read along the panel.
template <typename T>
void PackedPanel<T>::fill_step_bytes(std::int64_t step, std::int64_t slot) {
  using Word = typename PackedTypes<T>::Word;
  const std::int64_t first = step * terms_;
  const std::int64_t inside = std::min(terms_, b_->k - first);
  std::ranges::fill(codes_, std::uint8_t{0});
  const auto* bytes = static_cast<const std::uint8_t*>(b_->data);
  for (std::int64_t j = 0; j < columns_; ++j) {
    const std::uint8_t* from = bytes + (begin_ + j) * b_->row_stride + first * b_->k_stride;
    for (std::int64_t t = 0; t < inside; ++t)
      codes_[static_cast<std::size_t>(t * width_ + j)] = from[t * b_->k_stride];
  }
  const auto table = packer_->table();
  Word* signs = signs_.data() + slot * width_;
  if (fused_) std::fill_n(signs, width_, Word{0});
  for (std::int64_t t = 0; t < terms_; ++t) {
    const std::uint8_t* codes = codes_.data() + t * width_;
    const std::int64_t at = (slot * terms_ + t) * width_;
    for (std::int64_t j = 0; j < width_; ++j) {
      const PackedCode<T>& p = table[codes[j]];
      values_.data()[at + j] = p.value;
      if (fused_) {
        exponents_.data()[at + j] = p.exponent;
        signs[j] |= static_cast<Word>(p.negative) << t;
      }
      summaries_[static_cast<std::size_t>(j)].add(p.summary);
    }
  }
}

template <typename T>
void PackedPanel<T>::place(StepBlock<T>& block, std::int64_t offset) const {
  block.b = values_.data() + offset * terms_ * width_;
  block.b_exponents = exponents_.data() + (fused_ ? offset * terms_ * width_ : 0);
  block.b_signs = signs_.data() + (fused_ ? offset * width_ : 0);
}

template class CodePacker<float>;
template class CodePacker<double>;
template struct PackedRows<float>;
template struct PackedRows<double>;
template class PackedPanel<float>;
template class PackedPanel<double>;

}  // namespace fp8lab::gemm_detail
