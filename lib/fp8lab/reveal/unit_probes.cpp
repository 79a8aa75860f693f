#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string_view>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/reveal/unit.hpp"

namespace fp8lab {
namespace {

/// A product sign * a_mantissa * b_mantissa * 2^exponent, in a slot of the first step or the
/// second.
struct ProbeTerm {
  int slot = 0;
  int exponent = 0;
  float sign = 1.0F;
  float a_mantissa = 1.0F;
  float b_mantissa = 1.0F;
  bool second = false;
};

class Maker {
 public:
  Maker(const ProbeShape& shape, const SumStructure& structure)
      : shape_(shape),
        powers_(shape.a_format, shape.b_format, 76),
        k_(static_cast<std::size_t>(shape.k)) {
    const std::vector<std::int64_t> chain = structure.chain(shape.k);
    const bool halves =
        structure.step == StepShape::halves_chained || structure.step == StepShape::halves_separate;
    // Steps of one product are taken four at a time, so that probes of three terms fit.
    const auto step = static_cast<std::size_t>(structure.terms == 1 ? 4 : structure.terms);
    const std::size_t steps = chain.size() / step;
    const std::size_t used = std::min<std::size_t>(steps, halves ? 1 : 2);
    places_.assign(chain.begin() + static_cast<std::ptrdiff_t>((steps - used) * step), chain.end());
    for (std::size_t i = 0; i < std::min(places_.size(), std::max<std::size_t>(used, 1) * step);
         ++i) {
      const bool first = halves ? i % 4 < 2 : i < step;
      (first ? first_ : second_).push_back(places_[i]);
    }
  }

  /// Adds the probe if its slots are there and the formats hold its factors.
  void add(const std::vector<ProbeTerm>& products) {
    Probe probe{std::vector<float>(k_), std::vector<float>(k_)};
    for (const ProbeTerm& p : products) {
      const auto& places = p.second ? second_ : first_;
      if (p.slot >= static_cast<int>(places.size())) return;
      if (p.exponent < powers_.smallest() || p.exponent > powers_.largest()) return;
      const auto [a, b] = powers_.factors(p.exponent);
      const float of_a = p.sign * p.a_mantissa * a;
      const float of_b = p.b_mantissa * b;
      if (!holds(shape_.a_format, of_a) || !holds(shape_.b_format, of_b)) return;
      const auto at = static_cast<std::size_t>(places[static_cast<std::size_t>(p.slot)]);
      probe.a[at] = of_a;
      probe.b[at] = of_b;
    }
    probes_.push_back(std::move(probe));
  }

  /// Fraction bits of operands.
  [[nodiscard]] int a_bits() const { return std::min(format(shape_.a_format).mantissa_bits, 10); }
  [[nodiscard]] int b_bits() const { return std::min(format(shape_.b_format).mantissa_bits, 10); }
  [[nodiscard]] int smallest() const { return powers_.smallest(); }
  [[nodiscard]] int smallest_normal() const { return powers_.smallest_normal(); }
  [[nodiscard]] std::size_t count() const { return probes_.size(); }
  [[nodiscard]] std::size_t first_slots() const { return first_.size(); }
  [[nodiscard]] std::size_t second_slots() const { return second_.size(); }
  UnitProbes finish(std::size_t high) { return {std::move(probes_), places_, high}; }

 private:
  static bool holds(FormatId id, float value) {
    const Format& f = format(id);
    return round_trip(f, kNvidiaNosat, value) == static_cast<double>(value);
  }

