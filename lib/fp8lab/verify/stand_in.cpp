#include "fp8lab/verify/stand_in.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "fp8lab/gemm/scaling.hpp"

namespace fp8lab {
namespace {

std::vector<double> values_of(const CodeMatrix& m, const CodeValue& table) {
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(m.rows * m.k));
  for (std::int64_t row = 0; row < m.rows; ++row)
    for (std::int64_t k = 0; k < m.k; ++k) {
      const std::uint32_t code = code_at(m, row, k);
      values.push_back(table ? table(code) : decode(format(m.format), code));
    }
  return values;
}

}  // namespace

std::int64_t common_scale_block(const GemmProblem& p) {
  const std::int64_t block = std::gcd(tile_along_k(p.scale_a, p.a), tile_along_k(p.scale_b, p.b));
  return block > 0 ? block : std::max<std::int64_t>(p.a.k, 1);
}

StandIn stand_in(const Product& product, const CodeValue& a, const CodeValue& b) {
  const GemmProblem& p = product.problem;
  const std::vector<double> x = values_of(p.a, a);
  const std::vector<double> y = values_of(p.b, b);
  const ScaleLookup scale_a(p.scale_a, p.a);
  const ScaleLookup scale_b(p.scale_b, p.b);
  const std::int64_t block = common_scale_block(p);
  StandIn result;
  for (std::int64_t i = 0; i < p.a.rows; ++i)
    for (std::int64_t j = 0; j < p.b.rows; ++j) {
      const double c = p.c == nullptr ? 0.0 : static_cast<double>(p.c[i * p.b.rows + j]);
      double value = c;
      double magnitude = std::abs(c);
      for (std::int64_t k = 0; k < p.a.k; k += block) {
        double sum = 0.0;
        double of_terms = 0.0;
        for (std::int64_t at = k; at < std::min(k + block, p.a.k); ++at) {
          const double term = x[static_cast<std::size_t>(i * p.a.k + at)] *
                              y[static_cast<std::size_t>(j * p.a.k + at)];
          sum += term;
          of_terms += std::abs(term);
        }
        const double scale =
            static_cast<double>(scale_a.at(i, k)) * static_cast<double>(scale_b.at(j, k));
        value += sum * scale;
        magnitude += of_terms * std::abs(scale);
      }
      result.values.push_back(value);
      result.magnitudes.push_back(magnitude);
    }
  return result;
}

}  // namespace fp8lab
