// Parts of a state that begin and end anywhere, and amaxes whose scale is beyond binary32.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/random.hpp"
#include "training/optim/expansion.hpp"
#include "training/optim/state_tensor.hpp"

using namespace fp8lab;

TEST_CASE("a part of a state is that of the whole, wherever it begins and ends", "[optim]") {
  const RandomStream random(4, "state");
  std::vector<float> x(401);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(random.normal(i)) * (i / 128 % 2 == 0 ? 1.0F : 0x1p-20F);
  for (const StateScaling scaling :
       {StateScaling::none, StateScaling::tensor, StateScaling::group, StateScaling::expanded}) {
    StateTensor tensor({FormatId::e4m3fn, scaling}, x.size());
    tensor.assign(x, 1);
    std::vector<float> whole(x.size());
    tensor.load(0, whole);
    for (const std::size_t begin : {0U, 1U, 100U, 127U, 128U, 129U, 255U, 300U, 400U})
      for (const std::size_t count : {1U, 28U, 101U, 128U, 130U, 272U}) {
        std::vector<float> part(std::min(count, x.size() - begin));
        tensor.load(begin, part);
        INFO("scaling " << static_cast<int>(scaling) << ", " << part.size() << " from " << begin);
        CHECK(std::equal(part.begin(), part.end(),
                         whole.begin() + static_cast<std::ptrdiff_t>(begin)));
      }
  }
}

TEST_CASE("a state's largest scale is 2^127", "[optim]") {
  // E4M3's smallest is 2^-9.
  for (const StateScaling scaling : {StateScaling::tensor, StateScaling::group}) {
    StateTensor tensor({FormatId::e4m3fn, scaling}, 3);
    const std::vector<float> x{0x1p-136F, -0x1p-136F, 0x1p-138F};
    tensor.assign(x, 1);
    std::vector<float> got(3);
    tensor.load(0, got);
    CHECK(got == std::vector<float>{0x1p-136F, -0x1p-136F, 0.0F});
  }
}

TEST_CASE("zeros keep their signs when a group is expanded, beside any other value", "[optim]") {
  const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
  for (const float other : {1.0F, -1.0F, 0x1p-20F, 448.0F}) {
    const std::vector<float> group{0.0F, other, -0.0F};
    const Expansion e = expansion_of(group, format(FormatId::e4m3fn));
    StateTensor tensor({FormatId::e4m3fn, StateScaling::expanded}, group.size());
    tensor.assign(group, 1);
    std::vector<float> got(group.size());
    tensor.load(0, got);
    INFO("beside " << other);
    for (const std::size_t i : {0U, 2U}) {
      CHECK(bits(e.expand(group[i])) == bits(group[i]));
      CHECK(bits(e.contract(group[i])) == bits(group[i]));
      CHECK(bits(got[i]) == bits(group[i]));
    }
    CHECK(std::signbit(got[1]) == std::signbit(other));
  }
}
