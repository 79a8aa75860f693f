// Codes under another scale: their values times one quotient of the scales.

#include <cstddef>
#include <vector>

#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "training/collectives/scales.hpp"

using namespace fp8lab;

TEST_CASE("codes under another scale are values times the quotient of both", "[collectives]") {
  for (const char* name : {"e4m3fn", "e5m2"}) {
    const WireFormat& wire = find_wire_format(name);
    const Format& f = format(wire.format);
    std::vector<std::byte> all;
    for (std::uint32_t code = 0; code < 256; ++code)
      if (unpack(f, code).is_finite()) all.push_back(static_cast<std::byte>(code));
    for (int from = 1; from < 200; ++from)
      for (const float times : {1.0625F, 0.9375F, 1.125F, 3.0F, 0.01F}) {
        const auto old = static_cast<float>(from);
        const float next = old * times;
        std::vector<std::byte> codes = all;
        (void)requantize(wire, codes, old, next);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < all.size(); ++i) {
          const auto value = static_cast<float>(decode(f, static_cast<std::uint32_t>(all[i])));
          const std::uint32_t code = encode(f, kNvidiaSatfinite, value * (next / old));
          if (code != static_cast<std::uint32_t>(codes[i])) ++wrong;
        }
        INFO(name << " from " << from << " times " << times);
        CHECK(wrong == 0);
      }
  }
}
