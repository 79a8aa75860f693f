// Whole reports, word for word.

#include <bit>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/product/variants.hpp"
#include "fp8lab/verify/verify.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

/// But for lines that depend on what models are registered.
std::string without_registry(const std::string& text) {
  std::string kept;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at) + 1;
    const std::string line = text.substr(at, end - at);
    at = end;
    if (!line.starts_with("      ") && line.find("known mistakes") == std::string::npos)
      kept += line;
  }
  return kept;
}

/// Codes that are numbers from 1 to 7, so that all sums are exact, and outputs that are wrong.
struct ToldProduct {
  std::vector<std::uint8_t> a;
  std::vector<std::uint8_t> b;
  Product product;
  std::vector<float> values;

  ToldProduct() {
    for (std::size_t i = 0; i < 4 * 96; ++i)
      a.push_back(static_cast<std::uint8_t>(i % 5 == 0 ? 0xb8 : 0x38 + 4 * (i % 4)));
    for (std::size_t i = 0; i < 6 * 96; ++i)
      b.push_back(static_cast<std::uint8_t>(i % 7 == 0 ? 0xc0 : 0x30 + 4 * (i % 5)));
    product.model = "sm90.wgmma.e4m3";
    product.problem.model = find_instruction_model(product.model).accumulator;
    product.problem.a = {FormatId::e4m3fn, a.data(), 4, 96, 96, 1};
    product.problem.b = {FormatId::e4m3fn, b.data(), 6, 96, 96, 1};
    product.problem.promotion_interval = 32;
    values = compute(product, 1);
  }

  [[nodiscard]] std::string told(const char* check, bool matrix = false) const {
    const std::vector<std::byte> codes = cast_output(values, product.output, 1);
    const Operand got{"got", {element_type_of(product.output.format), {4, 6}, codes}, nullptr};
    const VerifyOptions options{.check = find_check(check), .fault_matrix = matrix, .threads = 1};
    return without_registry(describe(verify(product, got, options)));
  }
};

}  // namespace

