#include "training/optim/state_tensor.hpp"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/scaling/scale_rule.hpp"
#include "training/optim/expansion.hpp"

using namespace fp8lab;

namespace {

std::vector<float> values_of(const StateTensor& tensor) {
  std::vector<float> values(tensor.size());
  tensor.load(0, values);
  return values;
}

StateTensor stored(const StateFormat& format, const std::vector<float>& x) {
  StateTensor tensor(format, x.size());
  tensor.assign(x, 2);
  return tensor;
}

/// Log-uniform magnitudes over `decades` down from `largest`, random signs.
std::vector<float> spread(std::size_t count, double decades, double largest) {
  const RandomStream random(11, "spread");
  std::vector<float> x(count);
  for (std::size_t i = 0; i < count; ++i) {
    const double sign = random.bits32(2 * i) % 2 == 0 ? 1.0 : -1.0;
    x[i] = static_cast<float>(sign * largest * std::pow(10.0, -decades * random.uniform(i)));
  }
  return x;
}

double mean_relative(const std::vector<float>& x, const std::vector<float>& y) {
  double sum = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i)
    sum += std::abs(static_cast<double>(y[i]) / static_cast<double>(x[i]) - 1.0);
  return sum / static_cast<double>(x.size());
}

}  // namespace

TEST_CASE("states without a scale are plain casts", "[optim]") {
  const std::vector<float> x{1.0F, -0.3F, 500.0F, 1e-9F, 70000.0F, -0.0F};
  CHECK(values_of(stored({FormatId::f32}, x)) == x);
  for (const FormatId id : {FormatId::e4m3fn, FormatId::e5m2, FormatId::f16, FormatId::bf16}) {
    const Format& f = format(id);
    const std::vector<float> got = values_of(stored({id}, x));
    for (std::size_t i = 0; i < x.size(); ++i) {
      INFO(f.name << " " << x[i]);
      const CastPolicy policy = f.storage_bits == 8 ? kNvidiaSatfinite : kNvidiaNosat;
      CHECK(static_cast<double>(got[i]) == round_trip(f, policy, x[i]));
    }
  }
  CHECK(std::isinf(values_of(stored({FormatId::f16}, x))[4]));
}

TEST_CASE("a tensor scale is a power of two that uses the format's top", "[optim]") {
  const StateFormat format{FormatId::e4m3fn, StateScaling::tensor};
  // 448 / 3 = 149.3: the scale is 128, and 1.0625 * 128 is a tie that goes to even.
  CHECK(values_of(stored(format, {3.0F, 1.0625F})) == std::vector<float>{3.0F, 1.0F});
  CHECK(values_of(stored(format, {0.0F, 0.0F})) == std::vector<float>{0.0F, 0.0F});
  // Smaller than any scale of binary32 could lift to the top, but not lost.
  const float tiny = 0x1p-130F;
  CHECK(values_of(stored(format, {tiny})) == std::vector<float>{tiny});
}

TEST_CASE("groups have scales of their own, the last one shorter", "[optim]") {
  std::vector<float> x(300, 1.0F);
  x[0] = 1e6F;     // group 0: ones lie below its smallest code
  x[299] = 1e-3F;  // group 2
  const std::vector<float> got =
      values_of(stored({FormatId::e4m3fn, StateScaling::group, ScaleRule::te}, x));
  CHECK(got[1] == 0.0F);
  CHECK(got[128] == 1.0F);
  CHECK(std::abs(got[299] / 1e-3F - 1.0F) < 0.05F);
}

TEST_CASE("replacing values in place reads the old scale until the end", "[optim]") {
  StateTensor tensor =
      stored({FormatId::e4m3fn, StateScaling::tensor}, std::vector<float>(256, 1.0F));
  const std::vector<float> new_values(128, 100.0F);
  tensor.begin_store(100.0F);
  tensor.store(0, new_values);
  std::vector<float> old_values(128);
  tensor.load(128, old_values);
  CHECK(old_values[0] == 1.0F);
  tensor.store(128, new_values);
  tensor.end_store();
  CHECK(values_of(tensor)[200] == 96.0F);  // 100 lies between 96 and 104: a tie, to even
}

TEST_CASE("stores outside a tensor or its groups are refused", "[optim]") {
  StateTensor tensor({FormatId::e4m3fn}, 300);
  std::vector<float> x(64);
  CHECK_THROWS_WITH(tensor.store(64, x), contains("128"));
  CHECK_THROWS_WITH(tensor.store(0, x), contains("[0, 64) of 300"));
  CHECK_THROWS_WITH(tensor.load(250, x), contains("300"));
}

