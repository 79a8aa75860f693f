#pragma once
// How a product was computed: what `compute` did, not what another call would do.

#include <string_view>
#include <vector>

#include "fp8lab/core/progress.hpp"
#include "fp8lab/core/target.hpp"
#include "fp8lab/product/product.hpp"

namespace fp8lab {

struct Execution {
  /// What `run_gemm` says that it ran: of the first rows, where a product is computed some rows at
  /// a time. Of split K, what `gemm_method` says; "reference" on the scalar target.
  std::string_view method;
  Target target = Target::scalar;
  int threads = 1;  ///< that the product had; small products take one
};

/// `compute_finished(product, with_reach, threads)`, and in `ran` how the sums were computed. The
/// bits do not depend on it.
Finished compute_finished(const Product& product, bool with_reach, int threads, Execution& ran);

/// The same, telling how much of the sums is done: large products are computed some rows at a time.
Finished compute_finished(const Product& product, bool with_reach, int threads, Execution& ran,
                          const Progress& progress);

}  // namespace fp8lab
