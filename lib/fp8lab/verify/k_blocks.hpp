#pragma once
// Blocks of K that were left out, counted twice, or read from a stage of the pipeline that
// still held another block.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/product/product.hpp"
#include "fp8lab/product/term_variants.hpp"

namespace fp8lab {

struct BlockMistake {
  std::string name;
  std::string text;
  BlockSources sources;
};

/// The likeliest mistake of each kind for blocks of `block` terms: the one whose FP64 sums are
/// nearest to got - golden over all elements of a (small) product, if they are near at all.
std::vector<BlockMistake> likely_block_mistakes(const Product& product,
                                                std::span<const float> golden,
                                                std::span<const float> got, std::int64_t block);

}  // namespace fp8lab
