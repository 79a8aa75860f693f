#pragma once
// The outputs of some rows in one panel of columns: kernels called step by step,
// with what FP32 arithmetic does between and after them.

#include <cstdint>
#include <span>
#include <vector>

#include "fp8lab/gemm/driver.hpp"
#include "fp8lab/gemm/gemm.hpp"
#include "fp8lab/gemm/kernels.hpp"
#include "fp8lab/gemm/pack.hpp"
#include "fp8lab/gemm/scaling.hpp"

namespace fp8lab::gemm_detail {

/// With up to so many rows, what is decoded of B is read little more often than that.
inline constexpr std::int64_t kFewRows = 16;

/// What is the same for all tiles of one product.
template <typename T>
struct Job {
  Job(const PlannedProduct& product, const MethodOf<T>& by, const Kernels& k);

  const GemmProblem& problem;
  const GemmProblem& specified;  ///< what the reference computes: see PlannedProduct
  const Kernels& kernels;
  const MethodOf<T>& method;
  const PackForm& form;
  const SumForm& sums;
  IntervalSums intervals;
  ScaleLookup a_scales;
  ScaleLookup b_scales;
  std::int64_t width;
  std::int64_t steps;
  std::int64_t slab_steps;     ///< of B that a tile loads at a time
  std::int64_t decoded_steps;  ///< of these that it decodes at a time
  bool scaled;
  bool scaled_in_blocks;
  bool positive_zero;  ///< a sum of -0 becomes +0
  const BlockScaleRows* unit_scales;

  /// Panels are read as often as they are packed, or little more often.
  [[nodiscard]] bool has_few_rows() const { return problem.a.rows <= kFewRows; }
  /// A can be packed for some steps after the others.
  [[nodiscard]] bool packs_by_slabs() const { return !form.along_k() && unit_scales == nullptr; }
  /// C is what FP32 promotion adds to.
  [[nodiscard]] bool promotes_from_c() const {
    return problem.c != nullptr && problem.promotion_interval != 0 && (!scaled || scaled_in_blocks);
  }
  /// C is what the accumulator itself starts from.
  [[nodiscard]] bool starts_from_c() const {
    return problem.c != nullptr && !scaled && problem.promotion_interval == 0;
  }
  /// Steps after which the accumulator is promoted; all of them without promotion.
  [[nodiscard]] std::int64_t interval_steps() const {
    return problem.promotion_interval == 0 ? steps : problem.promotion_interval / form.terms;
  }
};

/// Runs inside a FloatEnvironment to nearest.
template <typename T>
class Tile {
 public:
  explicit Tile(const Job<T>& job);

  void start(std::int64_t row, std::int64_t rows, std::int64_t column);
  /// Fetches steps [first, first + steps) of B, then decodes a part of them.
  void load(std::int64_t first, std::int64_t steps) { panel_.load(first, steps); }
  void decode(std::int64_t first, std::int64_t steps) { panel_.decode(first, steps); }
  /// Adds the steps that were decoded last, for a block's rows, which begin at `row`.
  void accumulate(const PackedRows<T>& block, std::int64_t row, std::int64_t first,
                  std::int64_t steps);
  void finish(std::int64_t rows, std::span<float> d);
  /// Overwrites what the kernel could not take of the rows from `row` on, which hold `summaries`:
  /// NaN rows and columns by NaN, whatever else is out of its range by the reference.
  void repair(std::span<const RowSummary> summaries, std::int64_t row, std::span<float> d);

 private:
  void load_c(std::int64_t rows);
  void run_steps(const PackedRows<T>& block, std::int64_t row, std::int64_t first,
                 std::int64_t steps);
  void promote(std::int64_t row, std::int64_t rows, std::int64_t last_step);
  /// The same by one kernel for all rows, of methods that have it.
  void promote_rows(std::int64_t row, std::int64_t rows, bool stash);
  /// The same with scales along K, of terms from `k` on.
  void promote_scaled_rows(std::int64_t row, std::int64_t rows, std::int64_t k);
  void extract(std::int64_t row, const float* c, float* out) const;
  void load_b_scales(std::int64_t k);
  [[nodiscard]] bool has_final() const {
    return job_.problem.promotion_interval != 0 || job_.sums.adds_c_last;
  }
  [[nodiscard]] float start_value(std::int64_t row, std::int64_t column) const;
  void reset(std::int64_t row, std::int64_t rows);

  [[nodiscard]] T* state(std::int64_t row) { return state_.data() + row * job_.width; }
  [[nodiscard]] const T* state(std::int64_t row) const { return state_.data() + row * job_.width; }
  [[nodiscard]] T* low_state(std::int64_t row) { return low_state_.data() + row * job_.width; }
  [[nodiscard]] const T* low_state(std::int64_t row) const {
    return low_state_.data() + row * job_.width;
  }
  [[nodiscard]] float* final(std::int64_t row) { return final_.data() + row * job_.width; }

  const Job<T>& job_;
  PackedPanel<T> panel_;
  std::int64_t row_ = 0;
  std::int64_t column_ = 0;
  std::int64_t state_size_ = 0;
  AlignedArray<T> state_;
  AlignedArray<T> low_state_;  ///< of exact sums in two words
  AlignedArray<float> final_;  ///< FP32 sums of promoted partials, or C where it starts from C
  AlignedArray<float> first_;  ///< of separate steps, the first ones' sums
  std::vector<float> a_scales_;
  std::vector<float> b_scales_;
  std::vector<float> partial_;
};

}  // namespace fp8lab::gemm_detail
