#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "catch.hpp"
#include "experiments/quick_run.hpp"
#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/cast/cast.hpp"
#include "seed-listings/numpy_listing.hpp"
#include "seed-listings/repeats.hpp"
#include "seed-listings/torch_listing.hpp"

using namespace fp8lab;
using namespace fp8lab::experiments;

// The expected figures of the NumPy listing were obtained by running its 100
// lines unchanged under Python 3.11 and NumPy 2.4.6 and printing the variables
// with float.hex(). The two relative errors are the listing's own quotients
// with both norms taken in FP64; its printed ones take the norm of x in FP32,
// which moves the eighth digit.
TEST_CASE("the NumPy listing as written gives Python's figures", "[experiments]") {
  const ListingDraws draws = numpy_draws();
  const ListingCasts casts = cast_as_written(draws);
  CHECK(casts.per_tensor.scale == 0x1.1db6dcp-1);
  CHECK(casts.per_tensor.crushed == 0);
  CHECK(casts.per_tile.crushed == 0);
  CHECK(std::abs(casts.per_tensor.relative_l2 - 0.464178355744868) < 1e-14);
  CHECK(std::abs(casts.per_tile.relative_l2 - 0.4642199960701585) < 1e-14);

  const ListingDot dot = dot_as_written(draws);
  CHECK(std::abs(dot.exact - -0x1.5916ca7f56226p+6) < 1e-12);  // NumPy sums pairwise
  CHECK(dot.naive == -0x1.5ef8p+6);
  CHECK(dot.promoted == -0x1.5efa8p+6);
}

TEST_CASE("the listing's accumulators keep 14 and 23 bits", "[experiments]") {
  // Promotions after 128 products: 512 first, then 2^-12 + 2^-15.
  std::vector<double> a(1024, 0.0);
  std::vector<double> b(1024, 0.0);
  a[0] = 16.0;
  b[0] = 32.0;
  a[128] = 0x1.2p-6;
  b[128] = 0x1p-6;
  const std::vector<double> x(128, 1.0);
  ListingDraws draws;
  draws.x = x;
  draws.a = a;
  draws.b = b;
  const ListingDot dot = dot_as_written(draws);
  CHECK(dot.exact == 512.0 + 0x1p-12 + 0x1p-15);
  CHECK(dot.naive == 512.0);  // its last bit is 2^-5
  // The last bit is 2^-14: 2^-15 is half of it, and the tie goes to even.
  CHECK(dot.promoted == 512.0 + 0x1p-12);
}

TEST_CASE("the listing's quantizer gives Python's values", "[experiments]") {
  const std::vector<std::pair<double, double>> cases{
      {0.0, 0.0},         {1e-30, 0.015625},    {0.001, 0.015625}, {0.0156, 0.015625},
      {0.0166, 0.015625}, {0.017, 0.017578125}, {0.3, 0.3125},     {-0.31, -0.3125},
      {1.0625, 1.0},      {1.1875, 1.125},      {19.0, 18.0},      {21.0, 20.0},
      {239.0, 240.0},     {241.0, 240.0},       {300.0, 240.0},    {-1000.0, -240.0}};
  for (const auto& [x, expected] : cases) {
    INFO("x " << x << ", expected " << expected << ", got " << listing_to_e4m3(x));
    CHECK(listing_to_e4m3(x) == expected);
  }
}

TEST_CASE("the listing's quantizer is the library's seed_toy profile", "[experiments]") {
  const Format& e4m3 = format(FormatId::e4m3fn);
  int differing = 0;
  for (int i = -40000; i <= 40000; ++i) {
    const float x = static_cast<float>(i) * 0x1p-7F + static_cast<float>(i % 7) * 0x1p-16F;
    const double expected = listing_to_e4m3(x);
    const double got = round_trip(e4m3, kSeedToy, x);
    if (expected == got) continue;
    if (++differing <= 20) {
      UNSCOPED_INFO("x " << x << ", expected " << expected << ", got " << got);
    }
  }
  CHECK(differing == 0);
}

