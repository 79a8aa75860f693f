// Parts of matrices in any memory order, element by element, and codes read in another format.

#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/product/non_finite.hpp"
#include "fp8lab/product/product.hpp"
#include "fp8lab/product/term_variants.hpp"
#include "fp8lab/product/variants.hpp"
#include "fp8lab/tensors/codes.hpp"

using namespace fp8lab;

namespace {

/// Two matrices of random words in one buffer each, of any strides and no padding but the stated.
struct StridedPair {
  std::vector<std::byte> a;
  std::vector<std::byte> b;
  Product product;

  StridedPair(FormatId id, bool columns_a, bool columns_b, std::int64_t padding, std::uint64_t seed,
              std::int64_t apart = 1) {
    product.model = "exact";
    product.problem.model = find_instruction_model("exact").accumulator;
    product.problem.a = filled(a, id, 5, 7, columns_a, padding, seed, apart);
    product.problem.b = filled(b, id, 6, 7, columns_b, padding, seed + 1, apart);
  }

  /// `apart`: elements between two neighbours.
  static CodeMatrix filled(std::vector<std::byte>& bytes, FormatId id, std::int64_t rows,
                           std::int64_t k, bool columns, std::int64_t padding, std::uint64_t seed,
                           std::int64_t apart) {
    const auto width = static_cast<std::size_t>(format(id).storage_bits / 8);
    const std::int64_t line = (columns ? rows : k) * apart + padding;
    bytes.resize(static_cast<std::size_t>((columns ? k : rows) * line) * width);
    const RandomStream random(seed, "strided");
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const std::uint32_t draw = random.bits32(i);
      bytes[i] = static_cast<std::byte>(draw % 3 == 0 ? 0xff : draw % 5 == 0 ? 0x7c : draw >> 8);
    }
    return {id, bytes.data(), rows, k, columns ? apart : line, columns ? line : apart};
  }
};

std::uint32_t word_of(const CodeMatrix& m, std::int64_t row, std::int64_t k) {
  const auto width = static_cast<std::size_t>(format(m.format).storage_bits / 8);
  std::uint32_t word = 0;
  std::memcpy(&word,
              static_cast<const std::byte*>(m.data) +
                  static_cast<std::size_t>(row * m.row_stride + k * m.k_stride) * width,
              width);
  return word;
}

std::vector<std::uint32_t> words_of(const CodeMatrix& m) {
  std::vector<std::uint32_t> words;
  for (std::int64_t row = 0; row < m.rows; ++row)
    for (std::int64_t k = 0; k < m.k; ++k) words.push_back(word_of(m, row, k));
  return words;
}

template <typename Check>
void each_layout(const Check& check) {
  for (const FormatId id : {FormatId::e4m3fn, FormatId::f16, FormatId::tf32})
    for (const bool columns_a : {false, true})
      for (const bool columns_b : {false, true})
        for (const std::int64_t padding : {0, 3})
          for (const std::int64_t apart : {1, 2}) {
            INFO(fmt::format("{}, columns {} {}, padding {}, apart {}", format(id).name, columns_a,
                             columns_b, padding, apart));
            check(StridedPair(id, columns_a, columns_b, padding, 3, apart));
          }
}

}  // namespace