TEST_CASE("expansion fits a group's range into the format's", "[optim]") {
  // One decade, 3.3 octaves, is stretched to 16.6; twelve decades are squeezed.
  const std::vector<float> narrow = spread(128, 1.0, 1.0);
  const std::vector<float> wide = spread(128, 12.0, 1.0);
  const Format& f = format(FormatId::e4m3fn);
  CHECK(expansion_of(narrow, f).exponent > 4.0F);
  CHECK(expansion_of(wide, f).exponent < 0.5F);
  // Seven octaves to log2(448^2 / 2) = 16.61: times 37.98 sixteenths, rounded down.
  CHECK(expansion_of(std::vector<float>{128.0F, 1.0F}, f).exponent == 37.0F / 16.0F);
  for (const auto* x : {&narrow, &wide}) {
    const Expansion e = expansion_of(*x, f);
    CHECK(e.exponent * 16.0F == std::floor(e.exponent * 16.0F));
    float top = 0.0F;
    for (const float value : *x) top = std::max(top, std::abs(e.expand(value)));
    CHECK(std::abs(top / 448.0F - 1.0F) < 1e-5F);
  }
  const StateFormat expanded{FormatId::e4m3fn, StateScaling::expanded};
  const StateFormat grouped{FormatId::e4m3fn, StateScaling::group, ScaleRule::te};
  // An error of 1/16 in x^k is one of 1/(16 k) in x.
  CHECK(mean_relative(narrow, values_of(stored(expanded, narrow))) <
        mean_relative(narrow, values_of(stored(grouped, narrow))) / 3.0);
  CHECK(mean_relative(wide, values_of(stored(expanded, wide))) < 0.1);
  CHECK(mean_relative(wide, values_of(stored(grouped, wide))) > 0.5);  // mostly zeros
}

TEST_CASE("expansion of zeros and of equal magnitudes stays defined", "[optim]") {
  const StateFormat format{FormatId::e4m3fn, StateScaling::expanded};
  for (const float value : values_of(stored(format, std::vector<float>(130, 0.0F))))
    REQUIRE(value == 0.0F);
  for (const float value : values_of(stored(format, std::vector<float>(130, -0.25F))))
    REQUIRE(std::abs(value / -0.25F - 1.0F) < 1e-6F);
  // One zero takes most of the range: the smallest magnitude is then 1e-20, 66.4 octaves below.
  std::vector<float> x(128, 1.0F);
  x[5] = 0.0F;
  CHECK(expansion_of(x, fp8lab::format(FormatId::e4m3fn)).exponent == 0.25F);
  CHECK(values_of(stored(format, x))[5] == 0.0F);
}

TEST_CASE("a state that is stored again is that of a new one, codes and scales", "[optim]") {
  // A range of one kind after each other kind: what was stored before leaves nothing.
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::pair<const char*, float>> kinds{
      {"zeros", 0.0F},      {"negative zeros", -0.0F}, {"top", 448.0F},     {"ones", 1.0F},
      {"small", 0x1p-9F},   {"tiny", 0x1p-140F},       {"large", 0x1p100F}, {"negative", -300.0F},
      {"E5M2's", 57344.0F}, {"FP16's", 65504.0F},      {"NaN", nan}};
  const auto bytes_of_state = [](const StateTensor& tensor) {
    std::vector<NamedTensor> parts;
    tensor.append_to(parts, "s", {static_cast<std::int64_t>(tensor.size())});
    std::vector<std::byte> bytes;
    for (const NamedTensor& part : parts)
      bytes.insert(bytes.end(), part.tensor.bytes.begin(), part.tensor.bytes.end());
    return bytes;
  };
  for (const FormatId id : {FormatId::e4m3fn, FormatId::e5m2, FormatId::f16, FormatId::bf16})
    for (const StateScaling scaling :
         {StateScaling::none, StateScaling::tensor, StateScaling::group, StateScaling::expanded})
      for (const ScaleRule rule : {ScaleRule::ms_amp, ScaleRule::te})
        for (const auto& [first, before] : kinds)
          for (const auto& [second, after] : kinds) {
            const StateFormat state{id, scaling, rule};
            std::vector<float> x(131, before);
            StateTensor again(state, x.size());
            again.assign(x, 1);
            x.assign(x.size(), after);
            x[1] *= 0.5F;
            x[130] *= 0.75F;
            again.assign(x, 1);
            StateTensor once(state, x.size());
            once.assign(x, 1);
            INFO(describe(state) << ", " << to_string(rule) << ": " << second << " after "
                                 << first);
            CHECK(bytes_of_state(again) == bytes_of_state(once));
          }
}

TEST_CASE("the scale of a tensor is that of its rule, and its inverse beside it", "[optim]") {
  for (const FormatId id : {FormatId::e4m3fn, FormatId::e5m2, FormatId::f16})
    for (const ScaleRule rule : {ScaleRule::ms_amp, ScaleRule::te})
      for (const float top : {0.0F, 1.0F, 3.0F, 448.0F, 449.0F, 57344.0F, 65504.0F, 1e-3F, 1e20F}) {
        const std::vector<float> x{top, -top * 0.3F, top * 0.011F};
        TileScale expected = tile_scale({.rule = rule, .format = id}, top);
        const Format& f = format(id);
        const CastPolicy policy = f.storage_bits == 8 ? kNvidiaSatfinite : kNvidiaNosat;
        for (const StateScaling scaling : {StateScaling::tensor, StateScaling::group}) {
          const std::vector<float> got = values_of(stored({id, scaling, rule}, x));
          for (std::size_t i = 0; i < x.size(); ++i) {
            const auto code = static_cast<float>(round_trip(f, policy, x[i] * expected.scale));
            INFO(f.name << " " << to_string(rule) << " " << to_string(scaling) << ": " << x[i]
                        << " of " << top);
            CHECK(got[i] == code * (1.0F / expected.scale));
          }
        }
      }
}
