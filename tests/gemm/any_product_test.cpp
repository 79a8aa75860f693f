// Products of every kind at once: models, formats, layouts, C and its places, promotion, scales of
// any tiles, and odd shapes. Each output is computed once more from the description in gemm.hpp,
// with indices of its own, and is that of the reference and of every target.

#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <string>

#include "catch.hpp"
#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/accumulate/definition.hpp"
#include "fp8lab/accumulate/unit.hpp"
#include "gemm/problems.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

/// Draws of one product, one after the other.
class ProductDraws {
 public:
  explicit ProductDraws(std::uint64_t seed) : stream_(seed, "any product") {}
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(stream_.below(at_++, static_cast<std::uint64_t>(bound)));
  }
  bool one_in(std::int64_t bound) { return below(bound) == 0; }
  template <typename List>
  auto any_of(const List& list) {
    return *(std::begin(list) + below(std::ssize(list)));
  }
  float scale() { return std::exp2(static_cast<float>(stream_.normal(at_++))); }

 private:
  RandomStream stream_;
  std::uint64_t at_ = 0;
};

/// Codes that lie anywhere: dense rows, columns, both apart, or rows apart, among bytes of NaN.
struct ScatteredMatrix {
  std::vector<std::uint32_t> codes;  ///< [rows][k]
  std::vector<unsigned char> bytes;
  CodeMatrix view;

  ScatteredMatrix(FormatId id, std::int64_t rows, std::int64_t k, Data data, std::uint64_t seed,
                  std::string_view name, std::int64_t layout) {
    const Format& f = format(id);
    const std::int64_t width = f.storage_bits / 8;
    const bool by_column = layout == 1;
    const std::int64_t apart = layout == 2 ? 2 : 1;
    const std::int64_t leading = apart * (by_column ? rows : k) + (layout == 0 ? 0 : 5);
    view = {id, nullptr, rows, k, by_column ? 1 : leading, by_column ? leading : apart};
    bytes.assign(static_cast<std::size_t>((leading * ((by_column ? k : rows) + 1)) * width), 0xff);
    view.data = bytes.data();
    const RandomStream stream(seed, name);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t t = 0; t < k; ++t) {
        codes.push_back(random_code(f, data, stream, static_cast<std::uint64_t>(r * k + t)));
        std::uint32_t word = codes.back();
        if (width == 4) word <<= 23 - f.mantissa_bits;
        std::memcpy(bytes.data() + (r * view.row_stride + t * view.k_stride) * width, &word,
                    static_cast<std::size_t>(width));
      }
  }
  [[nodiscard]] std::vector<std::uint32_t> part(std::int64_t row, std::int64_t begin,
                                                std::int64_t end) const {
    return {codes.begin() + row * view.k + begin, codes.begin() + row * view.k + end};
  }
};

/// Scales by tile.
struct TileScales {
  std::vector<float> values;
  InverseScales view;

  [[nodiscard]] bool vary(std::int64_t k) const {
    return !values.empty() && view.k_block != 0 && view.k_block < k;
  }
  [[nodiscard]] float block(std::int64_t row, std::int64_t k, std::int64_t length) const {
    if (values.empty()) return 1.0F;
    const std::int64_t side = view.k_block == 0 ? length : view.k_block;
    const std::int64_t tiles = (length + side - 1) / side;
    return values[static_cast<std::size_t>(row / view.row_block * tiles + k / side)];
  }
  [[nodiscard]] float at(std::int64_t row, std::int64_t k, std::int64_t length) const {
    return block(row, k, length) * view.tensor_scale;
  }
};

struct AnyProduct {
  Shape shape;
  ScatteredMatrix a;
  ScatteredMatrix b;
  std::vector<float> c;
  TileScales scale_a;
  TileScales scale_b;
  bool must_vary;        ///< scales of one operand change along K
  bool by_unit = false;  ///< the instruction applies the scales
  FormatId scale_format = FormatId::e8m0fnu;
  GemmProblem problem;

