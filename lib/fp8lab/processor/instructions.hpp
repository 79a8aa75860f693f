#pragma once
// The dot-product instructions of processors that this build can execute.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace fp8lab {

/// An instruction that adds dot products of 16-bit operands to binary32 sums.
struct CpuInstruction {
  std::string_view name;   ///< mnemonic
  std::string_view model;  ///< its registered model, which has the formats of the operands
  int terms;               ///< products of one output
  int outputs;             ///< independent outputs of one execution

  /// Whether the processor and the operating system have it.
  bool (*available)();

  /// Adds to each of `outputs` sums, binary32 bits, the dot product of its `terms` codes of a and
  /// of b, which stand one output after the other. Only where it is available.
  void (*execute)(const std::uint16_t* a, const std::uint16_t* b, std::uint32_t* sums);
};

/// Those that this build can execute, whether the processor has them or not.
std::span<const CpuInstruction> cpu_instructions();

/// Vendor and family of the processor, in words: what decides which rules it follows.
std::string processor_family();

}  // namespace fp8lab
