#pragma once
// One element of the reference product, for callers that fall back to it.

#include <span>
#include <string_view>
#include <vector>

#include "fp8lab/gemm/block_scales.hpp"
#include "fp8lab/gemm/gemm.hpp"
#include "fp8lab/gemm/scaling.hpp"

namespace fp8lab::gemm_detail {

inline constexpr std::string_view kMethodOfReference = "reference";

/// The terms [begin, end) of a matrix, as far as it has them.
CodeMatrix part_of(const CodeMatrix& m, std::int64_t begin, std::int64_t end);

/// Row `row` of a matrix, taken apart.
std::vector<Unpacked> unpack_row(const CodeMatrix& matrix, std::int64_t row);

/// D(row, column) of a validated problem, from the unpacked row of A and of B. Scales that the
/// instruction applies are in `unit_scales`, and not in the problem.
float reference_element(const GemmProblem& problem, const ScaleLookup& scale_a,
                        const ScaleLookup& scale_b, std::span<const Unpacked> a,
                        std::span<const Unpacked> b, std::int64_t row, std::int64_t column,
                        const BlockScaleRows& unit_scales = {});

}  // namespace fp8lab::gemm_detail
