#include "fp8lab/gemm/pack.hpp"

#include <algorithm>
#include <bit>
#include <type_traits>

namespace fp8lab::gemm_detail {
namespace {

template <typename T>
constexpr T kStretch = std::is_same_v<T, float> ? T(kStretchFloat) : T(kStretchDouble);
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

/// 2^exponent, for any exponent a product's factor can have.
double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

constexpr int kLowestPresence = -24;
constexpr int kNanBit = 62;
constexpr int kInfinityBit = 63;

}  // namespace

std::uint64_t Presence::of(const Unpacked& u) {
  if (u.value_class == ValueClass::nan) return std::uint64_t{1} << kNanBit;
  if (u.value_class == ValueClass::infinity) return std::uint64_t{1} << kInfinityBit;
  return u.significand == 0 ? 0 : std::uint64_t{1} << (u.exponent - kLowestPresence);
}

RowSummary Presence::summary(int mantissa_bits) const {
  RowSummary s;
  s.nan = (bits_ >> kNanBit & 1) != 0;
  s.infinite = (bits_ >> kInfinityBit & 1) != 0;
  const std::uint64_t exponents = bits_ & ((std::uint64_t{1} << kNanBit) - 1);
  if (exponents == 0) return s;
  s.largest = kLowestPresence + 63 - std::countl_zero(exponents);
  s.lowest = kLowestPresence + std::countr_zero(exponents) - mantissa_bits;
  return s;
}

template <typename T>
CodePacker<T>::CodePacker(const Plan& plan, const CodeMatrix& matrix, Side side)
    : format_(&format(matrix.format)), side_(side), fused_(plan.fused()) {
  if (format_->storage_bits != 8) return;
  for (std::uint32_t code = 0; code < 256; ++code) {
    table_.push_back(pack(unpack(*format_, code)));
    presence_.push_back(Presence::of(unpack(*format_, code)));
  }
}

template <typename T>
PackedCode<T> CodePacker<T>::pack(const Unpacked& u) const {
  PackedCode<T> p;
  p.negative = u.negative;
  // Outputs that meet NaN or Inf are not the kernel's; it sees zeros there.
  const bool zero = !u.is_finite() || u.significand == 0;
  if (!zero) {
    p.value = static_cast<T>(static_cast<double>(u.significand) *
                             power_of_two(u.exponent - u.mantissa_bits));
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
    Presence presence;
    for (std::int64_t step = 0; step < steps; ++step) {
      typename PackedTypes<T>::Word sign = 0;
      for (std::int64_t t = 0; t < plan.terms; ++t) {
        const std::int64_t k = step * plan.terms + t;
        const std::uint32_t code = k < a.k ? code_at(a, begin + r, k) : 0;
        PackedCode<T> p;
        if (table.empty()) {
          const Unpacked u = unpack(packer.code_format(), code);
          p = packer.pack(u);
          summary.add(summarize(u));
        } else {
          p = table[code];
          presence.add(packer.presence()[code]);
        }
        const std::int64_t at = (step * rows + r) * plan.terms + t;
        values.data()[at] = p.value;
        if (plan.fused()) {
          exponents.data()[at] = replicate<T>(p.exponent);
          sign |= static_cast<typename PackedTypes<T>::Word>(p.negative) << t;
        }
      }
      if (plan.fused()) signs.data()[step * rows + r] = sign;
    }
    if (!table.empty()) summary = presence.summary(packer.code_format().mantissa_bits);
    summaries[static_cast<std::size_t>(r)] = summary;
  }
}

template <typename T>
PackedPanel<T>::PackedPanel(const CodePacker<T>& packer, const KernelTable& kernels,
                            const Plan& plan, const CodeMatrix& b, std::int64_t width,
                            std::int64_t slab_steps)
    : packer_(&packer),
      kernels_(&kernels),
      b_(&b),
      terms_(plan.terms),
      fused_(plan.fused()),
      width_(width),
      values_(slab_steps * plan.terms * width),
      exponents_(fused_ ? slab_steps * plan.terms * width : 0),
      signs_(fused_ ? slab_steps * width : 0),
      codes_(static_cast<std::size_t>(plan.terms * width)),
      presences_(static_cast<std::size_t>(width)),
      summaries_(static_cast<std::size_t>(width)) {}

template <typename T>
void PackedPanel<T>::start(std::int64_t begin) {
  begin_ = begin;
  columns_ = std::min(width_, b_->rows - begin);
  std::ranges::fill(presences_, Presence{});
  std::ranges::fill(summaries_, RowSummary{});
}

template <typename T>
RowSummary PackedPanel<T>::summary(std::int64_t column) const {
  const auto j = static_cast<std::size_t>(column);
  return packer_->table().empty() ? summaries_[j]
                                  : presences_[j].summary(packer_->code_format().mantissa_bits);
}

template <typename T>
void PackedPanel<T>::fill(std::int64_t first, std::int64_t steps) {
  for (std::int64_t i = 0; i < steps; ++i) {
    if (packer_->table().empty()) {
      fill_step(first + i, i);
    } else {
      transpose(first + i);
      decode_codes(i);
    }
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
      const Unpacked u = unpack(packer_->code_format(), inside ? code_at(*b_, begin_ + j, k) : 0);
      const PackedCode<T> p = packer_->pack(u);
      const std::int64_t at = (slot * terms_ + t) * width_ + j;
      values_.data()[at] = p.value;
      if (fused_) {
        exponents_.data()[at] = p.exponent;
        sign |= static_cast<Word>(p.negative) << t;
      }
      summaries_[static_cast<std::size_t>(j)].add(summarize(u));
    }
    if (fused_) signs_.data()[slot * width_ + j] = sign;
  }
}