TEST_CASE("both casts of the listing have the figures of a loop over their tiles",
          "[experiments]") {
  // The listing's constants: x[63] = 250, tiles of 16, scales of 448.
  const RandomStream random(19, "test/listing");
  for (std::uint64_t repeat = 0; repeat < 6; ++repeat) {
    ListingDraws draws = repeat == 0 ? numpy_draws() : listing_draws(random, repeat);
    // Elements that a scale of 250 / 448 or of their own tile's crushes, and zeros that none does.
    if (repeat > 1) {
      for (std::size_t i = 0; i < 9; ++i)
        draws.x[repeat + 14 * i] = i % 3 == 0 ? 0.0 : 1e-5 * static_cast<double>(i);
      draws.x[5] = 1e-7;
    }
    for (const bool corrected : {false, true}) {
      const ListingCasts casts = corrected ? cast_corrected(draws) : cast_as_written(draws);
      for (const std::size_t tile : {std::size_t{128}, std::size_t{16}}) {
        const ListingCast& cast = tile == 128 ? casts.per_tensor : casts.per_tile;
        double error = 0.0;
        double norm = 0.0;
        double outlier_error = 0.0;
        int crushed = 0;
        for (std::size_t i = 0; i < 128; ++i) {
          const auto value = [&](std::size_t at) {
            return at == 63 ? 250.0F : static_cast<float>(draws.x[at]);
          };
          float amax = 0.0F;
          for (std::size_t at = i / tile * tile; at < (i / tile + 1) * tile; ++at)
            amax = std::max(amax, std::abs(value(at)));
          const float scale = amax / 448.0F;
          const float scaled = value(i) / scale;
          const double back = (corrected ? static_cast<double>(round_trip(format(FormatId::e4m3fn),
                                                                          kNvidiaSatfinite, scaled))
                                         : listing_to_e4m3(scaled)) *
                              static_cast<double>(scale);
          const double x = value(i);
          crushed += back == 0.0 && std::abs(x) > static_cast<double>(1e-6F) ? 1 : 0;
          error += (back - x) * (back - x);
          norm += x * x;
          if (i == 63) outlier_error = (back - x) * (back - x);
        }
        CAPTURE(repeat, corrected, tile);
        CHECK(cast.scale == 250.0F / 448.0F);
        CHECK(cast.crushed == crushed);
        CHECK(std::abs(cast.relative_l2 - std::sqrt(error / norm)) < 1e-13);
        CHECK(std::abs(cast.bulk_relative_l2 -
                       std::sqrt((error - outlier_error) / (norm - 62500.0))) < 1e-9);
      }
    }
  }
}

TEST_CASE("round_to_bits gives Python's values", "[experiments]") {
  CHECK(listing_round_to_bits(1.0625, 3) == 1.0);  // tie to even
  CHECK(listing_round_to_bits(1.1875, 3) == 1.25);
  CHECK(listing_round_to_bits(-1.9999, 3) == -2.0);
  CHECK(listing_round_to_bits(0.3, 14) == 0.3000030517578125);
  CHECK(listing_round_to_bits(-87.7448, 14) == -87.74609375);
  CHECK(listing_round_to_bits(0.0, 14) == 0.0);
}

TEST_CASE("the library's seed.listing model is the listing's loop", "[experiments]") {
  const ListingDraws draws = numpy_draws();
  const Format& f = format(FormatId::e4m3fn);
  std::vector<Unpacked> a;
  std::vector<Unpacked> b;
  for (std::size_t k = 0; k < draws.a.size(); ++k) {
    a.push_back(unpack(f, encode(f, kSeedToy, static_cast<float>(draws.a[k]))));
    b.push_back(unpack(f, encode(f, kSeedToy, static_cast<float>(draws.b[k]))));
  }
  const AccumulatorModel& model = find_instruction_model("seed.listing").accumulator;
  CHECK(static_cast<double>(dot_product(model, a, b)) == dot_as_written(draws).naive);
}

TEST_CASE("the stages of a listing's sum add up to it", "[experiments]") {
  for (const ListingDot& d : {dot_as_written(numpy_draws()), dot_corrected(numpy_draws())}) {
    const double before = d.exact + d.input_error + d.product_error;
    CHECK(std::abs(before + d.naive_accumulation_error - d.naive) < 1e-12);
    CHECK(std::abs(before + d.promoted_accumulation_error - d.promoted) < 1e-12);
  }
  CHECK(dot_corrected(numpy_draws()).product_error == 0.0);
}

TEST_CASE("corrected, the outlier is exact and promotion lowers the accumulation's share",
          "[experiments]") {
  const ListingCasts casts = cast_corrected(numpy_draws());
  CHECK(casts.per_tensor.relative_l2 < 0.002);
  CHECK(casts.per_tensor.bulk_relative_l2 > 0.02);
  CHECK(casts.per_tensor.bulk_relative_l2 < 0.04);
  const ListingDot dot = dot_corrected(numpy_draws());
  CHECK(std::abs(dot.promoted_accumulation_error) < std::abs(dot.naive_accumulation_error));
  CHECK(std::abs(dot.naive_accumulation_error) < 0.1 * std::abs(dot.input_error));
}

