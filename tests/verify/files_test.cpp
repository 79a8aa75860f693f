// Files and casts of every rank and type, every check with and without its fault matrix.

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/product/grouped_product.hpp"
#include "fp8lab/product/variants.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/grouped.hpp"
#include "fp8lab/verify/verify.hpp"
#include "message_of.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

using FileShape = std::vector<std::int64_t>;

/// `[rows, columns] first [row, column]` of a report.
std::string place_of(const VerifyReport& report) {
  std::string text = fmt::format("[{}, {}]", report.rows, report.columns);
  for (const ElementReport& element : report.elements)
    text += fmt::format(" {} [{}, {}]", element.which, element.row, element.column);
  return text;
}

Operand file_of(const char* name, ElementType type, FileShape shape,
                const std::vector<std::byte>& bytes, bool fortran = false) {
  return {name, {type, std::move(shape), bytes, fortran}, nullptr};
}

}  // namespace

TEST_CASE("verify: a file of any rank is a matrix of its last dimension", "[verify]") {
  for (const auto& [shape, rows, columns] :
       {std::tuple<FileShape, std::int64_t, std::int64_t>{{}, 1, 1},
        {{5}, 1, 5},
        {{1, 7}, 1, 7},
        {{7, 1}, 7, 1},
        {{3, 4}, 3, 4},
        {{2, 3, 4}, 6, 4},
        {{4, 1, 3, 2}, 12, 2},
        {{2, 1, 1, 5}, 2, 5}}) {
    const std::vector<float> x(static_cast<std::size_t>(rows * columns), 1.0F);
    const std::vector<std::byte> floats = cast_output(x, {}, 1);
    const std::vector<std::byte> codes = cast_output(x, default_output(FormatId::e4m3fn), 1);
    const Operand input = file_of("x", ElementType::f32, shape, floats);
    for (std::int64_t at = 0; at < rows * columns; ++at) {
      const std::string expected =
          fmt::format("[{}, {}] first [{}, {}]", rows, columns, at / columns, at % columns);
      INFO(shape_text(shape) << " at " << at);
      std::vector<std::byte> wrong = floats;
      wrong[static_cast<std::size_t>(4 * at)] ^= std::byte{1};
      CHECK(place_of(verify(input, file_of("got", ElementType::f32, shape, wrong),
                            {.threads = 1, .judge_power = false})) == expected);
      std::vector<std::byte> cast = codes;
      cast[static_cast<std::size_t>(at)] ^= std::byte{1};
      CHECK(
          place_of(verify_cast({}, input, nullptr, file_of("got", ElementType::e4m3fn, shape, cast),
                               {.threads = 1, .judge_power = false})) == expected);
    }
    const std::string order =
        "expected row-major order; save np.ascontiguousarray(x), got Fortran order";
    const bool either = shape.size() < 2;
    const auto said = [&, shape = shape](bool of_x, bool of_got) {
      return message_of([&] {
        (void)verify_cast({}, file_of("x", ElementType::f32, shape, floats, of_x), nullptr,
                          file_of("got", ElementType::e4m3fn, shape, codes, of_got),
                          {.threads = 1, .judge_power = false});
      });
    };
    CHECK(said(true, false) == (either ? "accepted" : "x: " + order));
    CHECK(said(false, true) == (either ? "accepted" : "got: " + order));
  }
}

