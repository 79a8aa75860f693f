#pragma once
// A method: one way to compute products with vector kernels. It owns whether it fits a problem,
// how operands are packed, which outputs its kernels compute, the steps, and how sums become
// binary32. The driver (driver.hpp) owns blocks, threads, promotion and scales, and knows
// no method by name; methods.hpp lists them.

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/gemm/gemm.hpp"
#include "fp8lab/gemm/kernels.hpp"
#include "fp8lab/gemm/pack_form.hpp"

namespace fp8lab::gemm_detail {

struct MethodRequest {
  /// Holds references: the problem outlives the request.
  explicit MethodRequest(const GemmProblem& product);

  const GemmProblem& problem;
  const Format* a;
  const Format* b;
  /// Formats that hold all values of the operands: narrower ones than theirs where these are
  /// copies.
  const Format* a_values;
  const Format* b_values;
  AccumulationKind kind;  ///< of steps whose scales are packed with the operands: fused steps
  bool scaled = false;    ///< such steps

  [[nodiscard]] const AccumulatorModel& model() const { return problem.model; }
  /// Whether fused steps end as kernels can end them: truncated to binary32, or to nearest even of
  /// FP16.
  [[nodiscard]] bool truncates() const;
  [[nodiscard]] bool rounds_to_half() const;
  [[nodiscard]] bool half_output() const { return problem.model.output_format == FormatId::f16; }
  /// Steps of fused arithmetic that kernels have: exponents as stored, signs in one word.
  [[nodiscard]] bool has_fused_steps() const;
  /// For sums that take one product after the other: the widest step of at most so many
  /// terms, whole groups, that promotion never interrupts.
  [[nodiscard]] std::int64_t plain_terms(std::int64_t most = 32, std::int64_t group = 1) const;
};

/// What kernels of fused and of exact steps want to know, biased as binary32 or binary64.
StepRounding step_rounding(const AccumulatorModel& model, bool in_double);

/// The smallest exponent that a c which is not zero brings to an alignment.
int smallest_c_exponent(const AccumulatorModel& model);

/// To how many fraction bits products are rounded; negative where they have no more.
int rounded_product_bits(const MethodRequest& request);

struct Kernels;
template <typename T>
struct PackedRows;
template <typename T>
class PackedPanel;

/// What the driver has to know of a method's sums.
struct SumForm {
  enum class Promotion : std::uint8_t {
    rows,    ///< row by row: each is extracted, and added to the promoted sum
    plain,   ///< one kernel for all rows without scales along K, of plain states
    marked,  ///< the same of states with a mark in their lowest bit
  };
  Promotion promotion = Promotion::rows;
  bool half_c = false;       ///< a C that starts an accumulator is rounded to FP16 first
  bool adds_c_last = false;  ///< C is added where a sum is rounded: no accumulator starts from it
  bool low_states = false;   ///< sums have a second word
  bool marks_overflow = false;       ///< sums that left the kernel's range become NaN
  bool drops_negative_zero = false;  ///< a c of -0 may stay, which kernels make +0
  bool has_own_zeros = false;  ///< sums of zero have the model's sign, which may be that of -0
  /// Plain binary32 arithmetic: whatever c and finite operands are, it is computed as specified;
  /// and infinite operands, too.
  bool takes_everything = false;
  bool takes_infinities = false;
};

class Method;
/// Null where there is no method.
using MethodPtr = std::unique_ptr<const Method>;

class Method {
 public:
  Method() = default;
  virtual ~Method() = default;
  Method(const Method&) = delete;
  Method& operator=(const Method&) = delete;

  /// As the table of the room's README has it; several methods may share one.
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] const PackForm& form() const { return form_; }
  [[nodiscard]] const SumForm& sums() const { return sums_; }

  /// Whether kernels compute every output of a row like `a` with a row like `b`, without NaN and
  /// Inf, that starts from c = 0. `k` is the length of the sum.
  [[nodiscard]] virtual bool takes(const RowSummary& /*a*/, const RowSummary& /*b*/,
                                   std::int64_t /*k*/) const {
    return true;
  }
  /// The same of an accumulator that starts from `c`, where sums are taken.
  [[nodiscard]] bool takes_start(float c, const RowSummary& a, const RowSummary& b) const;

  /// For the request of this method, whose data it takes: another one that takes them, too, and is
  /// faster on `target`; null if there is none.
  [[nodiscard]] virtual MethodPtr for_target(const MethodRequest& /*request*/,
                                             Target /*target*/) const {
    return nullptr;
  }

  /// For the request of this method: another one, for data of which this one does not take all;
  /// null if there is none.
  [[nodiscard]] virtual MethodPtr for_other_data(const MethodRequest& /*request*/) const {
    return nullptr;
  }

 protected:
  /// `takes_start` of a c that is not zero, with its stored exponent: 128 for NaN and Inf, -127 for
  /// subnormals.
  [[nodiscard]] virtual bool takes_c(float /*c*/, int exponent, const RowSummary& /*a*/,
                                     const RowSummary& /*b*/) const {
    return exponent < 120;
  }

  PackForm form_;
  SumForm sums_;
};

/// Steps [first, first + count) of packed rows and a packed panel, and what they are added to.
template <typename T>
struct TileSteps {
  const Kernels& kernels;
  const PackedRows<T>& rows;
  PackedPanel<T>& panel;
  std::int64_t first = 0;
  std::int64_t count = 0;
  T* state = nullptr;  ///< [rows][width]
  T* low_state = nullptr;
};

/// One row of a panel's sums, `width` of them. `c` is what sums that add it last add.
template <typename T>
struct RowOfSums {
  const T* state = nullptr;
  const T* low_state = nullptr;
  const float* c = nullptr;
  float* out = nullptr;
  std::int64_t width = 0;
};

/// Sums in binary32 as they are; a sum of zero is +0.
inline void copy_sums(const RowOfSums<float>& row) {
  for (std::int64_t j = 0; j < row.width; ++j) row.out[j] = row.state[j] + 0.0F;
}

/// A method that computes in binary32 or in binary64. All members run under rounding to nearest,
/// which they leave in place.
template <typename T>
class MethodOf : public Method {
 public:
  virtual void run(const TileSteps<T>& steps) const = 0;
  /// A row of states, zeros before, that starts from `c`; states of a c that is not taken are
  /// anything finite.
  virtual void start(std::span<const float> c, T* state) const;
  /// Sums as canonical binary32 numbers.
  virtual void extract(const Kernels& kernels, const RowOfSums<T>& row) const;

 protected:
  /// The steps as kernels of panels take them, with the arrays of this method's form.
  [[nodiscard]] StepBlock<T> block_of(const TileSteps<T>& steps) const;
  /// The steps as kernels along k take them, with the packed rows `a` and the layout of B.
  template <typename Block, typename Rows, typename Layout>
  [[nodiscard]] Block lines_of(const TileSteps<T>& steps, const Rows& a,
                               const Layout& layout) const {
    Block block;
    block.rows = steps.rows.rows;
    block.steps = steps.count;
    block.terms = form_.terms;
    block.a = a.from(steps.first);
    block.layout = layout;
    steps.panel.place(block, steps.first);
    block.state = steps.state;
    return block;
  }
};

}  // namespace fp8lab::gemm_detail
