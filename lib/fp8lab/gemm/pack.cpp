#include "fp8lab/gemm/pack.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
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

/// 2^exponent, for any exponent a product's factor can have.
double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

/// The code at an element of a 16- or 32-bit format.
std::uint32_t wide_code(const CodeMatrix& m, const Format& f, std::int64_t row, std::int64_t k) {
  const std::int64_t at = row * m.row_stride + k * m.k_stride;
  const auto* bytes = static_cast<const unsigned char*>(m.data);
  if (f.storage_bits == 16) {
    std::uint16_t word = 0;
    std::memcpy(&word, bytes + 2 * at, sizeof word);
    return word;
  }
  std::uint32_t word = 0;
  std::memcpy(&word, bytes + 4 * at, sizeof word);
  return code_of_storage(f, word);
}

CodeLayout layout_of(const Format& f) {
  return {f.mantissa_bits, f.bias, f.exponent_bits + f.mantissa_bits};
}

bool has_special(const KernelTable& kernels, const Format& f,
                 const std::vector<std::uint8_t>& codes) {
  if (f.code_bits() < 8) return false;
  const bool fnuz = f.specials == SpecialValues::fnuz;
  return kernels.has_special(codes.data(), static_cast<std::int64_t>(codes.size()),
                             static_cast<std::uint8_t>(f.max_finite_code()),
                             fnuz ? std::uint8_t{0x80} : std::uint8_t{0});
}

/// The bits `sign_bit` of `count` codes (at most 32), the first one lowest.
std::uint32_t sign_word(const std::uint8_t* codes, std::int64_t count, int sign_bit) {
  std::uint32_t signs = 0;
  for (std::int64_t t = 0; t < count; t += 8) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, codes + t, 8);
    eight = eight >> sign_bit & 0x0101010101010101u;
    // Multiplication gathers the lowest bits of eight bytes into the highest byte.
    signs |= static_cast<std::uint32_t>((eight * 0x0102040810204080u) >> 56) << t;
  }
  return count == 32 ? signs : signs & ((std::uint32_t{1} << count) - 1);
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

/// 16-bit formats and TF32, which are too many codes for a table in cache: all
/// are laid out like binary32, so their fields are read directly.
template <typename T>
PackedCode<T> CodePacker<T>::pack_wide(std::uint32_t code, RowSummary& summary) const {
  const Format& f = *format_;
  PackedCode<T> p;
  p.negative = (code & f.sign_mask()) != 0;
  const std::uint32_t magnitude = code & f.magnitude_mask();
  const std::uint32_t field = magnitude >> f.mantissa_bits;
  if (magnitude >= f.infinity_code()) {
    summary.infinite |= magnitude == f.infinity_code();
    summary.nan |= magnitude != f.infinity_code();
  } else if (magnitude != 0) {
    const bool normal = field != 0;
    const int exponent = (normal ? static_cast<int>(field) : 1) - f.bias;
    const std::uint32_t hidden = normal ? std::uint32_t{1} << f.mantissa_bits : 0;
    const std::uint32_t significand =
        (magnitude & ((std::uint32_t{1} << f.mantissa_bits) - 1)) | hidden;
    summary.largest = std::max(summary.largest, exponent);
    summary.lowest = std::min(summary.lowest, exponent - f.mantissa_bits);
    p.value =
        static_cast<T>(static_cast<double>(significand) * power_of_two(exponent - f.mantissa_bits));
    if (fused_ && side_ == Side::b) p.value *= kStretch<T>;
    p.exponent = static_cast<typename PackedTypes<T>::Exponent>(
        exponent + (side_ == Side::a ? kBiasA<T> : kBiasB<T>));
  }
  if (p.exponent == 0 && fused_) p.value = kTiny<T>;
  if (p.negative) p.value = -p.value;
  return p;
}