  ProbeShape shape_;
  PowerProducts powers_;
  std::size_t k_;
  std::vector<std::int64_t> first_;
  std::vector<std::int64_t> second_;
  std::vector<std::int64_t> places_;
  std::vector<Probe> probes_;
};

constexpr std::array<std::array<int, 3>, 2> kSlots{{{0, 1, 2}, {0, 2, 1}}};

/// At a distance f below the large product 2^e: what is kept of terms and sums, and which way.
void add_distance(Maker& make, int e, int f) {
  for (const auto& [x, y, z] : kSlots) {
    // The large ones cancel: bits that aligned terms keep.
    make.add({{x, e}, {y, e, -1}, {z, e - f}});
    make.add({{x, e}, {y, e, -1}, {z, e - f, 1, 1.5F}});
    make.add({{x, e}, {y, e, -1}, {z, e - f, -1, 1.75F}});
    // A product whose significand is above 2.
    make.add({{x, e - 1, 1, 1.5F, 1.5F}, {y, e - 1, -1, 1.5F, 1.5F}, {z, e - f}});
    // Two bits and a third one below them: bits that a sum keeps, and ties.
    make.add({{x, e}, {y, e - f}});
    make.add({{x, e}, {y, e - f}, {z, e - f - 1}});
    make.add({{x, e}, {y, e - f}, {z, e - f - 3}});
    make.add({{x, e, -1}, {y, e - f, -1}, {z, e - f - 1, -1}});
    make.add({{x, e}, {y, e - f, -1}});
    make.add({{x, e}, {y, e - f, -1}, {z, e - f - 2, -1}});
  }
  make.add({{0, e}, {1, e, -1}, {2, e - f, 1, 1.5F}, {3, e - f, 1, 1.5F}});
  make.add({{0, e}, {1, e}, {2, e - f}});
  make.add({{0, e}, {1, e}, {2, e - f, 1, 1.5F}});
  make.add({{0, e}, {1, e}, {2, e}, {3, e - f, 1, 1.75F}});
  // Sums four times as large as their terms, which lose two bits more.
  make.add({{0, e}, {1, e}, {2, e}, {3, e}, {4, e - f}});
  make.add({{0, e}, {1, e}, {2, e}, {3, e}, {4, e - f, 1, 1.5F}});
  make.add({{0, e, -1}, {1, e, -1}, {2, e, -1}, {3, e, -1}, {4, e - f, -1, 1.5F}});
  make.add({{0, e - 1, 1, 1.75F, 1.75F},
            {1, e - 1, 1, 1.75F, 1.75F},
            {2, e - 1, 1, 1.75F, 1.75F},
            {3, e - f, 1, 1.5F}});
  // A large sum so far, and products whose own sum ends far below: bits of a second stage.
  if (f > 25)
    for (const int slots : {1, 2})
      for (const float sign : {1.0F, -1.0F})
        make.add({{0, e},
                  {0, e - 8, -1, 1, 1, true},
                  {slots, e - 25, 1, 1, 1, true},
                  {2 * slots, e - f, sign, 1, 1, true}});
  // A sum, and then its large part taken away: what the sum so far kept.
  const ProbeTerm taken{0, e, -1, 1, 1, true};
  make.add({{0, e}, {1, e - f}, taken});
  make.add({{0, e}, {1, e - f, 1, 1.75F}, taken});
  make.add({{0, e}, {1, e - f, -1, 1.25F}, taken});
  make.add({{0, e}, {1, e - f}, {2, e - f - 1}, taken});
  // A small sum so far beside large products: c's place in the alignment.
  make.add({{0, e - f, 1, 1.5F}, {0, e, 1, 1, 1, true}, {1, e, -1, 1, 1, true}});
  make.add({{0, e - f, -1, 1.75F}, {0, e, 1, 1, 1, true}, {1, e, -1, 1, 1, true}});
  make.add({{0, e - f, 1, 1.75F}, {0, e, 1, 1, 1, true}});
  make.add({{0, e - f, -1, 1.25F}, {0, e, 1, 1, 1, true}});
}

/// All terms below 2^e: where the alignment ends.
void add_low(Maker& make, int e, bool closely) {
  make.add({{0, e, 1, 1.75F, 1.5F}});
  make.add({{0, e, -1, 1.25F, 1.75F}});
  make.add({{0, e}, {0, e, 1, 1.5F, 1, true}});
  make.add({{0, e, 1, 1.75F}, {0, e - 1, -1, 1.5F, 1, true}});
  for (int f = 1; f <= 27; f += closely ? 1 : 5) {
    make.add({{0, e}, {1, e - f, -1}});
    make.add({{0, e}, {1, e, -1}, {2, e - f, 1, 1.5F}});
    make.add({{0, e, 1, 1.25F}, {1, e - f}, {2, e - f - 1, 1, 1.75F}});
  }
}

/// Draws for the products of one probe.
class Draws {
 public:
  Draws(std::uint64_t seed, std::string_view stream) : random_(seed, stream) {}