TEST_CASE("verify: whole reports of right and of wrong outputs, word for word", "[verify]") {
  ToldProduct one;
  CHECK(one.told("bitwise") ==
        "no power: all 24 outputs have the golden bits [4, 6] f32, against sm90.wgmma.e4m3, k = "
        "96, promotion 32; check: bitwise\n"
        "  power of bitwise: 8 of 10 applicable faults detected (output 5 of 5, operands 3 of 3, "
        "rounding 0 of 2), on 4 x 6 outputs\n"
        "  missed: missing_promotion (the first promotion does not happen): these sums are the "
        "same in every accumulator\n"
        "  missed: accumulator (an FP32 accumulator): these sums are the same in every "
        "accumulator\n");
  CHECK(one.told("deepgemm") ==
        "pass: all 24 outputs have the golden bits [4, 6] f32, against sm90.wgmma.e4m3, k = 96, "
        "promotion 32; check: deepgemm\n"
        "  power of deepgemm: 8 of 10 applicable faults detected (output 5 of 5, operands 3 of 3, "
        "rounding 0 of 2), on 4 x 6 outputs\n"
        "  cannot see: missing_promotion (the first promotion does not happen): these sums are "
        "the same in every accumulator\n"
        "  cannot see: accumulator (an FP32 accumulator): these sums are the same in every "
        "accumulator\n");
  one.values[9] *= 1.5F;
  one.values[15] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(one.values[15]) + 1);
  one.values[23] = -one.values[23];
  one.values[22] *= 0.99F;
  const std::string figures =
      "  map, one character per tile of 1 x 1 (. none, 1-9 tenths wrong, # all):\n"
      "    ......\n"
      "    ...#..\n"
      "    ...#..\n"
      "    ....##\n"
      "  ULP of f32:  0: 20  1: 1  131073-262144: 1  4194305-8388608: 1  "
      "2147483649-4294967296: 1  (toward zero 1, away 2)\n"
      "  ULP of FP8 (E4M3's significand):  0: 21  1: 1  5-8: 1  2049-4096: 1  (toward zero 1, "
      "away 1)\n"
      "  relative L2 0.410453  SQNR 7.73474 dB  cosine 0.918441581  calc_diff 0.0819089  bias "
      "-0.0620967\n"
      "  max abs 173.25 at [3, 5]  max rel 2 at [3, 5]\n"
      "  first mismatch: row 1 column 3: expected 0x42bc8000 (94.25), got 0x430d6000 "
      "(141.375), 5300224 ulp\n"
      "    exact 94.25, budget 0.0584119 = quantization 0 + accumulation 0.0584081 + output "
      "rounding 3.8147e-06\n"
      "    K-block [32, 64), nearest to the difference, sums to 26.5; largest:  k 51 0x44 x "
      "0x40 = 6  k 55 0x44 x 0xc0 = -6  k 35 0x44 x 0x3c = 4.5  k 46 0x40 x 0x40 = 4\n"
      "    models that give this output: none\n"
      "  worst mismatch: row 3 column 5: expected 0x42ad4000 (86.625), got 0xc2ad4000 "
      "(-86.625), 2237300736 ulp\n"
      "    exact 86.625, budget 0.0574791 = quantization 0 + accumulation 0.0574752 + output "
      "rounding 3.8147e-06\n"
      "    K-block [32, 64), nearest to the difference, sums to 32.5; largest:  k 39 0x44 x "
      "0x40 = 6  k 59 0x44 x 0xc0 = -6  k 43 0x44 x 0x3c = 4.5  k 63 0x44 x 0x3c = 4.5\n"
      "    models that give this output: none\n";
  CHECK(
      one.told("bitwise") ==
      "mismatch: 4 of 24 outputs differ in bits (16.67 %) [4, 6] f32, against sm90.wgmma.e4m3, "
      "k = 96, promotion 32; check: bitwise\n" +
          figures +
          "  1 of 4 examined mismatches are within the budget of the exact result (median budget: "
          "0.00062 of the result)\n"
          "  shipped gates that would pass this output:\n"
          "  shipped gates that would reject it: deepgemm vllm.scaled_mm vllm.block_fp8 "
          "transformer_engine torchao flashinfer.bmm flashinfer.groupwise kernelbench\n");
  CHECK(
      one.told("budget", true) ==
      "mismatch: 4 of 24 outputs differ in bits (16.67 %) [4, 6] f32, against sm90.wgmma.e4m3, "
      "k = 96, promotion 32; check: budget\n" +
          figures +
          "  1 of 4 examined mismatches (the largest, and evenly spread ones) are within the "
          "budget of the exact result (median budget: 0.00062 of the result)\n"
          "  shipped gates that would pass this output:\n"
          "  shipped gates that would reject it: deepgemm vllm.scaled_mm vllm.block_fp8 "
          "transformer_engine torchao flashinfer.bmm flashinfer.groupwise kernelbench\n"
          "  power of budget: 8 of 10 applicable faults detected (output 5 of 5, operands 3 of 3, "
          "rounding 0 of 2), on 4 x 6 outputs\n"
          "  cannot see: missing_promotion (the first promotion does not happen): these sums are "
          "the same in every accumulator\n"
          "  cannot see: accumulator (an FP32 accumulator): these sums are the same in every "
          "accumulator\n");
  CHECK(describe_faults(power(one.product, all_checks(), 1)) ==
        "fault              changed  bitwise  budget  deepgemm  vllm.scaled_mm  vllm.block_fp8  "
        "transformer_engine  torchao  flashinfer.bmm  flashinfer.groupwise  kernelbench\n"
        "zeros              100.00%  detected  detected  detected  detected        detected      "
        "  detected            detected  detected        detected              detected\n"
        "random             100.00%  detected  detected  detected  detected        detected      "
        "  detected            detected  detected        detected              detected\n"
        "sign_flip          100.00%  detected  detected  detected  detected        detected      "
        "  detected            detected  detected        detected              detected\n"
        "gain_0.72          100.00%  detected  detected  detected  MISSED          detected      "
        "  detected            detected  MISSED          detected              detected\n"
        "exchanged_rows     100.00%  detected  detected  detected  detected        detected      "
        "  detected            detected  detected        detected              detected\n"
        "transposed_output  does not apply: the output is not square\n"
        "dropped_k_tile     100.00%  detected  detected  detected  MISSED          detected      "
        "  detected            detected  MISSED          detected              detected\n"
        "swapped_scales     does not apply: it needs scales of both operands with the same tile "
        "width along K, and more than one tile\n"
        "transposed_b        83.33%  detected  detected  detected  MISSED          detected      "
        "  detected            detected  MISSED          detected              detected\n"
        "fnuz_as_fn         100.00%  detected  detected  detected  detected        detected      "
        "  detected            detected  MISSED          detected              detected\n"
        "missing_promotion    0.00%  MISSED   MISSED  MISSED    MISSED          MISSED          "
        "MISSED              MISSED   MISSED          MISSED                MISSED\n"
        "accumulator          0.00%  MISSED   MISSED  MISSED    MISSED          MISSED          "
        "MISSED              MISSED   MISSED          MISSED                MISSED\n");
}