  AnyProduct(const InstructionModel& m, Shape size, Data data, Start start, std::uint64_t seed,
             ProductDraws& draws, bool in_blocks)
      : shape(size),
        a(m.a_format, size.m, size.k, data, seed, "a", draws.below(4)),
        b(m.b_format, size.n, size.k, draws.one_in(4) ? Data::normal : data, seed, "b",
          draws.below(4)),
        c(random_c(start, size.m * size.n, RandomStream(seed, "c"))),
        must_vary(in_blocks) {
    problem.model = m.accumulator;
    problem.a = a.view;
    problem.b = b.view;
    if (start != Start::none) problem.c = c.data();
    if (draws.one_in(2) || must_vary) {
      const std::int64_t steps[] = {1, 2, 3, 4, 8};
      problem.promotion_interval = m.accumulator.terms * draws.any_of(steps);
      if (m.accumulator.terms == 1) problem.promotion_interval = draws.any_of(kIntervals);
    }
    problem.scale_order = draws.any_of(scale_orders());
    draw_scales(draws);
    problem.scale_a = scale_a.view;
    problem.scale_b = scale_b.view;
    if (problem.c != nullptr) problem.c_enters = draws.any_of(places());
  }

  /// The value of one output.
  [[nodiscard]] float output(std::int64_t i, std::int64_t j) const {
    const float of_c = problem.c == nullptr ? 0.0F : c[static_cast<std::size_t>(i * shape.n + j)];
    if (shape.k == 0) return of_c;
    const CPlacement place = problem.c_enters;
    const bool first = place == CPlacement::accumulator || place == CPlacement::unnamed;
    const std::int64_t interval = problem.promotion_interval;
    const bool blocks = scales_by_block();
    float sum = place == CPlacement::promoted_sum ? of_c : 0.0F;
    for (std::int64_t begin = 0; begin < shape.k;) {
      const std::int64_t end = interval == 0 ? shape.k : std::min(begin + interval, shape.k);
      const float partial = part(i, j, begin, end, begin == 0 && first ? of_c : 0.0F);
      if (blocks)
        sum = scaled(partial, scale_a.at(i, begin, shape.k), scale_b.at(j, begin, shape.k), sum);
      else
        sum = interval == 0 ? partial : sum + partial;
      begin = end;
    }
    const float last = place == CPlacement::epilogue ? of_c : 0.0F;
    if (scales_the_whole())
      return by_unit ? scaled(sum, scale_a.view.tensor_scale, scale_b.view.tensor_scale, last)
                     : scaled(sum, scale_a.at(i, 0, shape.k), scale_b.at(j, 0, shape.k), last);
    return place == CPlacement::epilogue ? sum + of_c : sum;
  }

 private:
  static constexpr std::int64_t kIntervals[] = {1, 7, 12, 16, 32, 33, 48, 96};

  [[nodiscard]] bool scales_by_block() const {
    return !by_unit && (scale_a.vary(shape.k) || scale_b.vary(shape.k));
  }
  [[nodiscard]] bool scales_the_whole() const {
    if (by_unit) return scale_a.view.tensor_scale != 1.0F || scale_b.view.tensor_scale != 1.0F;
    return !scales_by_block() && (!scale_a.values.empty() || !scale_b.values.empty());
  }
  [[nodiscard]] std::vector<CPlacement> places() const {
    using enum CPlacement;
    if (problem.promotion_interval > 0 && !scales_the_whole())
      return {accumulator, promoted_sum, epilogue};
    if (problem.promotion_interval > 0 || scales_the_whole()) return {accumulator, epilogue};
    return {unnamed, accumulator, epilogue};
  }