template <typename T>
PackedRows<T>::PackedRows(const CodePacker<T>& packer, const KernelTable& kernels, const Plan& plan,
                          const CodeMatrix& a, std::int64_t begin, std::int64_t count)
    : rows(count),
      steps((a.k + plan.terms - 1) / plan.terms),
      values(rows * steps * plan.terms + kMaxWidth),
      exponents(plan.fused() ? rows * steps * plan.terms + kMaxWidth : 0),
      signs(plan.fused() ? rows * steps : 0),
      summaries(static_cast<std::size_t>(count)) {
  if (packer.table().empty()) {
    for (std::int64_t r = 0; r < rows; ++r) pack_row(packer, plan, a, begin + r, r);
    return;
  }
  if constexpr (std::is_same_v<T, float>) {
    if (plan.method == Method::fused_float) {
      pack_fused_bytes(packer, kernels, plan, a, begin);
      return;
    }
  }
  pack_bytes(packer, plan, a, begin);
}

/// 8-bit codes for the fused float kernel: what the tables of `pack_bytes` say,
/// by vectors, a step of all rows at a time.
template <typename T>
void PackedRows<T>::pack_fused_bytes(const CodePacker<T>& packer, const KernelTable& kernels,
                                     const Plan& plan, const CodeMatrix& a,
                                     std::int64_t begin) requires std::is_same_v<T, float> {
  const Format& f = packer.code_format();
  const CodeLayout layout = layout_of(f);
  const std::int64_t terms = plan.terms;
  const std::int64_t count = rows * terms;
  const auto* bytes = static_cast<const std::uint8_t*>(a.data) + begin * a.row_stride;
  std::vector<Presence> present(static_cast<std::size_t>(rows));
  // Room for whole vectors; what is past the step's codes stays zero.
  std::vector<std::uint8_t> codes(
      static_cast<std::size_t>((count + kMaxWidth) / kMaxWidth * kMaxWidth));
  for (std::int64_t step = 0; step < steps; ++step) {
    const std::int64_t inside = std::min(terms, a.k - step * terms);
    if (inside < terms) std::ranges::fill(codes, std::uint8_t{0});
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::uint8_t* from = bytes + r * a.row_stride + step * terms * a.k_stride;
      std::uint8_t* to = codes.data() + r * terms;
      for (std::int64_t t = 0; t < inside; ++t) to[t] = from[t * a.k_stride];
    }
    kernels.decode_rows({.codes = codes.data(),
                         .count = count,
                         .layout = layout,
                         .values = values.data() + step * count,
                         .exponents = exponents.data() + step * count});
    for (std::int64_t r = 0; r < rows; ++r)
      signs.data()[step * rows + r] = sign_word(codes.data() + r * terms, terms, layout.sign_bit);
    if (!has_special(kernels, f, codes)) continue;
    for (std::int64_t i = 0; i < count; ++i)
      present[static_cast<std::size_t>(i / terms)].add(
          packer.presence()[codes[static_cast<std::size_t>(i)]]);
  }
  for (std::size_t r = 0; r < present.size(); ++r)
    summaries[r] = present[r].summary(f.mantissa_bits);
}

template <typename T>
void PackedRows<T>::pack_row(const CodePacker<T>& packer, const Plan& plan, const CodeMatrix& a,
                             std::int64_t from, std::int64_t r) {
  RowSummary& summary = summaries[static_cast<std::size_t>(r)];
  for (std::int64_t step = 0; step < steps; ++step) {
    typename PackedTypes<T>::Word sign = 0;
    for (std::int64_t t = 0; t < plan.terms; ++t) {
      const std::int64_t k = step * plan.terms + t;
      const PackedCode<T> p =
          packer.pack_wide(k < a.k ? wide_code(a, packer.code_format(), from, k) : 0, summary);
      const std::int64_t at = (step * rows + r) * plan.terms + t;
      values.data()[at] = p.value;
      if (plan.fused()) exponents.data()[at] = replicate<T>(p.exponent);
      sign |= static_cast<typename PackedTypes<T>::Word>(p.negative) << t;
    }
    if (plan.fused()) signs.data()[step * rows + r] = sign;
  }
}