TEST_CASE("verify: casts of every float type, to formats of eight bits with their own codes",
          "[verify]") {
  const std::vector<float> values{1.0F, -2.5F, 0.3F, 500.0F, -0.07F, 6.0F};
  const std::vector<double> wide(values.begin(), values.end());
  std::vector<std::byte> doubles(6 * sizeof(double));
  std::memcpy(doubles.data(), wide.data(), doubles.size());
  for (const ElementType type :
       {ElementType::f32, ElementType::f16, ElementType::bf16, ElementType::f64}) {
    const std::vector<std::byte> bytes =
        type == ElementType::f64 ? doubles : cast_output(values, default_output(*format_of(type)));
    const std::vector<float> read = to_float({type, {2, 3}, bytes, false});
    for (const FormatId to : {FormatId::e4m3fn, FormatId::e5m2, FormatId::e4m3fnuz}) {
      const std::vector<std::byte> right = cast_output(read, default_output(to), 1);
      const CastSpec spec{to, kNvidiaSatfinite};
      const Operand x = file_of("x", type, {2, 3}, bytes);
      INFO(to_string(type) << " to " << format(to).name);
      const auto verified = [&](ElementType as, const std::vector<std::byte>& codes) {
        return verify_cast(spec, x, nullptr, file_of("got", as, {2, 3}, codes),
                           {.threads = 1, .judge_power = false});
      };
      CHECK(verified(element_type_of(to), right).comparison.bitwise());
      CHECK(verified(ElementType::u8, right).comparison.bitwise());
      std::vector<std::byte> wrong = right;
      wrong[5] ^= std::byte{2};
      CHECK(place_of(verified(ElementType::u8, wrong)) == "[2, 3] first [1, 2]");
    }
  }
  const std::vector<std::byte> codes(6, std::byte{1});
  const auto said = [&](ElementType x, FormatId to, ElementType got, const FileShape& shape,
                        const std::vector<std::byte>& bytes) {
    const std::vector<std::byte> any(48);
    const Operand input{
        "x", {x, {2, 3}, std::span(any).first(6 * element_bytes(x)), false}, nullptr};
    return message_of([&] {
      (void)verify_cast({to, kNvidiaSatfinite}, input, nullptr, file_of("got", got, shape, bytes),
                        {.threads = 1, .judge_power = false});
    });
  };
  const auto f32 = ElementType::f32;
  CHECK(said(ElementType::u8, FormatId::e4m3fn, ElementType::e4m3fn, {2, 3}, codes) ==
        "x: expected floats to cast, got u8");
  CHECK(said(ElementType::e4m3fn, FormatId::e4m3fn, ElementType::e4m3fn, {2, 3}, codes) ==
        "x: expected floats to cast, got e4m3fn");
  CHECK(said(ElementType::i32, FormatId::e4m3fn, ElementType::e4m3fn, {2, 3}, codes) ==
        "x: expected floats to cast, got i32");
  for (const FormatId to : {FormatId::f16, FormatId::bf16, FormatId::f32})
    CHECK(said(f32, to, ElementType::e4m3fn, {2, 3}, codes) ==
          fmt::format("cast: expected an 8-bit format such as e4m3fn, got {}", format(to).name));
  CHECK(said(f32, FormatId::e4m3fn, ElementType::e5m2, {2, 3}, codes) ==
        "got: expected e4m3fn elements; give their format with `out_dtype`, got e5m2");
  CHECK(said(f32, FormatId::e4m3fn, ElementType::e4m3fn, {3, 2}, codes) ==
        "got: expected shape [2, 3], got [3, 2]");
  CHECK(said(f32, FormatId::e2m1, ElementType::e2m1, {2, 3}, codes) == "accepted");
  std::vector<std::byte> beyond = codes;
  beyond[4] = std::byte{0x10};
  CHECK_THAT(said(f32, FormatId::e2m1, ElementType::e2m1, {2, 3}, beyond), contains("got: "));
  const std::vector<std::byte> floats(24);
  CHECK(message_of([&] {
          (void)verify_cast({}, file_of("x", f32, {2, 3}, floats), nullptr,
                            file_of("got", ElementType::e4m3fn, {2, 3}, codes),
                            {.check = find_check("budget")});
        }) == "check: expected bitwise or a gate, for a cast, got budget");
  CHECK(message_of([&] {
          (void)verify(file_of("golden", f32, {2, 3}, floats), file_of("got", f32, {2, 3}, floats),
                       {.check = find_check("budget")});
        }) == "check: expected one that needs no inputs, with a golden file, got budget");
  const std::vector<std::byte> eight(48);
  CHECK(message_of([&] {
          (void)verify(file_of("golden", ElementType::f64, {2, 3}, eight),
                       file_of("got", ElementType::f64, {2, 3}, eight));
        }) == "golden: expected f32, f16, bf16 or FP8 elements (`out_dtype`), got f64");
}

