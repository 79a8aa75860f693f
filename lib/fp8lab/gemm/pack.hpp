#pragma once
// Packing: operands of any format and stride, decoded into the arrays that the
// kernels read, in steps. Packing also notes what each row holds.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <vector>

#include "fp8lab/gemm/kernels.hpp"
#include "fp8lab/gemm/plan.hpp"

namespace fp8lab::gemm_detail {

/// Uninitialised memory aligned for any vector.
template <typename T>
class AlignedArray {
 public:
  AlignedArray() = default;
  explicit AlignedArray(std::int64_t size)
      : data_(static_cast<T*>(::operator new (static_cast<std::size_t>(size) * sizeof(T),
                                              std::align_val_t{kAlignment}))) {}
  [[nodiscard]] T* data() { return data_.get(); }
  [[nodiscard]] const T* data() const { return data_.get(); }

 private:
  static constexpr std::size_t kAlignment = 128;
  struct Free {
    void operator()(T* p) const { ::operator delete (p, std::align_val_t{kAlignment}); }
  };
  std::unique_ptr<T, Free> data_;
};

/// An operand code as kernels need it.
template <typename T>
struct PackedCode {
  T value = 0;  ///< fused methods: zeros are tiny, B is stretched by 1 + epsilon
  typename PackedTypes<T>::Exponent exponent = 0;  ///< biased; 0 for zeros
  bool negative = false;
};

/// Which exponents the elements of a row have, and which specials: one bit each,
/// so that a row's presence is the OR of its codes'. 8-bit formats only.
class Presence {
 public:
  explicit Presence(std::uint64_t bits = 0) : bits_(bits) {}
  void add(std::uint64_t bits) { bits_ |= bits; }
  [[nodiscard]] RowSummary summary(int mantissa_bits) const;
  static std::uint64_t of(const Unpacked& u);

 private:
  std::uint64_t bits_;
};

/// How codes of one operand become packed values.
template <typename T>
class CodePacker {
 public:
  enum class Side : std::uint8_t { a, b };
  CodePacker(const Plan& plan, const CodeMatrix& matrix, Side side);
  [[nodiscard]] PackedCode<T> pack(const Unpacked& u) const;
  /// A code of FP16, BF16 or TF32; adds it to its row's summary.
  [[nodiscard]] PackedCode<T> pack_wide(std::uint32_t code, RowSummary& summary) const;
  [[nodiscard]] const Format& code_format() const { return *format_; }
  /// All 256 codes of an 8-bit format.
  [[nodiscard]] std::span<const PackedCode<T>> table() const { return table_; }
  [[nodiscard]] std::span<const std::uint64_t> presence() const { return presence_; }

 private:
  const Format* format_;
  Side side_;
  bool fused_;
  std::vector<PackedCode<T>> table_;
  std::vector<std::uint64_t> presence_;
};

/// Rows [begin, begin + rows) of A, all of K: see StepBlock.
template <typename T>
struct PackedRows {
  PackedRows(const CodePacker<T>& packer, const KernelTable& kernels, const Plan& plan,
             const CodeMatrix& a, std::int64_t begin, std::int64_t count);

  std::int64_t rows;
  std::int64_t steps;
  AlignedArray<T> values;
  AlignedArray<std::uint32_t> exponents;
  AlignedArray<typename PackedTypes<T>::Word> signs;
  std::vector<RowSummary> summaries;

 private:
  void pack_row(const CodePacker<T>& packer, const Plan& plan, const CodeMatrix& a,
                std::int64_t from, std::int64_t r);
  void pack_fused_bytes(const CodePacker<T>& packer, const KernelTable& kernels, const Plan& plan,
                        const CodeMatrix& a, std::int64_t begin) requires std::is_same_v<T, float>;
  void pack_bytes(const CodePacker<T>& packer, const Plan& plan, const CodeMatrix& a,
                  std::int64_t begin);
};

/// A panel of `width` columns (rows of B), refilled for one slab of steps after
/// the other. Columns past the matrix's last are zeros.
template <typename T>
class PackedPanel {
 public:
  PackedPanel(const CodePacker<T>& packer, const KernelTable& kernels, const Plan& plan,
              const CodeMatrix& b, std::int64_t width, std::int64_t slab_steps);
  /// Starts over with the columns from `begin`.
  void start(std::int64_t begin);
  /// Packs steps [first, first + steps) and adds them to the columns' summaries.
  void fill(std::int64_t first, std::int64_t steps);
  /// The panel's arrays at step `offset` of the slab.
  void place(StepBlock<T>& block, std::int64_t offset) const;
  [[nodiscard]] RowSummary summary(std::int64_t column) const;
  [[nodiscard]] std::int64_t columns() const { return columns_; }

 private:
  void fill_step(std::int64_t step, std::int64_t slot);
  void transpose(std::int64_t step);
  void note_presence();
  void decode_codes(std::int64_t slot);

  const CodePacker<T>* packer_;
  const KernelTable* kernels_;
  const CodeMatrix* b_;
  std::int64_t terms_;
  bool fused_;
  bool specials_only_;
  std::int64_t width_;
  std::int64_t begin_ = 0;
  std::int64_t columns_ = 0;
  AlignedArray<T> values_;
  AlignedArray<typename PackedTypes<T>::Exponent> exponents_;
  AlignedArray<typename PackedTypes<T>::Word> signs_;
  std::vector<std::uint8_t> codes_;    ///< one step, [terms][width]
  std::vector<Presence> presences_;    ///< of 8-bit formats
  std::vector<RowSummary> summaries_;  ///< of wider ones
};

}  // namespace fp8lab::gemm_detail
