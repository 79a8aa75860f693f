#include "fp8lab/identify/identify.hpp"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <string>

#include "catch.hpp"
#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/identify/grouped.hpp"
#include "fp8lab/identify/hypotheses.hpp"
#include "fp8lab/io/operand.hpp"
#include "fp8lab/product/variants.hpp"
#include "gemm/problems.hpp"
#include "product/products.hpp"
#include "sweep_share.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

/// How a kernel scales its operands.
enum class Scaling { none, rows, tiles };

/// A random product of 16x16x1024 of any registered instruction, with everything
/// that `identify` has to find drawn from the seed.
struct Kernel {
  Operands operands;
  Product product;
  int split_k = 1;

  Kernel(const InstructionModel& model, std::uint64_t seed, Scaling scaling, FormatId output,
         Data data = Data::normal)
      : operands(model, {16, 16, 1024}, data,
                 seed % 4 == 3 && scaling == Scaling::none ? Start::normal : Start::none, seed) {
    const RandomStream draws(seed, model.name);
    product.model = model.name;
    product.problem = operands.problem;
    product.output = default_output(output);
    GemmProblem& p = product.problem;
    if (scaling != Scaling::none) {
      p.scale_a = scales(seed, "scale_a", scaling);
      p.scale_b = scales(seed, "scale_b", scaling);
      p.scale_order = scale_orders()[draws.below(0, scale_orders().size())];
    }
    constexpr std::array<std::int64_t, 6> kIntervals{0, 32, 64, 128, 256, 512};
    p.promotion_interval = kIntervals[draws.below(1, kIntervals.size())];
    if (scaling == Scaling::tiles) p.promotion_interval = draws.below(1, 2) == 0 ? 128 : 64;
    if (p.promotion_interval % p.model.terms != 0) p.promotion_interval = p.model.terms;
    constexpr std::array<int, 6> kParts{1, 1, 1, 1, 2, 4};
    split_k = kParts[draws.below(2, kParts.size())];
    const std::int64_t step = std::max<std::int64_t>(p.promotion_interval, p.model.terms);
    if (1024 / step < split_k) split_k = 1;
    if (p.c == nullptr) return;
    const std::vector<CPlacement> places = possible_c_placements(p);
    p.c_enters = places[draws.below(3, places.size())];
  }

  [[nodiscard]] std::vector<std::byte> output() const {
    if (split_k == 1) return golden_output(product);
    return cast_output(compute_split_k(product, split_k).value(), product.output);
  }

  /// Whether an explanation is what the kernel did.
  [[nodiscard]] bool is(const Explanation& one) const {
    const auto& names = one.models;
    const bool unscaled = product.problem.scale_a.empty();
    return std::find(names.begin(), names.end(), product.model) != names.end() &&
           one.promotion_interval == product.problem.promotion_interval &&
           (unscaled || one.scale_order == product.problem.scale_order) && one.split_k == split_k &&
           one.c_enters == product.problem.c_enters &&
           (one.rounding == "kept" || one.rounding == "nearest_even");
  }

 private:
  InverseScales scales(std::uint64_t seed, const std::string& name, Scaling scaling) {
    const std::int64_t tiles = scaling == Scaling::tiles ? 8 : 1;
    const RandomStream stream(seed, name);
    std::vector<float> values;
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(16 * tiles); ++i)
      values.push_back(static_cast<float>(std::exp2(stream.normal(i))));
    return {product.keep(std::move(values)), 1, 1024 / tiles};
  }
};

bool names_it(const Kernel& kernel, const ExplanationClass& best) {
  return std::any_of(best.members.begin(), best.members.end(),
                     [&](const Explanation& one) { return kernel.is(one); });
}

/// Whether the other members of the class, of many some, really give the same output.
bool cannot_be_told_apart(const Kernel& kernel, const ExplanationClass& best,
                          std::span<const std::byte> got) {
  constexpr std::int64_t kMembers = 24;
  for (const std::int64_t member : spread(std::ssize(best.members), kMembers)) {
    const Explanation& one = best.members[static_cast<std::size_t>(member)];
    Product other = kernel.product;
    GemmProblem& p = other.problem;
    p.model = find_instruction_model(one.models.front()).accumulator;
    // A model of binary32 reads all of the words that a model of TF32 reads in part.
    if (!takes_formats(p.model, p.a.format, p.b.format)) p.a.format = p.b.format = FormatId::f32;
    p.promotion_interval = one.promotion_interval;
    p.scale_order = one.scale_order;
    p.c_enters = one.c_enters;
    const std::vector<float> d =
        one.split_k == 1 ? compute(other) : compute_split_k(other, one.split_k).value();
    for (const OutputRounding& rounding : output_roundings(other.output.format)) {
      if (rounding.name != one.rounding) continue;
      const std::vector<std::uint32_t> codes = round_output(d, rounding);
      for (std::size_t i = 0; i < codes.size(); ++i) {
        std::uint32_t code = 0;
        const std::size_t width = got.size() / codes.size();
        std::memcpy(&code, got.data() + i * width, width);
        if (codes[i] != canonical_code(other.output.format, code)) return false;
      }
    }
  }
  return true;
}

