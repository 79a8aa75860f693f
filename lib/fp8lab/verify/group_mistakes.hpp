#pragma once
// The known mistakes of batched and grouped kernels: operands, scales or terms of another group.

#include <cstddef>
#include <vector>

#include "fp8lab/product/grouped_product.hpp"
#include "fp8lab/verify/causes.hpp"

namespace fp8lab {

/// Part number `part` of the product with one mistake each: weights, their codes or scales alone,
/// inputs, scales or bias of the group before or behind it, of the first or the last one; terms
/// that begin or end one scale tile (or one term) too early or too late. Mistakes that the operands
/// have no place for are left out. The products point into `grouped`.
std::vector<WrongProduct> group_mistakes(const GroupedProduct& grouped, std::size_t part);

}  // namespace fp8lab