TEST_CASE("take: rows, columns and terms of matrices in any memory order", "[product]") {
  const Sample sample{{4, 0, 3}, {5, 1}};
  each_layout([&](const StridedPair& pair) {
    const GemmProblem& p = pair.product.problem;
    const auto check = [&](const CodeMatrix& got, const CodeMatrix& from,
                           const std::vector<std::int64_t>& rows, const auto& word) {
      std::vector<std::uint32_t> expected;
      for (const std::int64_t row : rows)
        for (std::int64_t k = 0; k < got.k; ++k) expected.push_back(word(from, row, k));
      CHECK(words_of(got) == expected);
      CHECK(got.rows == static_cast<std::int64_t>(rows.size()));
      CHECK(got.format == from.format);
    };
    const auto own = [](const CodeMatrix& m, std::int64_t row, std::int64_t k) {
      return word_of(m, row, k);
    };
    const Product taken = take(pair.product, sample);
    check(taken.problem.a, p.a, sample.rows, own);
    check(taken.problem.b, p.b, sample.columns, own);
    for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, 7}, {2, 5}, {6, 7}}) {
      const Product part = take_k(pair.product, begin, end);
      const auto later = [from = begin](const CodeMatrix& m, std::int64_t row, std::int64_t k) {
        return word_of(m, row, from + k);
      };
      CHECK(part.problem.a.k == end - begin);
      CHECK(part.problem.b.k == end - begin);
      check(part.problem.a, p.a, {0, 1, 2, 3, 4}, later);
      check(part.problem.b, p.b, {0, 1, 2, 3, 4, 5}, later);
    }
    for (const Side side : {Side::a, Side::b, Side::both})
      for (const std::int64_t by : {1, -1, 9, -16}) {
        INFO("side " << static_cast<int>(side) << " by " << by);
        const auto moved = [&](const CodeMatrix& m, std::int64_t row, std::int64_t k) {
          const std::int64_t at = row * 7 + k + by;
          return at < 0 || at >= m.rows * 7 ? 0 : word_of(m, at / 7, at % 7);
        };
        const Product wrong = take_with_moved_terms(pair.product, sample, side, by);
        if (side == Side::b)
          check(wrong.problem.a, p.a, sample.rows, own);
        else
          check(wrong.problem.a, p.a, sample.rows, moved);
        if (side == Side::a)
          check(wrong.problem.b, p.b, sample.columns, own);
        else
          check(wrong.problem.b, p.b, sample.columns, moved);
      }
  });
}

TEST_CASE("non-finite codes of matrices in any memory order are counted once each", "[product]") {
  each_layout([](const StridedPair& pair) {
    const NonFiniteReport got = count_non_finite(pair.product);
    REQUIRE(got.size() == 2);
    std::uint64_t all = 0;
    for (const bool of_b : {false, true}) {
      const CodeMatrix& m = of_b ? pair.product.problem.b : pair.product.problem.a;
      const Format& f = format(m.format);
      NonFinite expected;
      for (const std::uint32_t word : words_of(m)) {
        const ValueClass kind = unpack(f, code_of_storage(f, word)).value_class;
        expected.nan += kind == ValueClass::nan ? 1 : 0;
        expected.infinite += kind == ValueClass::infinity ? 1 : 0;
      }
      const auto& [name, counts] = got[of_b ? 1 : 0];
      CHECK(name == (of_b ? "B" : "A"));
      CHECK(counts.nan == expected.nan);
      CHECK(counts.infinite == expected.infinite);
      all += expected.nan;
    }
    CHECK(all > 0);
  });
}

TEST_CASE("codes are read in another format if each operand that is asked for has one",
          "[product]") {
  constexpr FormatId kCodeFormats[] = {FormatId::e4m3fn, FormatId::e5m2, FormatId::e4m3fnuz,
                                       FormatId::e5m2fnuz, FormatId::e2m1};
  const std::vector<std::optional<FormatId>> others{
      FormatId::e5m2, FormatId::e4m3fn, FormatId::e5m2fnuz, FormatId::e4m3fnuz, std::nullopt};
  const StridedPair pair(FormatId::e4m3fn, false, false, 0, 5);
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(other_format_of_width(kCodeFormats[i]) == others[i]);
    for (std::size_t j = 0; j < 5; ++j)
      for (const Side side : {Side::a, Side::b, Side::both}) {
        Product product = pair.product;
        product.problem.a.format = kCodeFormats[i];
        product.problem.b.format = kCodeFormats[j];
        const std::optional<Product> got = with_codes_read_as(product, side, other_format_of_width);
        const bool of_a = side != Side::b;
        const bool of_b = side != Side::a;
        INFO(fmt::format("{} and {}, of A {}, of B {}", format(kCodeFormats[i]).name,
                         format(kCodeFormats[j]).name, of_a, of_b));
        CHECK(got.has_value() == ((!of_a || others[i]) && (!of_b || others[j])));
        if (!got) continue;
        CHECK(got->problem.a.format == (of_a ? *others[i] : kCodeFormats[i]));
        CHECK(got->problem.b.format == (of_b ? *others[j] : kCodeFormats[j]));
      }
  }
}
