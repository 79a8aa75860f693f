// What kernels say of codes, and where they put them, against loops over single codes.

#include <cstring>
#include <vector>

#include "catch.hpp"
#include "fp8lab/gemm/kernels.hpp"
#include "fp8lab/gemm/pack.hpp"
#include "gemm/problems.hpp"

using namespace fp8lab;
using namespace fp8lab::test;
using namespace fp8lab::gemm_detail;

namespace {

/// Codes in words of their storage, [lines][count], each line with few kinds of them.
std::vector<unsigned char> words_of(const Format& f, std::int64_t lines, std::int64_t count,
                                    std::uint64_t seed) {
  const auto bytes = static_cast<std::size_t>(f.storage_bits / 8);
  const RandomStream stream(seed, "code kernels");
  std::vector<unsigned char> words(static_cast<std::size_t>(lines * count) * bytes);
  for (std::int64_t i = 0; i < lines * count; ++i) {
    constexpr Data kKinds[] = {Data::ends, Data::finite, Data::sparse, Data::codes, Data::tiny};
    std::uint32_t code = random_code(f, kKinds[static_cast<std::size_t>(i / count) % 5], stream,
                                     static_cast<std::uint64_t>(i));
    if (bytes == 4) code <<= 23 - f.mantissa_bits;
    std::memcpy(words.data() + static_cast<std::size_t>(i) * bytes, &code, bytes);
  }
  return words;
}

std::uint32_t code_in(const Format& f, const std::vector<unsigned char>& words, std::int64_t at) {
  const auto bytes = static_cast<std::size_t>(f.storage_bits / 8);
  std::uint32_t word = 0;
  std::memcpy(&word, words.data() + static_cast<std::size_t>(at) * bytes, bytes);
  return code_of_storage(f, word);
}

/// FNUZ's NaN is above all numbers.
void add_code(const Format& f, std::uint32_t code, CodeRange& range) {
  const std::uint32_t sign = 1U << (f.exponent_bits + f.mantissa_bits);
  const std::uint32_t magnitude =
      f.specials == SpecialValues::fnuz && code == sign ? sign : code & (sign - 1);
  if (magnitude == 0) return;
  range.largest = std::max(range.largest, magnitude);
  range.smallest = std::min(range.smallest, magnitude);
}

template <typename T>
void check_ranges(const Format& f, Target target, std::uint64_t seed) {
  const KernelTable& table = *kernel_table(target);
  const CodeKernels<T>& kernels = table.codes<T>(f.storage_bits);
  const CodeLayout layout = code_layout(f);
  for (const std::int64_t count : {1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 100}) {
    constexpr std::int64_t kLines = 10;
    const auto words = words_of(f, kLines, count, ++seed);
    for (std::int64_t line = 0; line < kLines; ++line) {
      CodeRange expected;
      for (std::int64_t i = 0; i < count; ++i)
        add_code(f, code_in(f, words, line * count + i), expected);
      const CodeRange got =
          kernels.row_range(words.data() + line * count * f.storage_bits / 8, count, layout);
      INFO(f.name << " on " << to_string(target) << ", " << count << " codes, line " << line);
      CHECK(got.largest == expected.largest);
      CHECK(got.smallest == expected.smallest);
    }
  }
  // Columns, some of which have been seen before.
  const std::int64_t width = table.width<T>();
  for (const std::int64_t terms : {1, 3, 16}) {
    std::vector<CodeRange> expected(static_cast<std::size_t>(width));
    std::vector<CodeRange> got = expected;
    for (int part = 0; part < 2; ++part) {
      const auto words = words_of(f, terms, width, ++seed);
      for (std::int64_t t = 0; t < terms; ++t)
        for (std::int64_t j = 0; j < width; ++j)
          add_code(f, code_in(f, words, t * width + j), expected[static_cast<std::size_t>(j)]);
      kernels.column_ranges(words.data(), terms, layout, got.data());
    }
    for (std::size_t j = 0; j < got.size(); ++j) {
      INFO(f.name << " on " << to_string(target) << ", " << terms << " terms, column " << j);
      CHECK(got[j].largest == expected[j].largest);
      CHECK(got[j].smallest == expected[j].smallest);
    }
  }
}

template <typename T>
void check_transposition(const Format& f, Target target) {
  const KernelTable& table = *kernel_table(target);
  const std::int64_t rows = std::min<std::int64_t>(16, table.width<T>());
  const std::int64_t bytes = f.storage_bits / 8;
  for (const std::int64_t terms : {16, 48}) {
    const std::int64_t stride = terms + 7;
    const std::int64_t width = rows + 16;
    const auto words = words_of(f, rows, stride, 7);
    std::vector<unsigned char> to(static_cast<std::size_t>(terms * width * bytes), 0xa5);
    table.codes<T>(f.storage_bits)
        .transpose({.from = words.data(),
                    .row_stride = stride,
                    .rows = rows,
                    .terms = terms,
                    .width = width,
                    .to = to.data()});
    std::vector<unsigned char> expected(to.size(), 0xa5);
    for (std::int64_t t = 0; t < terms; ++t)
      for (std::int64_t r = 0; r < rows; ++r)
        std::memcpy(expected.data() + (t * width + r) * bytes,
                    words.data() + (r * stride + t) * bytes, static_cast<std::size_t>(bytes));
    INFO(f.name << " on " << to_string(target) << ", " << terms << " terms of " << rows << " rows");
    CHECK((to == expected));
  }
}

}  // namespace

TEST_CASE("code kernels: ranges and transpositions are those of single codes", "[gemm]") {
  std::uint64_t seed = 0;
  for (const Target target : available_targets()) {
    if (target == Target::scalar) continue;
    for (const Format& f : kFormats) {
      if (!f.has_sign || f.id == FormatId::e8m13) continue;
      check_ranges<float>(f, target, seed += 100);
      check_ranges<double>(f, target, seed += 100);
      check_transposition<float>(f, target);
      check_transposition<double>(f, target);
    }
  }
}