/// Step by step, so that what is written lies together.
template <typename T>
void PackedRows<T>::pack_bytes(const CodePacker<T>& packer, const Plan& plan, const CodeMatrix& a,
                               std::int64_t begin) {
  const PackedCode<T>* table = packer.table().data();
  const std::uint64_t* presence = packer.presence().data();
  const auto* bytes = static_cast<const std::uint8_t*>(a.data) + begin * a.row_stride;
  const std::int64_t terms = plan.terms;
  const bool fused = plan.fused();
  std::vector<std::uint64_t> present(static_cast<std::size_t>(rows), 0);
  T* value = values.data();
  std::uint32_t* exponent = exponents.data();
  for (std::int64_t step = 0; step < steps; ++step) {
    const std::int64_t inside = std::min(terms, a.k - step * terms);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::uint8_t* from = bytes + r * a.row_stride + step * terms * a.k_stride;
      typename PackedTypes<T>::Word sign = 0;
      std::uint64_t seen = 0;
      for (std::int64_t t = 0; t < terms; ++t) {
        const std::uint8_t code = t < inside ? from[t * a.k_stride] : std::uint8_t{0};
        const PackedCode<T>& p = table[code];
        *value++ = p.value;
        if (fused) *exponent++ = replicate<T>(p.exponent);
        sign |= static_cast<typename PackedTypes<T>::Word>(p.negative) << t;
        seen |= presence[code];
      }
      if (fused) signs.data()[step * rows + r] = sign;
      present[static_cast<std::size_t>(r)] |= seen;
    }
  }
  for (std::int64_t r = 0; r < rows; ++r)
    summaries[static_cast<std::size_t>(r)] =
        Presence(present[static_cast<std::size_t>(r)]).summary(packer.code_format().mantissa_bits);
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
      specials_only_(plan.method == Method::fused_float),
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
      note_presence();
      decode_codes(i);
    }
  }
}

template <typename T>
void PackedPanel<T>::fill_step(std::int64_t step, std::int64_t slot) {
  using Word = typename PackedTypes<T>::Word;
  for (std::int64_t j = 0; j < width_; ++j) {
    RowSummary& summary = summaries_[static_cast<std::size_t>(j)];
    Word sign = 0;
    for (std::int64_t t = 0; t < terms_; ++t) {
      const std::int64_t k = step * terms_ + t;
      const bool inside = j < columns_ && k < b_->k;
      const PackedCode<T> p = packer_->pack_wide(
          inside ? wide_code(*b_, packer_->code_format(), begin_ + j, k) : 0, summary);
      const std::int64_t at = (slot * terms_ + t) * width_ + j;
      values_.data()[at] = p.value;
      if (fused_) {
        exponents_.data()[at] = p.exponent;
        sign |= static_cast<Word>(p.negative) << t;
      }
    }
    if (fused_) signs_.data()[slot * width_ + j] = sign;
  }
}

/// The codes of one step into `codes_`, term by term along the panel.
template <typename T>
void PackedPanel<T>::transpose(std::int64_t step) {
  const std::int64_t first = step * terms_;
  const std::int64_t inside = std::min(terms_, b_->k - first);
  if (columns_ < width_ || inside < terms_) std::ranges::fill(codes_, std::uint8_t{0});
  const auto* bytes = static_cast<const std::uint8_t*>(b_->data);
  kernels_->transpose_step({.from = bytes + begin_ * b_->row_stride + first * b_->k_stride,
                            .row_stride = b_->row_stride,
                            .k_stride = b_->k_stride,
                            .columns = columns_,
                            .terms = inside,
                            .width = width_,
                            .codes = codes_.data()});
}

/// Notes what the columns of the step in `codes_` hold. A method that takes all
/// finite inputs only needs to know of specials, and those are rare.
template <typename T>
void PackedPanel<T>::note_presence() {
  if (specials_only_ && !has_special(*kernels_, packer_->code_format(), codes_)) return;
  const std::uint64_t* presence = packer_->presence().data();
  for (std::int64_t t = 0; t < terms_; ++t)
    for (std::int64_t j = 0; j < width_; ++j)
      presences_[static_cast<std::size_t>(j)].add(
          presence[codes_[static_cast<std::size_t>(t * width_ + j)]]);
}

template <typename T>
void PackedPanel<T>::decode_codes(std::int64_t slot) {
  using Word = typename PackedTypes<T>::Word;
  const std::int64_t at = slot * terms_ * width_;
  if constexpr (std::is_same_v<T, float>) {
    const Format& f = packer_->code_format();
    kernels_->decode_step({.codes = codes_.data(),
                           .terms = terms_,
                           .layout = layout_of(f),
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
