// Prints a digest of what the library computes, section by section. Compiled for this machine and
// for WebAssembly, the two must print the same (same_bits.py).
//
//   same_bits              a line for each section: name, elements, digest
//   same_bits --dump NAME  a line for each element of the section: inputs, results

#include "explorer/same_bits.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/cast/encode.hpp"
#include "fp8lab/gemm/gemm.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/scaling/presets.hpp"
#include "fp8lab/scaling/statistics.hpp"

namespace fp8lab::explorer {
namespace {

constexpr std::uint64_t kSeed = 20;

RandomStream stream(std::string_view name) { return {kSeed, name}; }

/// Random bits: every exponent, NaN and infinities among them.
float any_float(const RandomStream& random, std::uint64_t i) {
  return std::bit_cast<float>(random.bits32(i));
}

std::uint64_t packed(const CastResult& r) {
  const std::uint64_t flags = (r.inexact ? 1u : 0u) | (r.tie ? 2u : 0u) | (r.overflowed ? 4u : 0u) |
                              (r.underflowed ? 8u : 0u) | (r.nan ? 16u : 0u);
  return flags << 32 | r.code;
}

/// Binary32 numbers on which casts into `f` are hardest: around the midpoints of its codes.
std::vector<float> midpoints(const Format& f) {
  std::vector<float> x;
  if (f.code_bits() > 16) return x;
  for (std::uint32_t code = 0; code < f.max_finite_code(); ++code) {
    const auto middle = static_cast<float>(0.5 * (decode(f, code) + decode(f, code + 1)));
    for (const float at :
         {std::nextafter(middle, 0.0F), middle, std::nextafter(middle, INFINITY)}) {
      x.push_back(at);
      x.push_back(-at);
    }
  }
  return x;
}

void casts(Report& report) {
  const RandomStream random = stream("casts");
  for (const Format& f : kFormats) {
    const std::vector<float> middles = midpoints(f);
    const auto cast_all = [&](Sink& sink, const CastPolicy& policy) {
      const auto one = [&](float x, std::uint64_t i) {
        sink.add({bits(x)}, {packed(cast(f, policy, x, random.bits32(i)))});
      };
      for (std::uint32_t code = 0; code < 0x10000; ++code)
        one(std::bit_cast<float>(code << 16), code);
      for (std::uint64_t i = 0; i < 30000; ++i) one(any_float(random, i), i);
      for (std::size_t i = 0; i < middles.size(); ++i) one(middles[i], i);
    };
    for (const CastProfile& profile : kCastProfiles)
      report.section("cast/" + std::string(f.name) + "/" + std::string(profile.name),
                     [&](Sink& sink) { cast_all(sink, profile.policy); });
    for (int mode = 0; mode <= static_cast<int>(RoundingMode::stochastic); ++mode) {
      const CastPolicy policy{.rounding = static_cast<RoundingMode>(mode)};
      report.section("cast/" + std::string(f.name) + "/" + std::string(to_string(policy.rounding)),
                     [&](Sink& sink) { cast_all(sink, policy); });
    }
  }
}

/// Casts of arrays: kernels of the processor's vectors against the scalar ones of WebAssembly.
void arrays(Report& report) {
  const RandomStream random = stream("arrays");
  std::vector<float> x(20000);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = any_float(random, i);
  for (const FormatId id : {FormatId::e4m3fn, FormatId::e5m2, FormatId::e4m3fnuz, FormatId::e2m1})
    for (const float scale : {1.0F, 3.7e-5F, 1.9e20F})
      report.section(
          "array/" + std::string(format(id).name) + "/" + std::to_string(scale), [&](Sink& sink) {
            std::vector<std::uint8_t> codes(x.size());
            const EncodeStatistics s = encode(
                x, codes, {.format = id, .scale = scale, .statistics = GatherStatistics::all});
            std::vector<float> back(x.size());
            decode(codes, back, {.format = id, .inverse_scale = 0.3F});
            for (std::size_t i = 0; i < x.size(); ++i)
              sink.add({bits(x[i])}, {codes[i], bits(back[i])});
            sink.add({}, {bits(s.amax), s.overflowed, s.underflowed, s.nan});
          });
}

void draws(Report& report) {
  const RandomStream random = stream("draws");
  report.section("draws/integers", [&](Sink& sink) {
    for (std::uint64_t i = 0; i < 50000; ++i)
      sink.add({i}, {random.bits32(i), random.bits64(i << 30), random.below(i, 7919),
                     std::bit_cast<std::uint64_t>(random.uniform(i))});
  });
  // Logarithm and cosine are the C library's: what is promised is the binary32 number.
  report.section("draws/normal", [&](Sink& sink) {
    for (std::uint64_t i = 0; i < 200000; ++i)
      sink.add({i}, {bits(static_cast<float>(random.normal(i)))});
  });
  report.section("draws/student_t", [&](Sink& sink) {
    for (std::uint64_t i = 0; i < 20000; ++i)
      sink.add({i}, {bits(static_cast<float>(random.student_t(i, 3)))});
  });
}

void scales(Report& report) {
  const RandomStream random = stream("scales");
  for (int rule = 0; rule <= static_cast<int>(ScaleRule::deepgemm_first); ++rule)
    for (const FormatId id : {FormatId::e4m3fn, FormatId::e5m2})
      for (const bool power : {false, true}) {
        if (power && !has_power_of_two(static_cast<ScaleRule>(rule))) continue;
        const ScaleOptions options{
            .rule = static_cast<ScaleRule>(rule), .format = id, .power_of_two = power};
        const auto one = [&](Sink& sink, float amax) {
          const TileScale s = tile_scale(options, amax);
          sink.add({bits(amax)}, {bits(s.scale), bits(s.inverse_scale), s.e8m0});
        };
        report.section("scale/" + std::string(to_string(options.rule)) + "/" +
                           std::string(format(id).name) + (power ? "/power_of_two" : ""),
                       [&](Sink& sink) {
                         for (std::uint64_t i = 0; i < 20000; ++i)
                           one(sink, std::fabs(any_float(random, i)));
                         for (std::uint32_t field = 0; field < 256; ++field)
                           for (const std::uint32_t low : {0u, 1u, 0x600000u, 0x7fffffu})
                             one(sink, std::bit_cast<float>(field << 23 | low));
                       });
      }
}

/// N(0, 1) with outliers, a tile of zeros, tiny numbers, an infinity and a NaN.
std::vector<float> difficult_matrix(std::int64_t rows, std::int64_t k) {
  const RandomStream random = stream("matrix");
  std::vector<float> x(static_cast<std::size_t>(rows * k));
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(random.normal(i));
    if (i % 1013 == 5) x[i] *= 1e4F;
    if (i % 17 == 3) x[i] *= 1e-6F;
    if (i / 128 % 40 == 7) x[i] = 0.0F;
  }
  x[300] = INFINITY;
  x[x.size() - 5] = NAN;
  return x;
}

void recipes(Report& report) {
  constexpr std::int64_t kRows = 128;
  constexpr std::int64_t kK = 384;
  const std::vector<float> x = difficult_matrix(kRows, kK);
  for (const Preset& preset : presets()) {
    for (const TensorRole role : {TensorRole::activation, TensorRole::weight}) {
      const Recipe& recipe = preset.recipe(role);
      if (recipe.source != ScaleSource::current) continue;
      report.section(
          "recipe/" + std::string(preset.name) + "/" + std::string(to_string(role)),
          [&](Sink& sink) {
            const QuantizedTensor q = quantize(recipe, {x, kRows, kK}, true);
            const std::vector<float> back = dequantize(q);
            for (std::size_t i = 0; i < x.size(); ++i)
              sink.add({bits(x[i])}, {q.codes[i], bits(back[i]), q.transposed->codes[i]});
            for (std::size_t t = 0; t < q.scales.size(); ++t)
              sink.add({t}, {bits(q.scales[t]), bits(q.inverse_scales[t]),
                             q.e8m0.empty() ? 0u : q.e8m0[t]});
          });
    }
  }
}

enum class Kind : std::uint8_t { random, close, special };
constexpr std::array<std::string_view, 3> kKindNames{"random", "adversarial", "special"};

/// Codes of one operand. `close`: few significands far apart in exponent, and pairs that cancel;
/// `special`: any code, NaN and infinities among them; else finite ones.
std::vector<std::uint32_t> codes(const Format& f, Kind kind, const RandomStream& random,
                                 std::uint64_t from, std::size_t count) {
  std::vector<std::uint32_t> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t draw = random.bits64(from + i);
    const auto sign = static_cast<std::uint32_t>(draw >> 63) != 0 ? f.sign_mask() : 0u;
    const std::uint32_t finite = f.max_finite_code() + 1;
    std::uint32_t magnitude = static_cast<std::uint32_t>(draw % finite);
    if (kind == Kind::special && (draw >> 32 & 3) != 0)
      magnitude = static_cast<std::uint32_t>(draw) & f.magnitude_mask();
    if (kind == Kind::close) {
      magnitude = magnitude >> f.mantissa_bits << f.mantissa_bits |
                  static_cast<std::uint32_t>(draw >> 40 & 1);
      if (i % 3 == 2) {
        result[i] = result[i - 1] ^ f.sign_mask();
        continue;
      }
    }
    result[i] = sign | magnitude;
  }
  return result;
}