TEST_CASE("corrected, sums of 128 products are promoted into binary32 in order", "[experiments]") {
  const RandomStream random(23, "test/promotion");
  const AccumulatorModel& model = find_instruction_model("sm90.wgmma.e4m3").accumulator;
  const Format& e4m3 = format(FormatId::e4m3fn);
  int told_apart = 0;
  for (std::uint64_t repeat = 0; repeat < 12; ++repeat) {
    // Each 128 terms have a size of their own, so that later sums lose bits beside earlier ones.
    ListingDraws draws = listing_draws(random, repeat);
    for (std::size_t k = 0; k < 1024; ++k) {
      const auto size = static_cast<int>(random.bits32(9000 + repeat * 8 + k / 128) % 14);
      draws.a[k] = std::ldexp(draws.a[k], size - 7);
      draws.b[k] = std::ldexp(draws.b[k], size - 6);
    }
    std::vector<Unpacked> a;
    std::vector<Unpacked> b;
    double exact = 0.0;
    double quantized = 0.0;
    for (std::size_t k = 0; k < 1024; ++k) {
      const auto operand = [&](double x, std::vector<Unpacked>& to) {
        const std::uint32_t code = encode(e4m3, kNvidiaSatfinite, static_cast<float>(x));
        to.push_back(unpack(e4m3, code));
        return decode(e4m3, code);
      };
      exact += draws.a[k] * draws.b[k];
      const double of_a = operand(draws.a[k], a);
      quantized += of_a * operand(draws.b[k], b);
    }
    float promoted = 0.0F;
    double in_fp64 = 0.0;
    for (std::size_t k = 0; k < 1024; k += 128) {
      const float sum =
          dot_product(model, std::span(a).subspan(k, 128), std::span(b).subspan(k, 128));
      promoted += sum;
      in_fp64 += sum;
    }
    told_apart += static_cast<double>(promoted) == in_fp64 ? 0 : 1;
    const ListingDot dot = dot_corrected(draws);
    CAPTURE(repeat, in_fp64);
    CHECK(dot.exact == exact);
    CHECK(dot.input_error == quantized - exact);
    CHECK(dot.product_error == 0.0);
    CHECK(dot.naive == static_cast<double>(dot_product(model, a, b)));
    CHECK(dot.promoted == static_cast<double>(promoted));
    const double before = exact + (quantized - exact);
    CHECK(dot.naive_accumulation_error == dot.naive - before);
    CHECK(dot.promoted_accumulation_error == dot.promoted - before);
    CHECK(dot.promoted_percent_off() == 100.0 * std::abs(dot.promoted - exact) / std::abs(exact));
  }
  CHECK(told_apart > 6);
}

TEST_CASE("the PyTorch listing gives about 0.9 % both ways", "[experiments]") {
  for (const TorchListing& run : repeat_torch(1, 3, 200.0F, 1)) {
    INFO("per tile " << run.per_tile << ", per tensor " << run.per_tensor);
    CHECK(run.per_tile > 0.0085);
    CHECK(run.per_tensor < 0.0105);
    CHECK(run.ratio() > 1.0);
    CHECK(run.ratio() < 1.1);
  }
}

TEST_CASE("quantiles interpolate between order statistics", "[experiments]") {
  std::vector<double> values;
  for (int i = 100; i >= 0; --i) values.push_back(i);
  const Quantiles q = quantiles_of(values);
  CHECK(q.low == 5.0);
  CHECK(q.median == 50.0);
  CHECK(q.high == 95.0);
  CHECK(quantiles_of({1.0, 2.0}).median == 1.5);
}

TEST_CASE("seed-listings and walkthrough do not depend on threads", "[experiments]") {
  const std::string name = GENERATE("seed-listings", "walkthrough");
  const std::vector<std::string> small =
      name == "walkthrough" ? std::vector<std::string>{}
                            : std::vector<std::string>{"listing_repeats=30", "torch_repeats=3"};
  const Results one = run_quick(name, 1, small);
  const Results two = run_quick(name, 2, small);
  CHECK(all_csv(one) == all_csv(two));
  CHECK(one.findings == two.findings);
}
