// The parts of a large cast, one a thread.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "catch.hpp"
#include "fp8lab/cast/encode.hpp"
#include "fp8lab/core/target.hpp"

using namespace fp8lab;

TEST_CASE("each thread's part of a cast counts, whatever it holds", "[cast][encode]") {
  // Thread i of four has one kind of value: of some, the other threads see none.
  constexpr std::size_t kQuarter = std::size_t{1} << 18;
  const std::vector<float> kinds{std::numeric_limits<float>::quiet_NaN(), 1e-9F, 1e9F, 0.0F, 1.0F};
  for (std::size_t first = 0; first < kinds.size(); ++first)
    for (const Target target : available_targets()) {
      std::vector<float> in(4 * kQuarter);
      EncodeStatistics expected;
      for (std::size_t part = 0; part < 4; ++part) {
        const std::size_t kind = (first + part) % kinds.size();
        std::fill_n(in.begin() + static_cast<std::ptrdiff_t>(part * kQuarter), kQuarter,
                    kinds[kind]);
        if (kind == 0) expected.nan += kQuarter;
        if (kind == 1) expected.underflowed += kQuarter;
        if (kind == 2) expected.overflowed += kQuarter;
        if (kind != 0) expected.amax = std::max(expected.amax, kinds[kind]);
      }
      std::vector<std::uint8_t> out(in.size());
      for (const int threads : {1, 2, 3, 4}) {
        EncodeOptions options;
        options.statistics = GatherStatistics::all;
        options.target = target;
        options.threads = threads;
        const EncodeStatistics got = encode(in, out, options);
        INFO(to_string(target) << ", first " << kinds[first] << ", threads " << threads);
        CHECK(got.nan == expected.nan);
        CHECK(got.underflowed == expected.underflowed);
        CHECK(got.overflowed == expected.overflowed);
        CHECK(got.amax == expected.amax);
      }
    }
}