void models(Report& report) {
  const RandomStream random = stream("models");
  for (const InstructionModel& model : instruction_models())
    for (const Kind kind : {Kind::random, Kind::close, Kind::special})
      report.section("model/" + std::string(model.name) + "/" +
                         std::string(kKindNames[static_cast<std::size_t>(kind)]),
                     [&](Sink& sink) {
                       for (std::uint64_t i = 0; i < 400; ++i) {
                         const std::size_t k = 1 + random.below(3 * i, 80);
                         const auto a = codes(format(model.a_format), kind, random, i << 20, k);
                         const auto b =
                             codes(format(model.b_format), kind, random, (i << 20) + (1 << 19), k);
                         const float c = i % 3 == 0   ? 0.0F
                                         : i % 3 == 1 ? static_cast<float>(random.normal(i))
                                                      : any_float(random, 3 * i + 1);
                         const float d = dot_product(model.accumulator, model.a_format, a,
                                                     model.b_format, b, c);
                         sink.add({i, k, a[0], b[0], bits(c)}, {std::bit_cast<std::uint32_t>(d)});
                       }
                     });
}

/// Products with promotion and scales: the kernels of this machine against the reference.
void products(Report& report) {
  constexpr std::int64_t kM = 7;
  constexpr std::int64_t kN = 9;
  constexpr std::int64_t kK = 256;
  const RandomStream random = stream("products");
  std::vector<float> scale_a(kM * 2);
  std::vector<float> scale_b(kN * 2);
  for (std::size_t i = 0; i < scale_a.size(); ++i)
    scale_a[i] = static_cast<float>(0.001 + random.uniform(i));
  for (std::size_t i = 0; i < scale_b.size(); ++i)
    scale_b[i] = static_cast<float>(0.001 + random.uniform(1000 + i));
  for (const InstructionModel& model : instruction_models()) {
    if (format(model.a_format).storage_bits != 8 || format(model.b_format).storage_bits != 8)
      continue;
    for (const ScaleOrder order :
         {ScaleOrder::product_then_fma, ScaleOrder::product_then_add, ScaleOrder::a_then_fma_b})
      report.section(
          "product/" + std::string(model.name) + "/" + std::string(to_string(order)),
          [&](Sink& sink) {
            const auto narrow = [](const std::vector<std::uint32_t>& wide) {
              return std::vector<std::uint8_t>(wide.begin(), wide.end());
            };
            const auto a =
                narrow(codes(format(model.a_format), Kind::random, random, 1 << 20, kM * kK));
            const auto b =
                narrow(codes(format(model.b_format), Kind::close, random, 1 << 21, kN * kK));
            GemmProblem p;
            p.model = model.accumulator;
            p.a = CodeMatrix::row_major(model.a_format, a, kM, kK);
            p.b = CodeMatrix::row_major(model.b_format, b, kN, kK);
            p.scale_a = {scale_a, 1, 128};
            p.scale_b = {scale_b, 1, 128};
            p.promotion_interval = 128;
            p.scale_order = order;
            std::vector<float> d(kM * kN);
            gemm(p, d, 1);
            for (std::size_t i = 0; i < d.size(); ++i)
              sink.add({i}, {std::bit_cast<std::uint32_t>(d[i])});
          });
  }
}