  void draw_scales(ProductDraws& draws) {
    by_unit = traits_of(problem.model).takes_scales && !draws.one_in(4) && !must_vary;
    std::int64_t block = 0;
    if (by_unit) {
      block = draws.one_in(2) ? 16 : 32;
      scale_format = draws.one_in(2) ? FormatId::e4m3fn : FormatId::e8m0fnu;
      if (!unit_of(problem.model.kind)
               .takes_scales(problem.model, scale_format, static_cast<int>(block))) {
        block = 32;
        scale_format = FormatId::e8m0fnu;
      }
    } else if (problem.promotion_interval > 0 && (draws.one_in(2) || must_vary)) {
      block = problem.promotion_interval * (1 + draws.below(3));
      // Of 32 terms they would be the instruction's own.
      if (traits_of(problem.model).takes_scales && block == 32) block = 64;
    }
    const bool first_varies = draws.one_in(2);
    const auto draw = [&](TileScales& scales, std::int64_t rows) {
      const bool alone = by_unit && &scales == &scale_b && scale_a.values.empty();
      if (!alone && !must_vary && draws.one_in(by_unit ? 4 : 2)) return;
      const bool varies = must_vary && (&scales == &scale_a) == first_varies;
      const std::int64_t row_blocks[] = {1, 2, 3, 5, 64, rows, rows + 1};
      scales.view.row_block = std::max<std::int64_t>(draws.any_of(row_blocks), 1);
      // Of either operand alone: all of K, or more than that.
      scales.view.k_block = block;
      if (!by_unit && !varies && draws.one_in(3)) scales.view.k_block = 0;
      if (!by_unit && !varies && draws.one_in(8))
        scales.view.k_block = (block == 0 ? 1 : block) * (shape.k + 1);
      const std::int64_t side = scales.view.k_block == 0 ? shape.k : scales.view.k_block;
      const std::int64_t tiles = shape.k == 0 ? 0 : (shape.k + side - 1) / side;
      const std::int64_t count = (rows + scales.view.row_block - 1) / scales.view.row_block * tiles;
      for (std::int64_t i = 0; i < count; ++i) {
        float value = draws.scale();
        if (by_unit && scale_format == FormatId::e8m0fnu) {
          value = std::ldexp(1.0F, static_cast<int>(draws.below(draws.one_in(9) ? 120 : 12)) - 6);
          if (draws.one_in(200)) value = std::numeric_limits<float>::quiet_NaN();
        }
        if (by_unit && scale_format == FormatId::e4m3fn)
          value = decode_table(FormatId::e4m3fn)[static_cast<std::size_t>(draws.below(0x7f))];
        scales.values.push_back(value);
      }
      if (scales.values.empty()) return;
      if (draws.one_in(3)) scales.view.tensor_scale = draws.scale();
      if (by_unit) scales.view.format = scale_format;
      scales.view.values = scales.values;
    };
    draw(scale_a, shape.m);
    draw(scale_b, shape.n);
    by_unit = by_unit && (!scale_a.values.empty() || !scale_b.values.empty());
  }

  /// c and the products of terms [begin, end), with the instruction's own scales.
  [[nodiscard]] float part(std::int64_t i, std::int64_t j, std::int64_t begin, std::int64_t end,
                           float start) const {
    const auto x = a.part(i, begin, end);
    const auto y = b.part(j, begin, end);
    if (!by_unit) return dot_product(problem.model, a.view.format, x, b.view.format, y, start);
    const std::int64_t block = scale_a.values.empty() ? scale_b.view.k_block : scale_a.view.k_block;
    const auto codes = [&](const TileScales& scales, std::int64_t row) {
      std::vector<std::uint32_t> all;
      for (std::int64_t k = begin; k < end; k += block) {
        const float value = scales.block(row, k, shape.k);
        std::uint32_t code = 0;
        while (code < 0xff && decode(format(scale_format), code) != static_cast<double>(value))
          ++code;
        all.push_back(code);
      }
      return all;
    };
    const auto of_a = codes(scale_a, i);
    const auto of_b = codes(scale_b, j);
    return dot_product(problem.model, a.view.format, x, b.view.format, y,
                       {scale_format, static_cast<int>(block), of_a, of_b}, start);
  }

