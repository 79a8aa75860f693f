// What is stored beside a code, in the same word, does not count: TF32's lowest bits, and what is
// above a code of fewer than 8 bits.

#include <utility>

#include "catch.hpp"
#include "gemm/problems.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

/// Sets the bits of a matrix's elements that are no part of their codes, at random.
void fill_other_bits(OwnedMatrix& matrix, std::uint64_t seed) {
  const CodeMatrix& m = matrix.view;
  const Format& f = format(m.format);
  const auto code_bits = static_cast<std::uint32_t>((std::uint64_t{1} << f.code_bits()) - 1);
  const std::uint32_t others =
      f.storage_bits == 32 ? (1U << (23 - f.mantissa_bits)) - 1 : 0xffU & ~code_bits;
  const auto width = static_cast<std::int64_t>(f.storage_bits / 8);
  const RandomStream random(seed, "other bits");
  for (std::int64_t r = 0; r < m.rows; ++r)
    for (std::int64_t k = 0; k < m.k; ++k) {
      unsigned char* at = matrix.bytes.data() + (r * m.row_stride + k * m.k_stride) * width;
      std::uint32_t word = 0;
      std::memcpy(&word, at, static_cast<std::size_t>(width));
      word |= random.bits32(static_cast<std::uint64_t>(r * m.k + k)) & others;
      std::memcpy(at, &word, static_cast<std::size_t>(width));
    }
}

/// The problem keeps its bits on every target, whatever is beside its codes.
void check_other_bits(const InstructionModel& model, Shape shape, Data data, std::uint64_t seed) {
  Operands operands(model, shape, data, seed % 2 == 0 ? Start::none : Start::normal, seed);
  std::vector<float> clean(static_cast<std::size_t>(shape.m * shape.n));
  gemm_reference(operands.problem, clean);
  fill_other_bits(operands.a, seed);
  fill_other_bits(operands.b, seed + 1);
  std::vector<float> filled(clean.size());
  gemm_reference(operands.problem, filled);
  INFO(model.name << " on " << format(model.a_format).name << " x " << format(model.b_format).name
                  << ", " << shape.m << "x" << shape.n << "x" << shape.k << ", seed " << seed);
  CHECK(compare(operands.problem, clean, filled) == "equal");
  check_all_targets(operands.problem);
}

// Few rows along k, few columns, a row more than a panel's few, and a block of rows.
constexpr Shape kStorageShapes[] = {
    {1, 70, 37}, {2, 131, 40}, {5, 67, 33}, {21, 3, 50}, {9, 40, 64}};

}  // namespace

TEST_CASE("the lowest bits of TF32's words do not count", "[gemm]") {
  std::uint64_t seed = 61000;
  for (const std::string_view name :
       {"sm80.mma.tf32", "sm90.mma.tf32", "sm90.mma.f16.f16", "sm90.mma.f16:F=36",
        "gfx942.mfma.xf32", "gfx908.mfma.bf16", "gfx90a.mfma.bf16", "exact", "exact32", "fp32",
        "sequential14.rz", "sequential14.rne", "seed.listing"})
    for (const Shape shape : kStorageShapes)
      for (const auto& [a, b] :
           {std::pair{FormatId::tf32, FormatId::tf32}, std::pair{FormatId::tf32, FormatId::e5m2},
            std::pair{FormatId::f16, FormatId::tf32}}) {
        ++seed;
        check_other_bits(with_formats(name, a, b), shape,
                         seed / 2 % 2 == 0 ? Data::normal : Data::specials, seed);
      }
}

TEST_CASE("what is above a code of fewer than 8 bits does not count", "[gemm]") {
  using enum FormatId;
  std::uint64_t seed = 62000;
  for (const std::string_view name :
       {"sm90.wgmma.e4m3", "sm89.mma.e4m3", "sm90.wgmma.e4m3.f16", "sm100.tcgen05.e4m3",
        "sm90.mma.e4m3", "sm90.mma.e4m3.f16.separate", "exact", "exact32", "fp32",
        "sequential14.rz", "sequential14.rne", "seed.listing", "gfx942.mfma.fp8", "gfx942.mfma.f16",
        "gfx908.mfma.f16", "gfx90a.mfma.f16", "sm100.tcgen05.mxf8f6f4.e4m3"})
    for (const Shape shape : kStorageShapes) {
      check_other_bits(with_formats(name, e2m1, e2m1), shape, Data::finite, ++seed);
      check_other_bits(with_formats(name, e2m3, e4m3fn), shape, Data::finite, ++seed);
      check_other_bits(with_formats(name, e5m2, e3m2), shape, Data::finite, ++seed);
    }
  for (const std::string_view name : {"sm100.tcgen05.mxf4nvf4", "sm120.mma.mxf4nvf4"})
    for (const Shape shape : kStorageShapes)
      check_other_bits(find_instruction_model(name), shape, Data::finite, ++seed);
}
