#pragma once
// What the format-asymmetry experiment measured, and what its figures say.

#include <optional>
#include <string>
#include <vector>

#include "format-asymmetry/format_asymmetry.hpp"
#include "lab/experiment/experiment.hpp"

namespace fp8lab::experiments::asymmetry {

struct Setup {
  LayerShape shape;
  ProductSetup product;
  std::vector<const CastProfile*> policies;
  std::size_t repeats = 0;         ///< of products
  std::size_t tensor_repeats = 0;  ///< of single tensors, which cost little
  std::vector<double> sweep_decades;
  std::vector<double> sweep_row_shares;
};

/// Figures of one thing over the repeats.
struct Figures {
  std::vector<double> zero_share, relative_l2, sqnr_db, median_row, worst_row, bias;
};

struct TensorPoint {
  const Recipe* recipe = nullptr;
  const CastProfile* policy = nullptr;
  std::string tensor;
  FormatId format = FormatId::e4m3fn;
  Figures figures;
};

struct ProductPoint {
  const Recipe* recipe = nullptr;
  Product product = Product::forward;
  bool exact = false;
  Figures figures;
  ProductError first;  ///< of the first repeat, for the picture of its tokens
};

/// Share of a gradient that becomes zero under each recipe, subnormals as `policy` has them.
std::string zero_finding(const Setup& setup, const std::vector<TensorPoint>& tensors,
                         const CastProfile* policy);

/// Errors of the three products under `recipe`.
std::string product_finding(const Setup& setup, const Recipe& recipe,
                            const std::vector<ProductPoint>& products);

/// What E4M3 with one scale does to a gradient, and what E5M2 and fine scales leave of it; none
/// where the run has not all three.
std::optional<Headline> headline_of(const Setup& setup, const std::vector<TensorPoint>& tensors);

}  // namespace fp8lab::experiments::asymmetry
