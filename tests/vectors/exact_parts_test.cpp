// Every word that a checksum of inputs takes, every bit that a reduced case may lose, and what
// makes two NaN of FP16 one.

#include <limits>
#include <vector>

#include "catch.hpp"
#include "fp8lab/vectors/recording.hpp"
#include "fp8lab/vectors/reduce.hpp"
#include "fp8lab/vectors/vectors.hpp"

using namespace fp8lab;

TEST_CASE("a checksum of inputs is FNV-1a of a, b and c of each case", "[verify]") {
  std::vector<VectorCase> cases(3);
  for (std::uint32_t i = 0; i < 3; ++i) {
    cases[i].a = {0x12345678U + i, 5U};
    cases[i].b = {0x80U + i, 0xfedcba98U};
    cases[i].c = 0x3f800000U + i;
    cases[i].d = i;
  }
  const auto written_down = [&] {
    std::vector<std::uint32_t> words;
    for (const VectorCase& one : cases) {
      words.insert(words.end(), one.a.begin(), one.a.end());
      words.insert(words.end(), one.b.begin(), one.b.end());
      words.push_back(one.c);
    }
    std::uint64_t hash = 14695981039346656037U;
    for (const std::uint32_t word : words)
      for (const int shift : {0, 8, 16, 24})
        hash = (hash ^ (word >> shift & 255U)) * 1099511628211U;
    return hash;
  };
  const std::uint64_t first = checksum_of_inputs(cases);
  CHECK(first == written_down());
  cases[2].d = 77;  // a result
  CHECK(checksum_of_inputs(cases) == first);
  for (const std::size_t i : {0U, 2U})
    for (std::uint32_t* word :
         {&cases[i].a[0], &cases[i].a[1], &cases[i].b[0], &cases[i].b[1], &cases[i].c}) {
      *word ^= 0x01000000U;
      CHECK(checksum_of_inputs(cases) != first);
      CHECK(checksum_of_inputs(cases) == written_down());
      *word ^= 0x01000000U;
    }
}

TEST_CASE("reduction clears every bit of c that a failure does not need", "[verify]") {
  for (int needed = 0; needed < 23; ++needed) {
    VectorCase start;
    start.a = {0x38, 0};
    start.b = {0x38, 0};
    start.c = 0xc2ffffffU & ~0x00800000U;
    const std::uint32_t bits = 0x42000000U | 1U << needed;
    const auto fails = [bits](const VectorCase& one) { return (one.c & bits) == bits; };
    INFO("bit " << needed);
    CHECK(reduce_case(start, FormatId::e4m3fn, FormatId::e4m3fn, fails).smallest.c == bits);
  }
}

TEST_CASE("NaN of FP16 outputs are one if all bits of FP16 are", "[io]") {
  VectorFile file;
  file.output_format = FormatId::f16;
  constexpr std::uint32_t kNan = 0x7fc00000U;
  for (int bit = 0; bit < 22; ++bit) {
    INFO("bit " << bit);
    CHECK(is_same_result(file, kNan, kNan | 1U << bit) == (bit < 13));
  }
  CHECK_FALSE(is_same_result(file, kNan, kNan | 1U << 31));
  CHECK_FALSE(is_same_result(file, kNan, 0x7f800000U));
  file.output_format = FormatId::f32;
  CHECK_FALSE(is_same_result(file, kNan, kNan | 1U));
  file.any_nan = true;
  CHECK(is_same_result(file, kNan, 0xff800001U));
  CHECK_FALSE(is_same_result(file, kNan, 0x7f800000U));
}