  [[nodiscard]] float scaled(float partial, float of_a, float of_b, float sum) const {
    switch (problem.scale_order) {
      case ScaleOrder::product_then_fma:
        return std::fma(of_a * of_b, partial, sum);
      case ScaleOrder::product_then_add:
        return sum + (of_a * of_b) * partial;
      case ScaleOrder::a_then_fma_b:
        return std::fma(partial * of_a, of_b, sum);
      case ScaleOrder::b_then_fma_a:
        return std::fma(partial * of_b, of_a, sum);
      case ScaleOrder::a_then_b_then_add:
        return sum + (partial * of_a) * of_b;
    }
    return sum;
  }
};

constexpr Data kProductData[] = {Data::normal, Data::normal, Data::positive, Data::wide,
                                 Data::finite, Data::sparse, Data::specials, Data::codes,
                                 Data::tiny,   Data::ties,   Data::ends,     Data::one_huge};
constexpr Start kProductStarts[] = {Start::none, Start::normal,    Start::wide,     Start::extreme,
                                    Start::tiny, Start::scattered, Start::scattered};
constexpr std::int64_t kRowCounts[] = {1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 33, 65};
constexpr std::int64_t kColumnCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 31, 33, 63, 64, 65, 66, 130};

Shape draw_shape(const AccumulatorModel& m, ProductDraws& draws) {
  Shape shape{draws.any_of(kRowCounts), draws.any_of(kColumnCounts), 0};
  if (shape.m == 1 && draws.one_in(2)) shape.n = draws.one_in(2) ? 64 : 130;
  if (shape.m == 2 && draws.one_in(2)) shape.n = 130;
  while (shape.m * shape.n > 280) (shape.m > shape.n ? shape.m : shape.n) /= 2;
  const std::int64_t terms = std::max(m.terms, 8);
  shape.k = draws.below(2 * terms + 2);
  if (draws.one_in(6)) shape.k = 4 * terms + draws.below(9) - 4;
  // More than is packed at a time.
  if (shape.m * shape.n < 40 && draws.one_in(3)) shape.k = 490 + draws.below(90);
  return shape;
}

std::uint32_t canonical_bits(float x) {
  return std::isnan(x) ? kCanonicalNan : std::bit_cast<std::uint32_t>(x);
}

/// Leaves NaN in the memory that the product will get: whatever packing does not write is seen.
void leave_nan(const GemmProblem& given, Target target) {
  const std::int64_t k = (given.a.k + 63) / 64 * 64;
  const std::vector<unsigned char> codes(
      static_cast<std::size_t>(std::max(given.a.rows, given.b.rows) * k * 4), 0xff);
  GemmProblem p;
  p.model = given.model;
  p.a = {given.a.format, codes.data(), given.a.rows, k, k, 1};
  p.b = {given.b.format, codes.data(), given.b.rows, k, k, 1};
  std::vector<float> d(static_cast<std::size_t>(given.a.rows * given.b.rows));
  gemm_with_target(p, d, target, 1);
}

void check_product(const InstructionModel& m, std::uint64_t seed,
                   std::optional<Shape> given = std::nullopt, bool in_blocks = false) {
  ProductDraws draws(seed);
  const Shape drawn = draw_shape(m.accumulator, draws);
  const Shape shape = given ? *given : drawn;
  const Data data = draws.any_of(kProductData);
  const Start start = draws.any_of(kProductStarts);
  const AnyProduct product(m, shape, data, start, seed, draws, in_blocks);
  const GemmProblem& p = product.problem;
  std::vector<float> expected;
  for (std::int64_t i = 0; i < shape.m; ++i)
    for (std::int64_t j = 0; j < shape.n; ++j)
      expected.push_back(std::bit_cast<float>(canonical_bits(product.output(i, j))));
  INFO(m.name << " seed " << seed << ": " << shape.m << "x" << shape.n << "x" << shape.k
              << ", data " << static_cast<int>(data) << ", start " << static_cast<int>(start)
              << ", promotion " << p.promotion_interval << ", scales of a per "
              << p.scale_a.row_block << "x" << p.scale_a.k_block << " (" << p.scale_a.values.size()
              << "), of b per " << p.scale_b.row_block << "x" << p.scale_b.k_block << " ("
              << p.scale_b.values.size() << "), " << to_string(p.scale_order) << ", C "
              << to_string(p.c_enters) << ", strides " << p.a.row_stride << "," << p.a.k_stride
              << " and " << p.b.row_stride << "," << p.b.k_stride);
  std::vector<float> got(expected.size(), 42.0F);
  gemm_reference(p, got);
  INFO("reference");
  CHECK(compare(p, expected, got) == "equal");
  const bool tall = shape.m > 64;  // blocks of rows, together or a thread's own
  for (const Target target : available_targets())
    for (const int threads : {1, 3}) {
      if (target == Target::scalar || (!tall && threads != (seed % 5 == 0 ? 3 : 1))) continue;
      if (seed % 2 == 0) leave_nan(p, target);
      got.assign(expected.size(), 42.0F);
      gemm_with_target(p, got, target, threads);
      INFO(to_string(target) << ", " << threads << " threads, " << gemm_method(p));
      CHECK(compare(p, expected, got) == "equal");
    }
}

