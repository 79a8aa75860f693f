#include "fp8lab/vectors/reduce.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "fp8lab/core/error.hpp"

namespace fp8lab {
namespace {

class Reducer {
 public:
  Reducer(VectorCase start, const Format& a, const Format& b, const FailurePredicate& fails,
          std::size_t budget, std::optional<ScaleFormat> scales)
      : best_(std::move(start)), a_(a), b_(b), scales_(scales), fails_(fails), budget_(budget) {
    require(keep(best_), "failing", "a case for which the predicate holds", "one that passes");
  }

  ReducedCase run() {
    bool changed = true;
    while (changed && tried_ < budget_) {
      changed = drop_runs();
      changed |= simplify_c();
      if (scales_) {
        changed |= simplify_scales(&VectorCase::scales_a);
        changed |= simplify_scales(&VectorCase::scales_b);
      }
      for (std::size_t i = 0; i < best_.a.size(); ++i) {
        if (best_.a[i] == 0 && best_.b[i] == 0) continue;
        changed |= simplify_sign(i);
        changed |= simplify_code(best_.a, i, a_);
        changed |= simplify_code(best_.b, i, b_);
      }
    }
    return {std::move(best_), tried_};
  }

 private:
  bool keep(const VectorCase& candidate) {
    if (tried_ >= budget_) return false;
    ++tried_;
    return fails_(candidate);
  }

  /// Applies `change` to the best case and keeps it if the case still fails.
  template <typename Change>
  bool attempt(Change change) {
    VectorCase candidate = best_;
    change(candidate);
    if (candidate.a == best_.a && candidate.b == best_.b && candidate.c == best_.c &&
        candidate.scales_a == best_.scales_a && candidate.scales_b == best_.scales_b)
      return false;
    if (!keep(candidate)) return false;
    best_ = std::move(candidate);
    return true;
  }

  bool drop_runs() {
    bool changed = false;
    const std::size_t terms = best_.a.size();
    for (std::size_t run = std::bit_floor(terms); run > 0; run /= 2)
      for (std::size_t begin = 0; begin < terms; begin += run)
        changed |= attempt([&](VectorCase& one) {
          for (std::size_t i = begin; i < std::min(begin + run, terms); ++i)
            one.a[i] = one.b[i] = 0;
        });
    return changed;
  }

  bool simplify_c() {
    bool changed = attempt([](VectorCase& one) { one.c = 0; });
    changed |= attempt([](VectorCase& one) { one.c &= 0x7fffffffu; });
    for (int bit = 0; bit < 23; ++bit)
      changed |= attempt([bit](VectorCase& one) { one.c &= ~(std::uint32_t{1} << bit); });
    return changed;
  }

  /// A pair of signs says no more than one: both positive, or b positive.
  bool simplify_sign(std::size_t i) {
    const auto both = [&](VectorCase& one) {
      one.a[i] &= ~a_.sign_mask();
      one.b[i] &= ~b_.sign_mask();
    };
    const auto only_a = [&](VectorCase& one) {
      if ((one.b[i] & b_.sign_mask()) == 0) return;
      one.b[i] ^= b_.sign_mask();
      one.a[i] ^= a_.sign_mask();
    };
    return attempt(both) || attempt(only_a);
  }

  bool simplify_code(std::vector<std::uint32_t>& codes, std::size_t i, const Format& f) {
    const bool is_a = &codes == &best_.a;
    return simplify_magnitude(
        f, [is_a, i](VectorCase& one) -> std::uint32_t& { return (is_a ? one.a : one.b)[i]; });
  }

  bool simplify_scales(std::vector<std::uint8_t> VectorCase::*scales) {
    const Format& f = magnitude_format(*scales_);
    bool changed = false;
    for (std::size_t i = 0; i < (best_.*scales).size(); ++i) {
      const auto code = [scales, i](VectorCase& one) -> std::uint8_t& { return (one.*scales)[i]; };
      changed |= attempt([&](VectorCase& one) {
        code(one) = static_cast<std::uint8_t>(code(one) & f.magnitude_mask());
      });
      changed |= simplify_magnitude(f, code);
    }
    return changed;
  }

  /// Toward 1.0: at once, or by one mantissa bit and one binade. `code` finds the code in a case.
  template <typename Code>
  bool simplify_magnitude(const Format& f, const Code& code) {
    using Word = std::remove_reference_t<decltype(code(best_))>;
    const std::uint32_t one_point_zero = static_cast<std::uint32_t>(f.bias) << f.mantissa_bits;
    const std::uint32_t current = code(best_);
    const std::uint32_t sign = current & ~f.magnitude_mask();
    const std::uint32_t magnitude = current & f.magnitude_mask();
    if (magnitude == one_point_zero) return false;
    const auto become = [&](std::uint32_t next) {
      return attempt([&](VectorCase& one) { code(one) = static_cast<Word>(next); });
    };
    bool changed = become(sign | one_point_zero);
    for (int bit = 0; !changed && bit < f.mantissa_bits; ++bit)
      changed = become(code(best_) & ~(std::uint32_t{1} << bit));
    const std::uint32_t binade = std::uint32_t{1} << f.mantissa_bits;
    if (magnitude > one_point_zero + binade)
      changed |= become(code(best_) - binade);
    else if (magnitude >= binade && magnitude < one_point_zero)
      changed |= become(code(best_) + binade);
    return changed;
  }

  VectorCase best_;
  const Format& a_;
  const Format& b_;
  std::optional<ScaleFormat> scales_;
  const FailurePredicate& fails_;
  std::size_t budget_;
  std::size_t tried_ = 0;
};

}  // namespace

ReducedCase reduce_case(const VectorCase& failing, FormatId a_format, FormatId b_format,
                        const FailurePredicate& fails, std::size_t budget,
                        std::optional<ScaleFormat> scales) {
  return Reducer(failing, format(a_format), format(b_format), fails, budget, scales).run();
}

std::size_t live_terms(const VectorCase& one) {
  std::size_t live = 0;
  for (std::size_t i = 0; i < one.a.size(); ++i)
    if (one.a[i] != 0 || one.b[i] != 0) ++live;
  return live;
}

}  // namespace fp8lab
