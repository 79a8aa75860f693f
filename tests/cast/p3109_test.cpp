// Casts into the formats of IEEE P3109, against its projection as the interim report of June 2026
// defines it: decode (4.7.2), round to precision (4.7.4), saturate (4.7.5), encode (4.7.6), on
// values, with none of the library's traits. All numbers here are exact in binary64.

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/random.hpp"

using namespace fp8lab;

namespace {

enum class Saturation { finite, propagate, none };

struct Binary {
  int k, p;
  bool has_sign, extended;

  [[nodiscard]] std::string name() const {
    return fmt::format("binary{}p{}{}{}", k, p, has_sign ? 's' : 'u', extended ? 'e' : 'f');
  }
  [[nodiscard]] int bias() const {
    return static_cast<int>(std::pow(2, has_sign ? k - p - 1 : k - p));
  }

  [[nodiscard]] double decode(std::uint32_t x) const {
    const std::uint32_t all = 1U << k;
    const std::uint32_t half = all / 2;
    if (x == (has_sign ? half : all - 1)) return NAN;
    if (extended && has_sign && x == half - 1) return HUGE_VAL;
    if (extended && has_sign && x == all - 1) return -HUGE_VAL;
    if (extended && !has_sign && x == all - 2) return HUGE_VAL;
    if (has_sign && x > half) return -decode(x - half);
    const std::uint32_t trailing = x % (1U << (p - 1));
    const auto field = static_cast<int>(x / (1U << (p - 1)));
    const double fraction = std::ldexp(trailing, 1 - p);
    return field == 0 ? std::ldexp(fraction, 1 - bias())
                      : std::ldexp(1.0 + fraction, field - bias());
  }
};

/// `bits` random bits r for the stochastic variants.
struct Rounding {
  std::string_view mode;
  int bits = 0;
  std::uint32_t r = 0;
};

bool rounds_away(const Rounding& m, double rest, bool even, bool positive) {
  if (m.mode == "nearest_even") return rest > 0.5 || (rest == 0.5 && !even);
  if (m.mode == "nearest_away") return rest >= 0.5;
  if (m.mode == "upward") return rest > 0.0 && positive;
  if (m.mode == "downward") return rest > 0.0 && !positive;
  if (m.mode == "to_odd") return rest > 0.0 && even;
  const double power = std::ldexp(1.0, m.bits);
  if (m.mode == "stochastic_a") return std::floor(rest * power) + m.r >= power;
  if (m.mode == "stochastic_b")
    return std::floor(rest * 2 * power) + (2.0 * m.r + 1.0) >= 2 * power;
  return false;
}

double round_to_precision(const Binary& f, const Rounding& m, double x) {
  if (x == 0.0 || std::isinf(x)) return x;
  const int q = std::max(std::ilogb(x), 1 - f.bias()) - f.p + 1;
  const double significand = std::ldexp(std::fabs(x), -q);
  const double low = std::floor(significand);
  const bool even = f.p > 1 ? std::fmod(low, 2.0) == 0.0 : low == 0.0 || (q + f.bias()) % 2 == 0;
  const double s = rounds_away(m, significand - low, even, x > 0.0) ? low + 1 : low;
  return std::copysign(std::ldexp(s, q), x);
}

/// NaN where the report has it.
double saturate(Saturation saturation, const Rounding& m, double x, double lo, double hi,
                const Binary& f) {
  if (lo <= x && x <= hi) return x;
  const double clamped = x < lo ? lo : hi;
  if (saturation == Saturation::finite) return clamped;
  if (saturation == Saturation::propagate) {
    if (x == HUGE_VAL && f.extended) return x;
    if (x == -HUGE_VAL && f.has_sign && f.extended) return x;
    return clamped;
  }
  if (x == HUGE_VAL) return f.extended ? x : hi;
  if (x == -HUGE_VAL && f.has_sign && f.extended) return x;
  if (x == -HUGE_VAL) return f.has_sign ? lo : NAN;
  if (m.mode == "to_odd" && !f.has_sign && f.extended && x > hi) return hi;
  if ((m.mode == "toward_zero" || m.mode == "downward") && x > hi) return hi;
  if ((m.mode == "toward_zero" || m.mode == "upward") && x < lo) return lo;
  if (x < lo) return f.has_sign ? (f.extended ? -HUGE_VAL : lo) : NAN;
  return f.extended ? HUGE_VAL : hi;
}

/// Codes by value: the encoding is a bijection.
class Projection {
 public:
  explicit Projection(const Binary& f) : f_(f) {
    for (std::uint32_t code = 0; code < 1U << f.k; ++code) {
      const double value = f.decode(code);
      if (std::isnan(value)) {
        nan_ = code;
        continue;
      }
      codes_[value] = code;
      if (!std::isfinite(value)) continue;
      lo_ = std::min(lo_, value);
      hi_ = std::max(hi_, value);
    }
  }
  [[nodiscard]] std::uint32_t operator()(const Rounding& m, Saturation saturation, double x) const {
    if (std::isnan(x)) return nan_;
    const double s = saturate(saturation, m, round_to_precision(f_, m, x), lo_, hi_, f_);
    return std::isnan(s) ? nan_ : codes_.at(s == 0.0 ? 0.0 : s);
  }
  [[nodiscard]] const std::map<double, std::uint32_t>& codes() const { return codes_; }