/// Each accumulator with each pair of formats once.
std::vector<const InstructionModel*> distinct_models() {
  std::vector<const InstructionModel*> models;
  std::set<std::string> seen;
  for (const InstructionModel& m : instruction_models())
    if (seen.insert(definition_of(m.accumulator, m.a_format, m.b_format)).second)
      models.push_back(&m);
  return models;
}

}  // namespace

TEST_CASE("any product of a registered model is what its description says", "[gemm][any]") {
  std::uint64_t seed = 90000;
  for (const InstructionModel* m : distinct_models())
    for (int i = 0; i < 10; ++i) check_product(*m, ++seed);
}

TEST_CASE("any product of other formats is what its description says", "[gemm][any]") {
  std::uint64_t seed = 95000;
  for (const std::string_view name :
       {"exact", "exact32", "fp32", "sequential14.rne", "sequential14.rz", "seed.listing",
        "sm90.mma.e4m3", "sm90.mma.e4m3.f16.separate", "sm90.wgmma.e4m3", "sm80.mma.f16",
        "gfx908.mfma.f16", "gfx90a.mfma.f16", "gfx942.mfma.f16", "gfx942.mfma.fp8"})
    for (int i = 0; i < 40; ++i) {
      ProductDraws draws(++seed + 1000000);
      const auto any = [&] { return kFormats[static_cast<std::size_t>(draws.below(11))].id; };
      const InstructionModel m = with_formats(name, any(), any());
      if (takes_formats(m.accumulator, m.a_format, m.b_format)) check_product(m, seed);
    }
}

TEST_CASE("any product of few rows is what its description says", "[gemm][any]") {
  // Enough columns for kernels along k and for parts of the columns, the last one short.
  std::uint64_t seed = 97000;
  for (const InstructionModel* m : distinct_models()) {
    const bool halves = m->accumulator.kind == AccumulationKind::fp16_halves;
    for (int i = 0; i < (halves ? 12 : 2); ++i) {
      ProductDraws draws(++seed);
      const std::int64_t terms = std::max(m->accumulator.terms, 8);
      const std::int64_t rows = 1 + draws.below(2);
      const std::int64_t columns = halves ? 129 + draws.below(140) : 64 * rows + draws.below(9);
      check_product(*m, seed, Shape{rows, columns, 1 + draws.below(2 * terms + 1)});
    }
  }
}

TEST_CASE("any product of several blocks of rows is what its description says", "[gemm][any]") {
  // Too many columns to be taken for rows; each thread has a block of rows of its own.
  std::uint64_t seed = 99000;
  for (const InstructionModel* m : distinct_models()) {
    ProductDraws draws(++seed);
    const std::int64_t rows = 65 + draws.below(9);
    check_product(
        *m, seed,
        Shape{rows, rows / 4 + 1, 1 + draws.below(2 * std::max(m->accumulator.terms, 8))});
  }
}

