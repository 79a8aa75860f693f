// Processors without an instruction of the tables.

#if !defined(__x86_64__) && !defined(__aarch64__)

#include <span>
#include <string>

#include "fp8lab/core/machine.hpp"
#include "fp8lab/processor/instructions.hpp"

namespace fp8lab {

std::span<const CpuInstruction> cpu_instructions() { return {}; }

std::string processor_family() { return this_machine().cpu; }

}  // namespace fp8lab

#endif