 private:
  Binary f_;
  std::map<double, std::uint32_t> codes_;
  std::uint32_t nan_ = 0;
  double lo_ = 0.0;
  double hi_ = 0.0;
};

std::vector<Binary> formats_of(int k) {
  std::vector<Binary> all;
  for (int p = 1; p <= k; ++p)
    for (const bool has_sign : {true, false})
      for (const bool extended : {true, false})
        if (!has_sign || p < k) all.push_back({k, p, has_sign, extended});
  return all;
}

/// Values, midpoints and what is beside them, of both signs; then any binary32 at all.
std::vector<float> inputs(const Projection& projection, std::uint64_t seed) {
  std::vector<float> all{0.0F,      -0.0F,      HUGE_VALF, -HUGE_VALF, NAN,
                         0x1p-149F, -0x1p-149F, 3e38F,     -3e38F};
  const auto add = [&](double value) {
    const auto x = static_cast<float>(value);
    for (const float y : {x, std::nextafter(x, -HUGE_VALF), std::nextafter(x, HUGE_VALF)})
      all.insert(all.end(), {y, -y});
  };
  double before = 0.0;
  for (const auto& [value, code] : projection.codes()) {
    if (!std::isfinite(value)) continue;
    add(value);
    add((value + before) / 2);
    add(value + (value - before) / 2);
    add(2 * value - before);
    before = value;
  }
  const RandomStream draws(seed, "p3109");
  for (std::uint64_t i = 0; i < 200; ++i) all.push_back(std::bit_cast<float>(draws.bits32(i)));
  return all;
}

struct Modes {
  std::string_view ours;  ///< stochastic: A with 32 bits, which the other variants are cases of
  Rounding theirs;
  std::uint32_t random = 0;
};

std::vector<Modes> modes(const RandomStream& draws, std::uint64_t at) {
  std::vector<Modes> all;
  for (const std::string_view mode :
       {"nearest_even", "nearest_away", "toward_zero", "upward", "downward", "to_odd"})
    all.push_back({mode, {mode}, 0});
  const auto bits = static_cast<int>(1 + draws.below(at, 20));
  const std::uint32_t r = draws.bits32(4 * at + 2) >> (32 - bits);
  all.push_back({"stochastic", {"stochastic_a", bits, r}, r << (32 - bits)});
  all.push_back({"stochastic", {"stochastic_b", bits, r}, (2 * r + 1) << (31 - bits)});
  return all;
}

int check(const Binary& binary, int& checked) {
  const Format& f = find_format(binary.name());
  const Projection projection(binary);
  const RandomStream draws(7, f.name);
  const std::pair<Saturation, const char*> saturations[] = {
      {Saturation::finite, "p3109_sat_finite"},
      {Saturation::propagate, "p3109_sat_propagate"},
      {Saturation::none, "p3109_sat_none"}};
  int failures = 0;
  std::uint64_t at = 0;
  for (const float x : inputs(projection, 1))
    for (const Modes& mode : modes(draws, at++))
      for (const auto& [saturation, profile] : saturations) {
        CastPolicy policy = find_cast_profile(profile).policy;
        policy.rounding = find_rounding_mode(mode.ours);
        const std::uint32_t wanted = projection(mode.theirs, saturation, static_cast<double>(x));
        const std::uint32_t got = encode(f, policy, x, mode.random);
        ++checked;
        if (wanted != got && ++failures <= 10)
          UNSCOPED_INFO(fmt::format("{} {:a} {} {}: expected {:x}, got {:x}", f.name, x,
                                    mode.theirs.mode, profile, wanted, got));
      }
  return failures;
}

}  // namespace

TEST_CASE("casts into P3109's formats of 8 bits are its projection", "[cast]") {
  int checked = 0;
  for (const Binary& binary : formats_of(8)) CHECK(check(binary, checked) == 0);
  CHECK(checked > 1'000'000);
}

TEST_CASE("casts into P3109's formats of other widths are its projection", "[cast]") {
  int checked = 0;
  for (const int k : {3, 4, 5, 6, 7}) {
    for (const Binary& binary : formats_of(k)) CHECK(check(binary, checked) == 0);
  }
  for (const Binary& binary : {Binary{9, 3, true, true}, Binary{10, 4, false, true},
                               Binary{11, 5, true, false}, Binary{12, 8, false, false}})
    CHECK(check(binary, checked) == 0);
  CHECK(checked > 500'000);
}