struct Score {
  int problems = 0;
  int named = 0;    ///< the truth is in the class that explains everything
  int alone = 0;    ///< and that class names one accumulation only
  int of_wide = 0;  ///< problems of GPUs with operands of 8 bits and more
  int separated =
      0;  ///< of these: no other accumulator, though perhaps another way to the same sums
  std::string together{};  ///< models that share their class with another accumulator
};

/// Identifies `count` random kernels of every registered model.
Score sweep(int count, Data data, std::span<const Scaling> scalings,
            std::span<const FormatId> outputs) {
  Score score;
  for (const InstructionModel& model : instruction_models()) {
    // Without scales inside, these are their unscaled neighbours.
    if (traits_of(model.accumulator).takes_scales) continue;
    for (int i = 0; i < count; ++i) {
      const Scaling scaling = scalings[static_cast<std::size_t>(i) % scalings.size()];
      const FormatId output = outputs[static_cast<std::size_t>(i) % outputs.size()];
      // All finite codes of a 16-bit format, of FP8 in FP16, would overflow to infinities.
      const bool overflows = model.accumulator.output_format == FormatId::f16;
      const bool narrow = format(model.a_format).storage_bits == 8 && !overflows;
      const Kernel kernel(model, static_cast<std::uint64_t>(i) + 1, scaling, output,
                          narrow ? data : Data::normal);
      const std::vector<std::byte> got = kernel.output();
      const Identification result = identify(kernel.product, got);
      ++score.problems;
      // Sums of FP6 and FP4 fit all accumulators, so that these are not told apart.
      // Several units of processors round the same exact sums, or differ in tiny sums alone.
      const bool of_processor = model.name.starts_with("x86.") || model.name.starts_with("arm.");
      const bool wide = !of_processor && format(model.a_format).code_bits() >= 8 &&
                        format(model.b_format).code_bits() >= 8;
      score.of_wide += wide ? 1 : 0;
      INFO(model.name << ", promotion " << kernel.product.problem.promotion_interval << ", order "
                      << to_string(kernel.product.problem.scale_order) << ", C "
                      << to_string(kernel.product.problem.c_enters) << ", K in " << kernel.split_k
                      << ", problem " << i << "\n"
                      << describe(result));
      REQUIRE(result.explained());
      const ExplanationClass& best = result.ranking.front();
      CHECK(cannot_be_told_apart(kernel, best, got));
      const bool named = names_it(kernel, best);
      CHECK(named);
      score.named += named ? 1 : 0;
      score.alone += named && best.members.size() == 1 ? 1 : 0;
      const bool one_accumulator = std::all_of(
          best.members.begin(), best.members.end(),
          [&](const Explanation& one) { return one.models == best.members.front().models; });
      score.separated += named && one_accumulator && wide ? 1 : 0;
      if (!one_accumulator && wide) score.together += fmt::format("{} ", model.name);
    }
  }
  return score;
}

constexpr std::array kAllScalings{Scaling::none, Scaling::rows, Scaling::tiles};
constexpr std::array kF32{FormatId::f32};
constexpr std::array kNarrow{FormatId::bf16, FormatId::f16, FormatId::e4m3fn};

}  // namespace

void report(std::string_view data, const Score& score) {
  WARN(data << ": " << score.problems << " problems, named " << score.named << ", one accumulator "
            << score.separated << ", one hypothesis " << score.alone);
}

TEST_CASE("identify: names model, promotion and scale order of every registered model",
          "[verify][identify]") {
  const Score score = sweep(1, Data::wide, std::array{Scaling::tiles}, kF32);
  CHECK(score.named == score.problems);
  INFO("not told from others: " << score.together);
  CHECK(score.separated * 100 >= score.of_wide * 97);
}

TEST_CASE("identify: 16x16x1024, every registered model, all scalings", "[identify][slow]") {
  const int count = SweepShare().is_part() ? 3 : 12;  // of each model; 3 have each scaling once
  const Score wide = sweep(count, Data::wide, kAllScalings, kF32);
  report("all finite FP8 codes", wide);
  CHECK(wide.named == wide.problems);
  INFO("not told from others: " << wide.together);
  CHECK(wide.separated * 100 >= wide.of_wide * 97);
  // Sums of N(0, 1) in E4M3 often fit in 24 bits: nothing is lost, and wide accumulators agree.
  const Score normal = sweep(count, Data::normal, kAllScalings, kF32);
  report("N(0, 1)", normal);
  CHECK(normal.named == normal.problems);
}