  int below(int bound) {
    return static_cast<int>(random_.below(draw_++, static_cast<std::uint64_t>(bound)));
  }
  float sign() { return below(2) == 0 ? 1.0F : -1.0F; }
  /// A significand of so many fraction bits, from `least` (in units of its last bit) above 1.
  float mantissa(int bits, int least = 0) {
    const int steps = 1 << bits;
    return 1.0F + static_cast<float>(least + below(steps - least)) / static_cast<float>(steps);
  }

 private:
  RandomStream random_;
  std::uint64_t draw_ = 0;
};

/// Products of either sign in up to 16 places of one step or of two.
void add_random(Maker& make, int lowest, int highest, std::uint64_t seed, int count) {
  Draws draws(seed, "unit probes");
  for (int i = 0; i < count; ++i) {
    std::vector<ProbeTerm> products;
    const int span = 1 + draws.below(highest - lowest + 1);
    const int top = highest - draws.below(highest - lowest - span + 2);
    const auto term = [&](std::size_t slot, bool second) {
      ProbeTerm one{static_cast<int>(slot), std::max(lowest, top - draws.below(span))};
      one.sign = draws.sign();
      one.a_mantissa = draws.mantissa(make.a_bits());
      one.b_mantissa = draws.mantissa(make.b_bits());
      one.second = second;
      products.push_back(one);
    };
    for (std::size_t slot = 0; slot < std::min<std::size_t>(make.first_slots(), 16); ++slot)
      term(slot, false);
    if (i % 2 == 1)
      for (std::size_t slot = 0; slot < std::min<std::size_t>(make.second_slots(), 16); ++slot)
        term(slot, true);
    make.add(products);
  }
}

/// Large products of one sign in all places of the last step: a sum as far above its terms as the
/// unit can have, whose bits no sum of few terms shows. A step behind it would align them away.
void add_full(Maker& make, int lowest, int highest, std::uint64_t seed, int count) {
  Draws draws(seed, "unit probes, full steps");
  const bool second = make.second_slots() > 0;
  const std::size_t places = second ? make.second_slots() : make.first_slots();
  const int slots = static_cast<int>(places);
  const int rise = static_cast<int>(std::bit_width(places)) + 2;
  const int top = std::max(lowest, highest - rise);
  for (int i = 0; i < count; ++i) {
    std::vector<ProbeTerm> products;
    const float sign = draws.sign();
    const int small = draws.below(4);  // one in so many is far below the others
    for (int slot = 0; slot < slots; ++slot) {
      const bool low = small > 0 && draws.below(4 * small) == 0;
      ProbeTerm one{slot, std::max(lowest, low ? top - draws.below(16) : top)};
      one.sign = sign;
      one.a_mantissa = draws.mantissa(make.a_bits(), (1 << make.a_bits()) / 2);
      one.b_mantissa = draws.mantissa(make.b_bits(), (1 << make.b_bits()) / 2);
      one.second = second;
      products.push_back(one);
    }
    make.add(products);
  }
}

}  // namespace

UnitProbes unit_probes(const ProbeShape& shape, const SumStructure& structure,
                       const OrderScale& scale, std::uint64_t seed) {
  Maker make(shape, structure);
  const int e = scale.big - 1;
  const int lowest = make.smallest();
  for (int f = 0; f <= std::min(e - lowest, 66); ++f) add_distance(make, e, f);
  const std::size_t high = make.count();
  for (int low = e; low >= std::max(lowest, e - 60); --low) add_low(make, low, false);
  // Below 2^-100, where sums end: only wide formats get there.
  for (int low = -120; low >= lowest; --low) add_low(make, low, low >= -150);
  // A subnormal FP16 sum so far beside terms below its last bit.
  for (int low = -30; low >= -48; --low)
    make.add({{0, -24}, {0, -25, 1, 1, 1, true}, {1, low, 1, 1, 1, true}});
  constexpr int kDraws = 200;
  const int normal = std::max(make.smallest_normal() + 1, -60);
  add_random(make, normal, e - 1, seed, kDraws);
  add_full(make, normal, e - 1, seed, kDraws);
  return make.finish(high);
}

}  // namespace fp8lab