/// The codes of one step into `codes_`, term by term along the panel; noting
/// what each column holds costs least here.
template <typename T>
void PackedPanel<T>::transpose(std::int64_t step) {
  const std::int64_t first = step * terms_;
  const std::int64_t inside = std::min(terms_, b_->k - first);
  if (columns_ < width_ || inside < terms_) std::ranges::fill(codes_, std::uint8_t{0});
  const auto* bytes = static_cast<const std::uint8_t*>(b_->data);
  const std::uint64_t* presence = packer_->presence().data();
  std::uint8_t* codes = codes_.data();
  for (std::int64_t j = 0; j < columns_; ++j) {
    const std::uint8_t* from = bytes + (begin_ + j) * b_->row_stride + first * b_->k_stride;
    std::uint64_t present = 0;
    for (std::int64_t t = 0; t < inside; ++t) {
      const std::uint8_t code = from[t * b_->k_stride];
      codes[t * width_ + j] = code;
      present |= presence[code];
    }
    presences_[static_cast<std::size_t>(j)].add(present);
  }
}

template <typename T>
void PackedPanel<T>::decode_codes(std::int64_t slot) {
  using Word = typename PackedTypes<T>::Word;
  const std::int64_t at = slot * terms_ * width_;
  if constexpr (std::is_same_v<T, float>) {
    const Format& f = packer_->code_format();
    kernels_->decode_step({.codes = codes_.data(),
                           .terms = terms_,
                           .mantissa_bits = f.mantissa_bits,
                           .bias = f.bias,
                           .sign_bit = f.exponent_bits + f.mantissa_bits,
                           .fused = fused_,
                           .values = values_.data() + at,
                           .exponents = exponents_.data() + (fused_ ? at : 0),
                           .signs = signs_.data() + (fused_ ? slot * width_ : 0)});
  } else {
    const PackedCode<T>* table = packer_->table().data();
    Word* signs = signs_.data() + (fused_ ? slot * width_ : 0);
    if (fused_) std::fill_n(signs, width_, Word{0});
    for (std::int64_t t = 0; t < terms_; ++t) {
      for (std::int64_t j = 0; j < width_; ++j) {
        const std::int64_t i = t * width_ + j;
        const PackedCode<T>& p = table[codes_[static_cast<std::size_t>(i)]];
        values_.data()[at + i] = p.value;
        if (!fused_) continue;
        exponents_.data()[at + i] = p.exponent;
        signs[j] |= static_cast<Word>(p.negative) << t;
      }
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
