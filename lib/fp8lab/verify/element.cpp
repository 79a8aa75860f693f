#include "fp8lab/verify/element.hpp"

#include <algorithm>
#include <cmath>

#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/product/variants.hpp"
#include "fp8lab/tensors/codes.hpp"

namespace fp8lab {
namespace {

constexpr std::int64_t kBlock = 128;  // where the product has no promotion interval
constexpr std::size_t kMostTerms = 4;

TermReport term_at(const GemmProblem& p, std::int64_t row, std::int64_t column, std::int64_t k) {
  TermReport term{k, code_at(p.a, row, k), code_at(p.b, column, k), 0.0};
  term.product = decode(format(p.a.format), term.a_code) * decode(format(p.b.format), term.b_code);
  return term;
}

void find_block(const Product& product, ElementReport& element) {
  const GemmProblem& p = product.problem;
  const Format& f = format(product.output.format);
  const double missing = decode(f, element.mismatch.expected) - decode(f, element.mismatch.got);
  const ScaleLookup scale_a(p.scale_a, p.a);
  const ScaleLookup scale_b(p.scale_b, p.b);
  const std::int64_t block = p.promotion_interval > 0 ? p.promotion_interval : kBlock;
  double nearest = INFINITY;
  for (std::int64_t begin = 0; begin < p.a.k; begin += block) {
    const std::int64_t end = std::min(begin + block, p.a.k);
    double sum = 0.0;
    for (std::int64_t k = begin; k < end; ++k)
      sum += term_at(p, element.row, element.column, k).product *
             static_cast<double>(scale_a.at(element.row, k)) *
             static_cast<double>(scale_b.at(element.column, k));
    if (begin != 0 && !(std::abs(sum - missing) < nearest)) continue;
    nearest = std::abs(sum - missing);
    element.k_begin = begin;
    element.k_end = end;
    element.k_block_sum = sum;
  }
}

void find_terms(const Product& product, ElementReport& element) {
  std::vector<TermReport> terms;
  for (std::int64_t k = element.k_begin; k < element.k_end; ++k)
    terms.push_back(term_at(product.problem, element.row, element.column, k));
  const std::size_t kept = std::min(kMostTerms, terms.size());
  std::partial_sort(terms.begin(), terms.begin() + static_cast<std::ptrdiff_t>(kept), terms.end(),
                    [](const TermReport& x, const TermReport& y) {
                      const double a = std::abs(x.product);
                      const double b = std::abs(y.product);
                      return a != b ? a > b : x.k < y.k;
                    });
  terms.resize(kept);
  element.terms = std::move(terms);
}

void ask_models(const Product& product, ElementReport& element) {
  const Product one = take(product, {{element.row}, {element.column}});
  for (const InstructionModel& model : instruction_models()) {
    const bool promotes = product.problem.promotion_interval % model.accumulator.terms == 0;
    if (!promotes || !stands_beside(model, product)) continue;
    const std::vector<std::byte> code = golden_output(with_accumulator(one, model.accumulator), 1);
    element.models.push_back({model.name, code_at(product.output.format, code, 0)});
  }
}

}  // namespace

void explain_element(const Product& product, ElementReport& element) {
  element.budget = error_budget(product, element.row, element.column);
  // Behind an epilogue a difference of outputs says nothing about sums.
  if (product.epilogue.empty()) {
    find_block(product, element);
    find_terms(product, element);
  }
  ask_models(product, element);
}

}  // namespace fp8lab
