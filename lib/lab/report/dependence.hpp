#pragma once
// Whether a measure depends on the axes of a sweep, or only differs from draw to draw.

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

namespace fp8lab {

/// The draws (repeats) of a measure at each point of a grid; a point is one index an axis.
using GridDraws = std::map<std::vector<std::size_t>, std::vector<double>>;

/// Of each axis, whether it matters: whether two points that differ on it alone differ by more than
/// draws do. The noise is the variance within points, pooled over all of them; the limit is
/// Student's t for a chance of 1 % that any of the pairs of the axis is beyond it (Bonferroni), if
/// draws are normal, independent and of one variance (*chosen*). Without noise any difference
/// matters. Nothing where the noise is not known: fewer than 5 degrees of freedom, which is the
/// number of draws less the number of points. Values must be finite.
std::optional<std::vector<bool>> axes_that_matter(const GridDraws& draws, std::size_t axes);

/// The value that Student's t with `degrees_of_freedom` (at least 5) is above with a chance of
/// `tail` (0 to 0.5), by the expansion of Cornish and Fisher: within 3 % for tails down to 1e-4,
/// and too small beyond that for few degrees of freedom.
double student_t(double tail, std::size_t degrees_of_freedom);

}  // namespace fp8lab