TEST_CASE("scales along K of several blocks of rows are those of their rows", "[gemm][any]") {
  std::uint64_t seed = 99500;
  for (const std::string_view name :
       {"exact", "exact32", "fp32", "sequential14.rne", "sequential14.rz", "seed.listing",
        "sm90.wgmma.e4m3", "sm90.wgmma.e5m2.f16", "sm90.mma.f16", "sm80.mma.f16.f16",
        "sm100.mma.e4m3", "sm90.mma.e4m3.f16.separate", "gfx908.mfma.f16", "gfx90a.mfma.bf16",
        "gfx942.mfma.f16", "gfx942.mfma.fp8", "gfx942.mfma.f32", "sm120.mma.mxf8f6f4.e4m3",
        "sm100.tcgen05.mxf4nvf4"})
    for (int i = 0; i < 4; ++i) {
      // A block of 64 rows and more, any product, and few rows of many columns.
      ProductDraws draws(++seed);
      const InstructionModel& m = find_instruction_model(name);
      const std::int64_t rows = i == 0 ? 65 + draws.below(9) : i == 3 ? 1 : 1 + draws.below(20);
      const std::int64_t columns = i == 0   ? 18 + draws.below(3)
                                   : i == 3 ? 129 + draws.below(140)
                                            : 1 + draws.below(40);
      const std::int64_t terms = std::max(m.accumulator.terms, 8);
      check_product(m, seed, Shape{rows, columns, 3 * terms + draws.below(terms)}, true);
    }
}

TEST_CASE("any product with the instruction's own scales is what its description says",
          "[gemm][any]") {
  std::uint64_t seed = 101000;
  for (const InstructionModel* m : distinct_models()) {
    if (!traits_of(m->accumulator).takes_scales) continue;
    for (int i = 0; i < 8; ++i) {
      ProductDraws draws(++seed);
      const std::int64_t rows = i % 2 == 0 ? 9 + draws.below(16) : 1;
      const std::int64_t columns = i % 2 == 0 ? 17 + draws.below(24) : 64 + draws.below(20);
      check_product(*m, seed, Shape{rows, columns, 1 + draws.below(4 * m->accumulator.terms)});
    }
  }
}

TEST_CASE("any product of few rows of other formats of 8 bits is what its description says",
          "[gemm][any]") {
  constexpr std::string_view kNames[] = {"sm89.mma.e4m3",
                                         "sm89.mma.e4m3.f16",
                                         "sm90.wgmma.e4m3",
                                         "sm90.wgmma.e4m3:terms=24",
                                         "sm100.mma.e4m3",
                                         "sm120.mma.e4m3",
                                         "exact",
                                         "exact32",
                                         "gfx942.mfma.fp8",
                                         "gfx942.mfma.f16",
                                         "sm90.mma.e4m3.f16"};
  std::uint64_t seed = 103000;
  for (const std::string_view name : kNames)
    for (int i = 0; i < 10; ++i) {
      ProductDraws draws(++seed);
      using enum FormatId;
      const auto any = [&] {
        return draws.any_of(std::array{e4m3fn, e5m2, e4m3fnuz, e5m2fnuz, e2m1, e2m3, e3m2});
      };
      const InstructionModel m = with_formats(name, any(), any());
      const std::int64_t terms = std::max(m.accumulator.terms, 8);
      check_product(m, seed, Shape{1, 64 + draws.below(9), 1 + draws.below(3 * terms)});
    }
}

TEST_CASE("scales of both levels are multiplied first, wherever C enters a product",
          "[gemm][any]") {
  std::uint64_t seed = 105000;
  for (const std::string_view name :
       {"sm90.wgmma.e4m3", "sm80.mma.f16", "sm90.mma.e4m3", "exact", "fp32", "gfx942.mfma.fp8",
        "sm90.mma.e4m3.f16.separate", "sequential14.rne"})
    for (int i = 0; i < 40; ++i) {
      ProductDraws draws(++seed);
      const InstructionModel& m = find_instruction_model(name);
      const std::int64_t terms = std::max(m.accumulator.terms, 8);
      check_product(m, seed,
                    Shape{1 + draws.below(4), 1 + draws.below(9), terms + draws.below(3 * terms)},
                    i % 4 != 0);
    }
}