TEST_CASE("identify: narrow outputs of every registered model", "[identify][slow]") {
  const SweepShare share;
  if (share.is_part()) {  // one output and scaling of each model: a problem takes a second or two
    const std::size_t drawn = share.draw();
    const Score score =
        sweep(1, Data::normal, std::array{kAllScalings[drawn % kAllScalings.size()]},
              std::array{kNarrow[drawn / kAllScalings.size() % kNarrow.size()]});
    CHECK(score.named == score.problems);
    return;
  }
  const Score score = sweep(6, Data::normal, kAllScalings, kNarrow);
  report("N(0, 1), bf16, f16 and e4m3fn", score);
  CHECK(score.named == score.problems);
}

TEST_CASE("identify: what no hypothesis explains is said so", "[verify][identify]") {
  const Kernel kernel(find_instruction_model("sm90.wgmma.e4m3"), 1, Scaling::tiles, FormatId::f32);
  std::vector<std::byte> got = kernel.output();
  got[4 * 37] ^= std::byte{1};
  const Identification one_off = identify(kernel.product, got);
  CHECK_FALSE(one_off.explained());
  CHECK(one_off.ranking.front().matches == 255);
  CHECK(names_it(kernel, one_off.ranking.front()));
  CHECK_THAT(describe(one_off), contains("unexplained: the best of"));
  const std::vector<std::byte> zeros(got.size());
  CHECK(identify(kernel.product, zeros).ranking.front().matches == 0);
  CHECK_THROWS_WITH(identify(kernel.product, std::span(got).first(4)), contains("1024 bytes"));
}

TEST_CASE("identify: the two best are separated by elements that they differ on",
          "[verify][identify]") {
  const Kernel kernel(find_instruction_model("sm90.wgmma.e4m3"), 2, Scaling::tiles, FormatId::f32);
  const Identification result = identify(kernel.product, kernel.output());
  REQUIRE(result.ranking.size() > 1);
  CHECK(result.separating.size() == kSeparatingShown);
  CHECK(result.separating_count == 256 - result.ranking[1].matches);
  for (const SeparatingElement& e : result.separating) {
    CHECK(e.got == e.first);
    CHECK(e.got != e.second);
  }
}

TEST_CASE("identify: data that cannot separate models is named so", "[verify][identify]") {
  Kernel kernel(find_instruction_model("sm90.wgmma.e4m3"), 1, Scaling::none, FormatId::f32);
  const std::vector<std::uint8_t> ones(16 * 1024, 0x38);
  kernel.product.problem.a = kernel.product.problem.b =
      CodeMatrix::row_major(FormatId::e4m3fn, ones, 16, 1024);
  const Identification result = identify(kernel.product, kernel.output());
  CHECK(result.explained());
  CHECK(names_it(kernel, result.ranking.front()));
  CHECK(result.ranking.front().members.size() > 50);
  CHECK_THAT(describe(result), contains("which this data cannot tell apart"));
}

TEST_CASE("identify: FNUZ outputs, whose NaN is the code of -0", "[verify][identify]") {
  for (const FormatId id : {FormatId::e4m3fnuz, FormatId::e5m2fnuz}) {
    Kernel kernel(find_instruction_model("exact"), 1, Scaling::rows, id, Data::wide);
    const std::vector<std::byte> got = kernel.output();
    const auto holds = [&](int code) {
      return std::find(got.begin(), got.end(), std::byte(code)) != got.end();
    };
    CHECK(holds(0x7f));  // 240 and 57344: the largest finite ones, to which sums saturate
    const Identification result = identify(kernel.product, got);
    CHECK(result.explained());
    CHECK(names_it(kernel, result.ranking.front()));
    CHECK(canonical_code(id, 0x7f) == 0x7f);
    CHECK(canonical_code(id, 0x80) == 0x80);
    CHECK(nan_code(id) == 0x80);
  }
}

