#pragma once
// What a kernel did, measured from its output. An output is a sum of partial products of blocks of
// K; least squares in FP64 give the weight of each, and from these the scales that were used, the
// terms that were summed and the values that codes were read as. A measurement becomes a product,
// which a judge then confirms or not.

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/product/product.hpp"
#include "fp8lab/verify/causes.hpp"
#include "fp8lab/verify/measured_view.hpp"
#include "fp8lab/verify/stand_in.hpp"

namespace fp8lab {

/// A mistake that the measurement suggests.
struct MeasuredMistake {
  std::string name;
  std::string text;
  /// The sampled product with it; the scales need not be values that the instruction takes.
  std::function<std::optional<Product>(const Sample&)> take;
  /// Values that the kernel reads in codes; null where they are read as they are.
  CodeValue a{};
  CodeValue b{};
  /// What was added to the right sums of sampled outputs; null for nothing.
  std::function<std::vector<double>(const Sample&)> added{};
  bool rough = false;  ///< some of its numbers are measured, not read: FP64 sums may judge it
  double error = 0.0;  ///< of these numbers' sums, relative to the magnitudes of their terms
  bool last = false;   ///< says little: only where no other explains the output
  bool alone = false;  ///< fits too much beside a second mistake
};

/// What is measured, and of what.
struct MeasuredPart {
  const Product& product;  ///< the whole one
  std::span<const std::byte> got;
  const Sample& area;    ///< where one mistake is thought to be
  const Sample& sample;  ///< rows and columns that the judge looks at
  int threads = 0;
};

struct Measurement {
  std::vector<MeasuredMistake> mistakes;  ///< the simpler ones first
  std::vector<std::string> lines;         ///< measured figures, for a reader
};

// Products with a gated activation, or with one that hides the sum, are not measured.

/// The scales that the kernel used for each row and tile of one operand.
void measure_scales(const MeasuredPart& part, Measurement& result);
/// The scales of both operands where both are wrong: of other tiles of K, or one of them with a
/// known mistake.
void measure_both_scales(const MeasuredPart& part, Measurement& result);
/// The terms and blocks of K that it summed, and from where it read them.
void measure_terms(const MeasuredPart& part, Measurement& result);
/// The values that it read in the codes of one operand.
void measure_codes(const MeasuredPart& part, Measurement& result);

/// A rule by which positions were exchanged: position i has what belongs to `source(i)`.
struct PositionRule {
  std::string text;  ///< "i - 1", "i xor 8", or the first pairs
  std::function<std::int64_t(std::int64_t i)> source;
};
/// The simplest rule that maps `from` to `to`, positions below `count`; a list of the pairs if
/// there is none, which leaves other positions where they are.
PositionRule rule_of(std::span<const std::int64_t> from, std::span<const std::int64_t> to,
                     std::int64_t count);

/// Of `count` positions the nearest to `own`, but not `own` itself, that `holds`; of two as near,
/// the later one.
template <typename Holds>
std::optional<std::int64_t> nearest_other(std::int64_t own, std::int64_t count,
                                          const Holds& holds) {
  for (std::int64_t by = 1; by < count; ++by)
    for (const std::int64_t at : {own + by, own - by})
      if (at >= 0 && at < count && holds(at)) return at;
  return std::nullopt;
}

}  // namespace fp8lab
