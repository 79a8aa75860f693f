// Kernels of the units of processors against gemm_reference, on every target: drawn parameters,
// operands and c of all kinds, and sums next to where results are flushed.

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include "catch.hpp"
#include "fp8lab/accumulate/definition.hpp"
#include "gemm/problems.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

constexpr std::array kProcessorData{Data::normal, Data::wide,     Data::codes, Data::finite,
                                    Data::sparse, Data::specials, Data::tiny,  Data::ties,
                                    Data::ends,   Data::one_huge};
constexpr std::array kProcessorStarts{Start::none, Start::normal, Start::wide,     Start::extreme,
                                      Start::tiny, Start::ties,   Start::scattered};
constexpr std::array kProcessorFormats{FormatId::bf16,   FormatId::tf32, FormatId::f16,
                                       FormatId::e4m3fn, FormatId::e5m2, FormatId::e2m1};
constexpr std::array kSubnormals{Subnormals::kept, Subnormals::flushed_results,
                                 Subnormals::flushed};

/// Parameters, operands and c of one case.
class DrawnProcessor {
 public:
  DrawnProcessor(std::string_view name, std::uint64_t number)
      : random_(number, name), number_(number), model_(find_instruction_model(name)) {
    AccumulatorModel& m = model_.accumulator;
    m.subnormals = pick(kSubnormals);
    m.chains = 1 + below(8);
    if (below(4) == 0) m.zero_sign = ZeroSign::positive;
    if (below(2) == 0) m.pair_rounding = PairRounding::to_odd;
    const bool pairs =
        m.kind == AccumulationKind::multiply_add_pairs || m.kind == AccumulationKind::rounded_pairs;
    if (!pairs && below(3) != 0) m.terms = 1 + below(70);
    if (m.kind != AccumulationKind::rounded_sum) m.zero_sign = ZeroSign::kept;
    if (below(3) != 0) model_.a_format = model_.b_format = pick(kProcessorFormats);
    if (below(4) == 0) model_.b_format = pick(kProcessorFormats);
  }

  void check() {
    const Shape shape{1 + below(9), 1 + below(90), 1 + below(150)};
    const Data data = pick(kProcessorData);
    const Start start = pick(kProcessorStarts);
    Operands operands(model_, shape, data, start,
                      3 * number_ + static_cast<std::uint64_t>(below(3)));
    const AccumulatorModel& m = model_.accumulator;
    if (below(3) == 0) operands.problem.promotion_interval = m.terms * (1 + below(20));
    INFO(definition_of(m, model_.a_format, model_.b_format)
         << " " << format(model_.a_format).name << " " << format(model_.b_format).name << " "
         << shape.m << "x" << shape.n << "x" << shape.k << " data " << static_cast<int>(data)
         << " start " << static_cast<int>(start) << " interval "
         << operands.problem.promotion_interval << " case " << number_);
    check_all_targets(operands.problem);
  }

 private:
  int below(std::uint64_t bound) { return static_cast<int>(random_.below(drawn_++, bound)); }
  template <typename T, std::size_t Size>
  T pick(const std::array<T, Size>& of) {
    return of[static_cast<std::size_t>(below(Size))];
  }

  RandomStream random_;
  std::uint64_t number_;
  std::uint64_t drawn_ = 0;
  InstructionModel model_;
};

std::vector<std::uint16_t> upper_halves(const std::vector<float>& values) {
  std::vector<std::uint16_t> codes;
  for (const float x : values)
    codes.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16));
  return codes;
}

}  // namespace

TEST_CASE("processors: drawn parameters, operands and c keep the reference's bits", "[gemm]") {
  for (const std::string_view name : {"x86.vdpbf16ps", "x86.tdpbf16ps", "x86.tdphf8ps",
                                      "arm.bfdot.ebf16", "arm.bfdot", "arm.fdot.e5m2.f16"})
    for (std::uint64_t number = 0; number < 150; ++number) DrawnProcessor(name, number).check();
}

TEST_CASE("processors: results next to 2^-126 are flushed as the unit says", "[gemm]") {
  // c and two products whose sums lie on both sides of 2^-126 and of what rounds to it.
  constexpr std::array kNear{0x1p-126F,
                             -0x1p-126F,
                             0x1.000002p-126F,
                             0x1.fffffcp-127F,
                             -0x1.fffffcp-127F,
                             0x1.8p-126F,
                             -0x1.000004p-126F,
                             0.0F,
                             -0.0F};
  const std::vector<float> factors{1.0F, -1.0F, 0.5F, 0x1.01p0F};
  const std::vector<float> tiny{0.0F,      0x1p-126F,  -0x1p-126F, 0x1p-125F, -0x1.02p-126F,
                                0x1p-127F, -0x1p-127F, 0x1p-133F,  -0x1p-133F};
  // Behind zeros, so that rows of 32 end where a kernel's step does.
  constexpr std::int64_t kRow = 32;
  const auto add_row = [](std::vector<float>& to, const std::array<float, 4>& last) {
    to.insert(to.end(), kRow - 4, 0.0F);
    to.insert(to.end(), last.begin(), last.end());
  };
  std::vector<float> a;
  std::vector<float> b;
  for (const float x : tiny)
    for (const float y : tiny) add_row(a, {0x1p-75F, 0x1p-75F, x, y});
  for (const float x : factors)
    for (const float y : factors)
      for (const int exponent : {-75, -76, -77})
        add_row(b, {std::ldexp(x, exponent), std::ldexp(-y, exponent - 1), x, y});
  const auto a_codes = upper_halves(a);
  const auto b_codes = upper_halves(b);
  const auto rows = static_cast<std::int64_t>(a.size()) / kRow;
  const auto columns = static_cast<std::int64_t>(b.size()) / kRow;
  std::vector<float> c(static_cast<std::size_t>(rows * columns));
  for (std::size_t i = 0; i < c.size(); ++i) c[i] = kNear[(i + i / 48) % kNear.size()];
  for (const std::string_view name :
       {"x86.vdpbf16ps", "x86.tdpbf16ps", "x86.top2bf16ps", "arm.bfdot", "arm.bfdot.ebf16"})
    for (const Subnormals subnormals : kSubnormals)
      for (const std::int64_t k : {std::int64_t{1}, std::int64_t{2}, std::int64_t{4}, kRow}) {
        GemmProblem p = problem_of(find_instruction_model(name));
        p.model.subnormals = subnormals;
        p.a = {FormatId::bf16, a_codes.data() + kRow - k, rows, k, kRow, 1};
        p.b = {FormatId::bf16, b_codes.data() + kRow - k, columns, k, kRow, 1};
        p.c = c.data();
        INFO(name << " " << to_string(subnormals) << " k " << k);
        CHECK(gemm_method(p) != "reference");
        check_all_targets(p);
      }
}

TEST_CASE("processors: kernel steps are whole groups of terms under any promotion", "[gemm]") {
  // The longest step of up to 32 terms that divides these intervals is no multiple of the group.
  std::uint64_t seed = 51000;
  for (const std::string_view name : {"gfx90a.mfma.f16", "gfx90a.mfma.bf16", "x86.vdpbf16ps",
                                      "x86.top2bf16ps", "arm.bfdot", "arm.bfdot.ebf16"})
    for (const std::int64_t interval : {36, 68, 100}) {
      ++seed;
      Operands operands(find_instruction_model(name), {5, 70, 150}, Data::normal,
                        seed % 2 == 0 ? Start::none : Start::normal, seed);
      operands.problem.promotion_interval = interval;
      INFO(name << " interval " << interval);
      check_all_targets(operands.problem);
    }
}
