#include <cstdint>
#include <iostream>
#include <span>

#include "fp8lab/verify/verify.hpp"

/// Whether a kernel's D [m, n] is what Hopper gives for E4M3 codes A [m, k] and B [n, k].
bool check_kernel(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b,
                  std::span<const float> d, std::int64_t m, std::int64_t n, std::int64_t k) {
  using namespace fp8lab;
  const Product product = make_product({.a = {view_of(ElementType::e4m3fn, {m, k}, a)},
                                        .b = {view_of(ElementType::e4m3fn, {n, k}, b)}},
                                       {.model = "sm90.wgmma.e4m3", .promotion_interval = 128});
  const VerifyReport report = verify(product, {"D", view_of(ElementType::f32, {m, n}, d), nullptr});
  std::cout << describe(report);
  return report.verdict == Verdict::pass;
}