/// Fused multiply-adds of the scale orders, which the C library may do in software: random, next
/// to midpoints, and with subnormal results.
void fused(Report& report) {
  const RandomStream random = stream("fused");
  report.section("fma/random", [&](Sink& sink) {
    for (std::uint64_t i = 0; i < 100000; ++i) {
      const float p = any_float(random, 4 * i);
      const float s = any_float(random, 4 * i + 1);
      const float c = any_float(random, 4 * i + 2);
      for (const ScaleOrder order : {ScaleOrder::product_then_fma, ScaleOrder::a_then_fma_b})
        sink.add({bits(p), bits(s), bits(c)}, {bits(scale_into(order, p, s, 1.0F, c))});
    }
  });
  report.section("fma/midpoints", [&](Sink& sink) {
    // c has the unit 2^lowest. The product is half of it times (1 + u)(1 + v) with u and v of a few
    // 2^-23: the half itself, or off by so little that binary64 may not see it.
    const auto near = [](std::int64_t n, int exponent) {
      return static_cast<float>(
          std::ldexp(1.0 + std::ldexp(static_cast<double>(n), -23), exponent));
    };
    for (int lowest = -149; lowest <= 60; lowest += 11)
      for (std::uint64_t i = 0; i < 4000; ++i) {
        const auto significand = 1 + random.below(3 * i, std::uint64_t{1} << (i % 24));
        const auto c = static_cast<float>(std::ldexp(static_cast<double>(significand), lowest));
        const int split = static_cast<int>(random.below(3 * i + 1, 40)) - 20;
        const auto u = static_cast<std::int64_t>(random.below(3 * i + 2, 5)) - 2;
        const float p = near(u, split + lowest / 2);
        const float s = near(i % 2 == 0 ? -u : 1, lowest - 1 - lowest / 2 - split);
        const float d = scale_into(ScaleOrder::product_then_fma, i % 4 < 2 ? p : -p, s, 1.0F, c);
        sink.add({bits(p), bits(s), bits(c)}, {bits(d)});
      }
  });
}

}  // namespace
}  // namespace fp8lab::explorer

int main(int argc, char** argv) {
  using namespace fp8lab::explorer;
  Report report(argc > 2 && std::string_view(argv[1]) == "--dump" ? argv[2] : "");
  casts(report);
  arrays(report);
  draws(report);
  scales(report);
  recipes(report);
  models(report);
  products(report);
  fused(report);
  return 0;
}
