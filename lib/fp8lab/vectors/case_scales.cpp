// The block scales of generated cases.

#include <array>

#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/vectors/case_builder.hpp"

namespace fp8lab {
namespace detail {

std::vector<std::uint8_t> scale_codes(const ScaleBlocks& scales, int terms, bool special,
                                      Draws& draws) {
  const bool exponents = scales.format == ScaleFormat::ue8m0;
  const int one = exponents ? 127 : 0x38;
  std::vector<std::uint8_t> codes(
      static_cast<std::size_t>((terms + scales.block - 1) / scales.block));
  for (std::uint8_t& code : codes) {
    const int offset = exponents ? draws.between(-8, 8) : draws.between(-0x30, 0x30);
    code = static_cast<std::uint8_t>(draws.one_in(3) ? one : one + offset);
    constexpr std::array<std::uint8_t, 5> kSpecial{0, 1, 0x7f, 0xfe, 0xff};
    if (special && draws.one_in(8)) code = kSpecial[static_cast<std::size_t>(draws.between(0, 4))];
  }
  return codes;
}

}  // namespace detail

std::optional<ScaleBlocks> scales_of_cases(const InstructionModel& model) {
  return common_scales(model, model);
}

std::optional<ScaleBlocks> common_scales(const InstructionModel& first,
                                         const InstructionModel& second) {
  const auto takes = [](const InstructionModel& model, const ScaleBlocks& scales) {
    return unit_of(model.accumulator.kind)
        .takes_scales(model.accumulator, magnitude_format(scales.format).id, scales.block);
  };
  for (const ScaleBlocks scales :
       {ScaleBlocks{ScaleFormat::ue4m3, 16}, ScaleBlocks{ScaleFormat::ue8m0, 32}})
    if (takes(first, scales) && takes(second, scales)) return scales;
  return std::nullopt;
}

}  // namespace fp8lab
