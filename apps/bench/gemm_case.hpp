#pragma once
// What `bench gemm` times: products of one model, one after the other, with
// their data, their check against the reference and the yardsticks beside them.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/core/target.hpp"
#include "fp8lab/gemm/gemm.hpp"
#include "fp8lab/gemm/run.hpp"

namespace fp8lab::cli {

struct Shape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;

  [[nodiscard]] double products() const {
    return static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};

/// "MxNxK", or several joined by "+". Throws `Error`.
std::vector<Shape> parse_shapes(const std::string& text);

/// One product with random operands, and random scales where the instruction applies them.
class GemmCase {
 public:
  /// `data`: "normal" (N(0, 16^2)), "uniform" (U[0, 1)), or "wide" (all finite codes).
  GemmCase(const InstructionModel& model, const Shape& shape, std::string_view data,
           std::int64_t promotion_interval);

  /// Returns the method that ran.
  std::string_view run(int threads) { return run_gemm(problem_, d_, current_target(), threads); }
  /// Outputs that differ from the reference, among the first and last rows and
  /// columns and some between.
  [[nodiscard]] std::int64_t mismatches() const;
  /// Products a second of the scalar reference, on some rows and columns of the
  /// operands, one thread.
  [[nodiscard]] double reference_rate() const;

 private:
  std::vector<unsigned char> a_;
  std::vector<unsigned char> b_;
  std::vector<float> a_scales_;  ///< of a block-scaled instruction
  std::vector<float> b_scales_;
  std::vector<float> d_;
  GemmProblem problem_;
};

/// Eigen's FP32 product of the same shape.
class EigenCase {
 public:
  explicit EigenCase(const Shape& shape);
  void run(int threads);
  /// Throws `Error` if the product that ran was wrong.
  void check() const;

 private:
  Shape shape_;
  std::vector<float> a_;
  std::vector<float> b_;
  std::vector<float> d_;
};

}  // namespace fp8lab::cli