TEST_CASE("identify: output roundings are told apart", "[verify][identify]") {
  for (const FormatId id : {FormatId::f32, FormatId::bf16, FormatId::f16, FormatId::e4m3fn}) {
    const Kernel kernel(find_instruction_model("sm90.wgmma.e4m3"), 5, Scaling::rows, id);
    Product product = take_k(kernel.product, 0, 256);
    product.problem.promotion_interval = 64;
    const std::vector<float> d = compute(product);
    for (const OutputRounding& rounding : output_roundings(id)) {
      const std::vector<std::uint32_t> codes = round_output(d, rounding);
      std::vector<std::byte> got;
      for (const std::uint32_t code : codes)
        for (int byte = 0; byte < format(id).storage_bits / 8; ++byte)
          got.push_back(static_cast<std::byte>(code >> (8 * byte) & 0xffu));
      const Identification result = identify(product, got);
      INFO(format(id).name << " " << rounding.name << "\n" << describe(result));
      REQUIRE(result.explained());
      const std::vector<Explanation>& members = result.ranking.front().members;
      CHECK(std::any_of(members.begin(), members.end(), [&](const Explanation& one) {
        return one.rounding == rounding.name &&
               one.promotion_interval == product.problem.promotion_interval;
      }));
    }
  }
}

TEST_CASE("identify: a larger output is judged whole, not on its sample", "[verify][identify]") {
  const RandomProduct random({.promotion_interval = 128}, {.shape = {96, 80, 256}});
  std::vector<std::byte> got = golden_output(random.product);
  CHECK(identify(random.product, got).explained());
  // Row 2 is not in a sample of 64 of 96 rows.
  const Sample sample{spread(96, 64), {}};
  REQUIRE(std::find(sample.rows.begin(), sample.rows.end(), 2) == sample.rows.end());
  got[4 * 2 * 80] ^= std::byte{1};
  const Identification result = identify(random.product, got);
  CHECK_FALSE(result.explained());
  CHECK(result.ranking.front().matches == 96 * 80 - 1);
}

TEST_CASE("identify: threads do not change the result", "[verify][identify]") {
  const Kernel kernel(find_instruction_model("sm89.mma.e4m3"), 3, Scaling::rows, FormatId::bf16);
  const std::vector<std::byte> got = kernel.output();
  CHECK(describe(identify(kernel.product, got, 1)) == describe(identify(kernel.product, got, 3)));
}

TEST_CASE("identify: every group's outputs are compared, each with its own", "[verify][identify]") {
  // Groups of 3, 12 and 5 rows, the last row in none.
  const RandomProduct random({.promotion_interval = 128}, {.shape = {21, 3 * 20, 256}});
  GemmOperands operands;
  operands.a.codes = view_of(ElementType::e4m3fn, {21, 256}, std::span(random.a));
  operands.b.codes = view_of(ElementType::e4m3fn, {3, 20, 256}, std::span(random.b));
  const GroupedProduct product =
      make_grouped_product(operands, {.model = "sm90.wgmma.e4m3", .promotion_interval = 128},
                           {GroupKind::row_ends, {3, 15, 20}, 0});
  const std::vector<std::byte> right = golden_output(product);
  const std::array<std::string, 2> models{"sm90.wgmma.e4m3", "exact"};
  const auto find = [&](const std::vector<std::byte>& got) {
    return identify(product, Operand("got", {ElementType::f32, {21, 20}, got}, nullptr), 1, models);
  };
  using Counts = std::vector<std::array<std::int64_t, 4>>;
  const auto counts = [](const GroupedIdentification& found) {
    Counts all;
    for (const GroupMatch& one : found.groups)
      all.push_back({one.group, one.first_row, static_cast<std::int64_t>(one.matches),
                     static_cast<std::int64_t>(one.compared)});
    return all;
  };
  const GroupedIdentification found = find(right);
  CHECK(found.explained());
  CHECK(found.group == 1);
  CHECK(found.found.ranking.front().members.front().promotion_interval == 128);
  CHECK(counts(found) == Counts{{0, 0, 60, 60}, {1, 3, 240, 240}, {2, 15, 100, 100}});
  CHECK_THAT(describe(found), contains("the first explanation holds for 3 of 3 groups"));
  // The first and last outputs of the groups beside the largest one, and one of the ungrouped row.
  std::vector<std::byte> wrong = right;
  for (const std::size_t at : {0U, 15U * 20U, 20U * 20U - 1U, 20U * 20U})
    wrong[4 * at] ^= std::byte{1};
  const GroupedIdentification partly = find(wrong);
  CHECK_FALSE(partly.explained());
  CHECK(partly.found.explained());
  CHECK(counts(partly) == Counts{{0, 0, 59, 60}, {1, 3, 240, 240}, {2, 15, 98, 100}});
  CHECK_THAT(describe(partly), contains("the first explanation holds for 1 of 3 groups") &&
                                   contains("group 0 (from row 0 of the output): 59 of 60") &&
                                   contains("group 2 (from row 15 of the output): 98 of 100"));
  CHECK_THROWS_WITH(
      identify(product, Operand("got", {ElementType::f32, {20, 21}, right}, nullptr), 1, models),
      contains("got: expected"));
}