TEST_CASE(
    "verify: each check's own power is told, and with a matrix that of all, of wrong outputs "
    "too",
    "[verify]") {
  const RandomProduct random({.promotion_interval = 32}, {.shape = {8, 6, 64}});
  const std::vector<float> right = compute(random.product);
  std::vector<float> wrong = right;
  for (float& x : wrong) x = -x;
  const FileShape shape{8, 6};
  const std::vector<std::byte> golden = cast_output(right, {});
  const auto fp8 = [](const std::vector<float>& x) {
    return cast_output(x, default_output(FormatId::e4m3fn));
  };
  GemmOperands all;
  all.a.codes = view_of(ElementType::e4m3fn, {2, 4, 64}, std::span(std::as_const(random.a)));
  all.b.codes = view_of(ElementType::e4m3fn, {2, 3, 64}, std::span(std::as_const(random.b)));
  const GroupedProduct grouped =
      make_grouped_product(all, {.model = "sm90.wgmma.e4m3"}, {GroupKind::batched, {}, 0});
  const std::vector<float> of_groups = compute(grouped);
  std::vector<float> wrong_groups = of_groups;
  for (float& x : wrong_groups) x = -x;
  for (const Check& check : all_checks())
    for (const bool good : {true, false})
      for (const bool matrix : {false, true})
        for (const bool judged : {true, false}) {
          INFO(check.name() << ", right " << good << ", matrix " << matrix << ", power " << judged);
          const VerifyOptions options{
              .check = check, .fault_matrix = matrix, .threads = 1, .judge_power = judged};
          const auto look = [&](const std::optional<PowerReport>& power, std::size_t index,
                                std::size_t every) {
            const bool expected = judged && (good || matrix);
            CHECK(power.has_value() == expected);
            if (!power) return;
            CHECK(power->checks.size() == (matrix ? every : 1));
            REQUIRE(index < power->checks.size());
            CHECK(power->checks[index].name() == check.name());
            for (const FaultOutcome& fault : power->faults)
              if (fault.applies) CHECK(fault.detected.size() == power->checks.size());
          };
          const std::vector<std::byte> codes = cast_output(good ? right : wrong, {});
          const VerifyReport report =
              verify(random.product, file_of("got", ElementType::f32, shape, codes), options);
          CHECK((report.verdict != Verdict::mismatch) == good);
          look(report.power, report.power_of_check, all_checks().size());
          if (judged) {
            const std::vector<float>& values = good ? of_groups : wrong_groups;
            const GroupedReport of_all = verify(
                grouped,
                Operand("got", view_of(ElementType::f32, {2, 4, 3}, std::span(values)), nullptr),
                options, UngroupedRule::any);
            CHECK((of_all.verdict != Verdict::mismatch) == good);
            look(of_all.power, of_all.power_of_check, all_checks().size());
          }
          if (check.kind == Check::Kind::budget) continue;
          const VerifyReport file = verify(file_of("golden", ElementType::f32, shape, golden),
                                           file_of("got", ElementType::f32, shape, codes), options);
          CHECK((file.verdict != Verdict::mismatch) == good);
          look(file.power, file.power_of_check, all_checks().size() - 1);
          const std::vector<std::byte> bytes = fp8(good ? right : wrong);
          const VerifyReport cast =
              verify_cast({}, file_of("x", ElementType::f32, shape, golden), nullptr,
                          file_of("got", ElementType::e4m3fn, shape, bytes), options);
          CHECK((cast.verdict != Verdict::mismatch) == good);
          look(cast.power, cast.power_of_check, all_checks().size() - 1);
        }
}
