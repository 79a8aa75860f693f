#pragma once
// How a product was computed: the method, target and threads of that very call.

#include <string_view>
#include <vector>

#include "fp8lab/core/progress.hpp"
#include "fp8lab/core/target.hpp"
#include "fp8lab/product/product.hpp"

namespace fp8lab {

struct Execution {
  /// The method that `run_gemm` reports: for the first rows if a product is computed some rows at a
  /// time, and for the first part of split K; "reference" on the scalar target.
  std::string_view method;
  Target target = Target::scalar;
  int threads = 1;  ///< threads of the product; small products have one
};

/// `compute_finished(product, with_reach, threads)`. Stores in `ran` how the sums were computed.
/// The bits do not depend on it.
Finished compute_finished(const Product& product, bool with_reach, int threads, Execution& ran);

/// The same, with reports of progress: large products are computed some rows at a time.
Finished compute_finished(const Product& product, bool with_reach, int threads, Execution& ran,
                          const Progress& progress);

}  // namespace fp8lab
