#pragma once
// The output of a candidate for how a library call makes it.

#include <cstddef>
#include <vector>

#include "fp8lab/product/calls.hpp"
#include "fp8lab/product/product.hpp"

namespace fp8lab::cuda {

/// The product with a candidate's promotion, parts and scale order.
Product of_candidate(const Product& product, const CallModel& model);

/// The FP32 sums of its parts, before any scale.
std::vector<std::vector<float>> sums_of_parts(const Product& product);

/// The sum of a candidate, from those of its parts, with the roundings before its scales.
std::vector<float> sum_of(const Product& product, std::vector<std::vector<float>> parts,
                          const CallModel& model);

/// Its output, from that sum. Of `product`, scales and output count.
std::vector<std::byte> output_of(const Product& product, std::vector<float> sums,
                                 const CallModel& model);

}  // namespace fp8lab::cuda
