#include "probes/instructions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace fp8lab::cuda {
namespace {

using enum FormatId;
using enum Family;

constexpr ScaleBlocks kUe8m0Per32{ScaleFormat::ue8m0, 32};
constexpr ScaleBlocks kUe4m3Per16{ScaleFormat::ue4m3, 16};

constexpr Instruction kInstructions[] = {
    {"wgmma.m64n64k32.f32.e4m3.e4m3.shared", "wgmma.e4m3", e4m3fn, e4m3fn, wgmma},
    {"wgmma.m64n64k32.f32.e5m2.e5m2.shared", "wgmma.e5m2", e5m2, e5m2, wgmma},
    {"wgmma.m64n64k32.f32.e4m3.e5m2.shared", "wgmma.e4m3.e5m2", e4m3fn, e5m2, wgmma},
    {"wgmma.m64n64k32.f32.e5m2.e4m3.shared", "wgmma.e5m2.e4m3", e5m2, e4m3fn, wgmma},
    {"wgmma.m64n64k32.f32.e4m3.e4m3.registers", "wgmma.e4m3", e4m3fn, e4m3fn, wgmma},
    {"wgmma.m64n64k32.f32.e5m2.e5m2.registers", "wgmma.e5m2", e5m2, e5m2, wgmma},
    {"wgmma.m64n64k32.f32.e4m3.e5m2.registers", "wgmma.e4m3.e5m2", e4m3fn, e5m2, wgmma},
    {"wgmma.m64n64k32.f32.e5m2.e4m3.registers", "wgmma.e5m2.e4m3", e5m2, e4m3fn, wgmma},
    {"wgmma.m64n8k32.f32.e4m3.e4m3.shared", "wgmma.e4m3", e4m3fn, e4m3fn, wgmma},
    {"wgmma.m64n256k32.f32.e4m3.e4m3.shared", "wgmma.e4m3", e4m3fn, e4m3fn, wgmma},
    {"wgmma.m64n64k32.f32.e4m3.e4m3.shared.negated_a", "wgmma.e4m3", e4m3fn, e4m3fn, wgmma},
    {"wgmma.m64n64k32.f32.e4m3.e4m3.shared.negated_b", "wgmma.e4m3", e4m3fn, e4m3fn, wgmma},
    {"wgmma.m64n64k16.f32.f16.f16.shared.negated_a", "wgmma.f16", f16, f16, wgmma},
    {"wgmma.sp.m64n64k64.f32.e4m3.e4m3.shared", "wgmma.e4m3", e4m3fn, e4m3fn, wgmma},
    {"wgmma.sp.m64n64k64.f32.e5m2.e5m2.shared", "wgmma.e5m2", e5m2, e5m2, wgmma},
    {"wgmma.sp.m64n64k32.f32.f16.f16.shared", "wgmma.f16", f16, f16, wgmma},

    {"wgmma.m64n64k32.f16.e4m3.e4m3.shared", "wgmma.e4m3.f16", e4m3fn, e4m3fn, wgmma},
    {"wgmma.m64n64k32.f16.e5m2.e5m2.shared", "wgmma.e5m2.f16", e5m2, e5m2, wgmma},
    {"wgmma.m64n64k32.f16.e4m3.e5m2.shared", "wgmma.e4m3.e5m2.f16", e4m3fn, e5m2, wgmma},
    {"wgmma.m64n64k32.f16.e5m2.e4m3.shared", "wgmma.e5m2.e4m3.f16", e5m2, e4m3fn, wgmma},
    {"wgmma.m64n64k32.f16.e4m3.e4m3.registers", "wgmma.e4m3.f16", e4m3fn, e4m3fn, wgmma},
    {"wgmma.m64n64k32.f16.e5m2.e5m2.registers", "wgmma.e5m2.f16", e5m2, e5m2, wgmma},
    {"wgmma.m64n64k32.f16.e4m3.e5m2.registers", "wgmma.e4m3.e5m2.f16", e4m3fn, e5m2, wgmma},
    {"wgmma.m64n64k32.f16.e5m2.e4m3.registers", "wgmma.e5m2.e4m3.f16", e5m2, e4m3fn, wgmma},

    {"wgmma.m64n64k16.f32.f16.f16.shared", "wgmma.f16", f16, f16, wgmma},
    {"wgmma.m64n64k16.f32.bf16.bf16.shared", "wgmma.bf16", bf16, bf16, wgmma},
    {"wgmma.m64n64k8.f32.tf32.tf32.shared", "wgmma.tf32", tf32, tf32, wgmma},
    {"wgmma.m64n64k16.f32.f16.f16.registers", "wgmma.f16", f16, f16, wgmma},
    {"wgmma.m64n64k16.f32.bf16.bf16.registers", "wgmma.bf16", bf16, bf16, wgmma},
    {"wgmma.m64n64k8.f32.tf32.tf32.registers", "wgmma.tf32", tf32, tf32, wgmma},
    {"wgmma.m64n64k16.f16.f16.f16.shared", "wgmma.f16.f16", f16, f16, wgmma},
    {"wgmma.m64n64k16.f16.f16.f16.registers", "wgmma.f16.f16", f16, f16, wgmma},

    {"mma.m16n8k32.f32.e4m3.e4m3", "mma.e4m3", e4m3fn, e4m3fn, mma_fp8},
    {"mma.m16n8k32.f32.e5m2.e5m2", "mma.e5m2", e5m2, e5m2, mma_fp8},
    {"mma.m16n8k32.f32.e4m3.e5m2", "mma.e4m3.e5m2", e4m3fn, e5m2, mma_fp8},
    {"mma.m16n8k32.f32.e5m2.e4m3", "mma.e5m2.e4m3", e5m2, e4m3fn, mma_fp8},
    {"mma.m16n8k32.f16.e4m3.e4m3", "mma.e4m3.f16", e4m3fn, e4m3fn, mma_fp8},
    {"mma.m16n8k32.f16.e5m2.e5m2", "mma.e5m2.f16", e5m2, e5m2, mma_fp8},
    {"mma.m16n8k32.f16.e4m3.e5m2", "mma.e4m3.e5m2.f16", e4m3fn, e5m2, mma_fp8},
    {"mma.m16n8k32.f16.e5m2.e4m3", "mma.e5m2.e4m3.f16", e5m2, e4m3fn, mma_fp8},

    {"mma.m16n8k16.f32.e4m3.e4m3", "mma.e4m3", e4m3fn, e4m3fn, mma_own_fp8},
    {"mma.m16n8k16.f32.e5m2.e5m2", "mma.e5m2", e5m2, e5m2, mma_own_fp8},
    {"mma.m16n8k16.f32.e4m3.e5m2", "mma.e4m3.e5m2", e4m3fn, e5m2, mma_own_fp8},
    {"mma.m16n8k16.f32.e5m2.e4m3", "mma.e5m2.e4m3", e5m2, e4m3fn, mma_own_fp8},
    {"mma.m16n8k16.f16.e4m3.e4m3", "mma.e4m3.f16", e4m3fn, e4m3fn, mma_own_fp8},
    {"mma.sp.m16n8k64.f32.e4m3.e4m3", "mma.e4m3", e4m3fn, e4m3fn, mma_own_fp8},
    {"mma.sp.m16n8k64.f32.e5m2.e5m2", "mma.e5m2", e5m2, e5m2, mma_own_fp8},

    {"mma.m16n8k16.f32.f16.f16", "mma.f16", f16, f16, mma},
    {"mma.m16n8k16.f16.f16.f16", "mma.f16.f16", f16, f16, mma},
    {"mma.m16n8k16.f32.bf16.bf16", "mma.bf16", bf16, bf16, mma},
    {"mma.m16n8k8.f32.tf32.tf32", "mma.tf32", tf32, tf32, mma},
    {"mma.sp.m16n8k32.f32.f16.f16", "mma.f16", f16, f16, mma},
    {"mma.sp.m16n8k32.f32.bf16.bf16", "mma.bf16", bf16, bf16, mma},

    {"tcgen05.m128n64k32.f32.e4m3.e4m3", "tcgen05.e4m3", e4m3fn, e4m3fn, tcgen05},
    {"tcgen05.m128n64k32.f32.e5m2.e5m2", "tcgen05.e5m2", e5m2, e5m2, tcgen05},
    {"tcgen05.m128n64k32.f32.e4m3.e5m2", "tcgen05.e4m3.e5m2", e4m3fn, e5m2, tcgen05},
    {"tcgen05.m128n64k32.f32.e5m2.e4m3", "tcgen05.e5m2.e4m3", e5m2, e4m3fn, tcgen05},
    {"tcgen05.m128n64k16.f32.f16.f16", "tcgen05.f16", f16, f16, tcgen05},
    {"tcgen05.m128n64k16.f32.bf16.bf16", "tcgen05.bf16", bf16, bf16, tcgen05},
    {"tcgen05.m128n64k8.f32.tf32.tf32", "tcgen05.tf32", tf32, tf32, tcgen05},
    {"tcgen05.m128n64k32.f32.e4m3.e4m3.negated_a", "tcgen05.e4m3", e4m3fn, e4m3fn, tcgen05},
    {"tcgen05.m128n64k32.f32.e4m3.e4m3.negated_b", "tcgen05.e4m3", e4m3fn, e4m3fn, tcgen05},
    {"tcgen05.m128n64k16.f32.f16.f16.negated_a", "tcgen05.f16", f16, f16, tcgen05},
    {"tcgen05.sp.m128n64k64.f32.e4m3.e4m3", "tcgen05.e4m3", e4m3fn, e4m3fn, tcgen05},
    {"tcgen05.sp.m128n64k64.f32.e5m2.e5m2", "tcgen05.e5m2", e5m2, e5m2, tcgen05},
    {"tcgen05.sp.m128n64k32.f32.f16.f16", "tcgen05.f16", f16, f16, tcgen05},

    {"tcgen05.m128n64k32.f16.e4m3.e4m3", "tcgen05.e4m3.f16", e4m3fn, e4m3fn, tcgen05},
    {"tcgen05.m128n64k32.f16.e5m2.e5m2", "tcgen05.e5m2.f16", e5m2, e5m2, tcgen05},
    {"tcgen05.m128n64k32.f16.e4m3.e5m2", "tcgen05.e4m3.e5m2.f16", e4m3fn, e5m2, tcgen05},
    {"tcgen05.m128n64k32.f16.e5m2.e4m3", "tcgen05.e5m2.e4m3.f16", e5m2, e4m3fn, tcgen05},
    {"tcgen05.m128n64k16.f16.f16.f16", "tcgen05.f16.f16", f16, f16, tcgen05},

    {"tcgen05.m128n64k32.mxf8f6f4.f32.e4m3.e4m3", "tcgen05.mxf8f6f4.e4m3", e4m3fn, e4m3fn, tcgen05,
     kUe8m0Per32},
    {"tcgen05.m128n64k32.mxf8f6f4.f32.e5m2.e5m2", "tcgen05.mxf8f6f4.e5m2", e5m2, e5m2, tcgen05,
     kUe8m0Per32},
    {"tcgen05.m128n64k32.mxf8f6f4.f32.e4m3.e5m2", "tcgen05.mxf8f6f4.e4m3.e5m2", e4m3fn, e5m2,
     tcgen05, kUe8m0Per32},
    {"tcgen05.m128n64k32.mxf8f6f4.f32.e5m2.e4m3", "tcgen05.mxf8f6f4.e5m2.e4m3", e5m2, e4m3fn,
     tcgen05, kUe8m0Per32},
    {"tcgen05.m128n64k32.mxf8f6f4.f32.e2m1.e2m1", "tcgen05.mxf8f6f4.e2m1", e2m1, e2m1, tcgen05,
     kUe8m0Per32},
    {"tcgen05.m128n64k32.mxf8f6f4.f32.e4m3.e2m1", "tcgen05.mxf8f6f4.e4m3.e2m1", e4m3fn, e2m1,
     tcgen05, kUe8m0Per32},
    {"tcgen05.m128n64k32.mxf8f6f4.f32.e2m1.e4m3", "tcgen05.mxf8f6f4.e2m1.e4m3", e2m1, e4m3fn,
     tcgen05, kUe8m0Per32},
    {"tcgen05.m128n64k32.mxf8f6f4.f32.e2m3.e2m3", "tcgen05.mxf8f6f4.e2m3", e2m3, e2m3, tcgen05,
     kUe8m0Per32},
    {"tcgen05.m128n64k32.mxf8f6f4.f32.e3m2.e3m2", "tcgen05.mxf8f6f4.e3m2", e3m2, e3m2, tcgen05,
     kUe8m0Per32},
    {"tcgen05.m128n64k64.mxf4nvf4.f32.e2m1.e2m1.ue4m3", "tcgen05.mxf4nvf4", e2m1, e2m1, tcgen05,
     kUe4m3Per16},
    {"tcgen05.m128n64k64.mxf4nvf4.f32.e2m1.e2m1.ue8m0", "tcgen05.mxf4nvf4", e2m1, e2m1, tcgen05,
     kUe8m0Per32},
    {"tcgen05.m128n64k32.mxf8f6f4.f32.e4m3.e4m3.negated_a", "tcgen05.mxf8f6f4.e4m3", e4m3fn, e4m3fn,
     tcgen05, kUe8m0Per32},
    {"tcgen05.m128n64k32.mxf8f6f4.f32.e4m3.e4m3.negated_b", "tcgen05.mxf8f6f4.e4m3", e4m3fn, e4m3fn,
     tcgen05, kUe8m0Per32},
    {"tcgen05.sp.m128n64k64.mxf8f6f4.f32.e4m3.e4m3", "tcgen05.mxf8f6f4.e4m3", e4m3fn, e4m3fn,
     tcgen05, kUe8m0Per32},
    {"tcgen05.sp.m128n64k64.mxf8f6f4.f32.e5m2.e5m2", "tcgen05.mxf8f6f4.e5m2", e5m2, e5m2, tcgen05,
     kUe8m0Per32},

    {"mma.m16n8k32.mxf8f6f4.f32.e4m3.e4m3", "mma.mxf8f6f4.e4m3", e4m3fn, e4m3fn, mma_scaled,
     kUe8m0Per32},
    {"mma.m16n8k32.mxf8f6f4.f32.e5m2.e5m2", "mma.mxf8f6f4.e5m2", e5m2, e5m2, mma_scaled,
     kUe8m0Per32},
    {"mma.m16n8k32.mxf8f6f4.f32.e4m3.e5m2", "mma.mxf8f6f4.e4m3.e5m2", e4m3fn, e5m2, mma_scaled,
     kUe8m0Per32},
    {"mma.m16n8k32.mxf8f6f4.f32.e5m2.e4m3", "mma.mxf8f6f4.e5m2.e4m3", e5m2, e4m3fn, mma_scaled,
     kUe8m0Per32},
    {"mma.m16n8k32.mxf8f6f4.f32.e2m1.e2m1", "mma.mxf8f6f4.e2m1", e2m1, e2m1, mma_scaled,
     kUe8m0Per32},
    {"mma.m16n8k32.mxf8f6f4.f32.e4m3.e2m1", "mma.mxf8f6f4.e4m3.e2m1", e4m3fn, e2m1, mma_scaled,
     kUe8m0Per32},
    {"mma.m16n8k32.mxf8f6f4.f32.e2m1.e4m3", "mma.mxf8f6f4.e2m1.e4m3", e2m1, e4m3fn, mma_scaled,
     kUe8m0Per32},
    {"mma.m16n8k32.mxf8f6f4.f32.e2m3.e2m3", "mma.mxf8f6f4.e2m3", e2m3, e2m3, mma_scaled,
     kUe8m0Per32},
    {"mma.m16n8k32.mxf8f6f4.f32.e3m2.e3m2", "mma.mxf8f6f4.e3m2", e3m2, e3m2, mma_scaled,
     kUe8m0Per32},
    {"mma.m16n8k64.mxf4nvf4.f32.e2m1.e2m1.ue4m3", "mma.mxf4nvf4", e2m1, e2m1, mma_scaled,
     kUe4m3Per16},
    {"mma.m16n8k64.mxf4nvf4.f32.e2m1.e2m1.ue8m0", "mma.mxf4nvf4", e2m1, e2m1, mma_scaled,
     kUe8m0Per32},
};

const InstructionModel* find_registered(std::string_view name) {
  const std::span<const InstructionModel> models = instruction_models();
  const auto found = std::find_if(models.begin(), models.end(), [&](const InstructionModel& model) {
    return model.name == name;
  });
  return found == models.end() ? nullptr : &*found;
}

/// The model of an instruction on an architecture; where it has none, that of unmixed inputs.
const InstructionModel* model_of(std::string_view architecture, const Instruction& instruction) {
  const std::string name = fmt::format("{}.{}", architecture, instruction.model);
  if (const InstructionModel* own = find_registered(name)) return own;
  // PREFIX.A.B[.f16] without B.
  const std::string b = fmt::format(".{}", instruction.b_format == e5m2 ? "e5m2" : "e4m3");
  const std::size_t at = name.rfind(b);
  if (instruction.a_format == instruction.b_format || at == std::string::npos) return nullptr;
  return find_registered(name.substr(0, at) + name.substr(at + b.size()));
}

bool needs_halves(const InstructionModel& model) {
  return model.accumulator.kind == AccumulationKind::fp16_halves;
}

}  // namespace

std::string_view architecture_of(int capability) {
  if (capability >= 80 && capability < 89) return "sm80";
  if (capability == 89) return "sm89";
  if (capability == 90) return "sm90";
  if (capability >= 100 && capability < 120) return "sm100";
  if (capability >= 120 && capability < 130) return "sm120";
  return "";
}

Halves halves_of(const Chip& chip) {
  if (chip.capability == 89 || chip.capability >= 120) return Halves::none;
  return chip.compiler >= 12080 ? Halves::chained : Halves::separate;
}

int compiler_of(int capability, std::span<const int> cubins, int nvcc, int driver, bool forced) {
  const bool has = std::any_of(cubins.begin(), cubins.end(), [&](int cubin) {
    return cubin / 10 == capability / 10 && cubin <= capability;
  });
  return has && !forced ? nvcc : driver;
}

bool has_family(Family family, int capability) {
  switch (family) {
    case mma:
      return capability >= 80;
    case mma_fp8:
      return capability >= 89;
    case mma_own_fp8:
      return capability == 89 || capability >= 120;
    case wgmma:
      return capability == 90;
    case mma_scaled:
      return capability >= 120;
    default:
      return capability == 100;
  }
}

NarrowOperands ProbedInstruction::narrow_operands() const {
  if (name.find("mxf4") != std::string_view::npos) return NarrowOperands::in_halves;
  return name.starts_with("tcgen05.") ? NarrowOperands::in_sixteen : NarrowOperands::in_bytes;
}

int ProbedInstruction::terms() const {
  // FP8 with 16 terms is half a step.
  const bool half_a_step = name.starts_with("mma.m16n8k16.") && format(a_format).storage_bits == 8;
  return half_a_step ? terms_of_step() / 2 : terms_of_step();
}

int ProbedInstruction::terms_of_step() const {
  return kStepBytes * 8 /
         (narrow_operands() == NarrowOperands::in_halves ? 4
          : format(a_format).storage_bits <= 8           ? 8
                                                         : format(a_format).storage_bits);
}

std::span<const Instruction> all_instructions() { return kInstructions; }

InstructionModel ProbedInstruction::instruction() const {
  InstructionModel found = find_instruction_model(model);
  found.a_format = a_format;
  found.b_format = b_format;
  if (halves != Halves::none)
    found.accumulator.halves_order =
        halves == Halves::chained ? HalvesOrder::chained : HalvesOrder::separate;
  return found;
}

Standing ProbedInstruction::standing() const {
  const InstructionModel& found = find_instruction_model(model);
  // Another shape or form of the recorded instruction.
  if (terms() != terms_of_step() || name.find(".sp.") != std::string_view::npos ||
      name.find(".negated_") != std::string_view::npos)
    return Standing::assumed;
  const std::string_view kind = name.substr(0, name.find('.') + 1);
  const bool own = std::string_view(model).substr(model.find('.') + 1).starts_with(kind) &&
                   found.a_format == a_format && found.b_format == b_format;
  return own && halves == Halves::none ? found.standing : Standing::assumed;
}

Prediction ProbedInstruction::prediction() const {
  const AccumulatorModel accumulator = find_instruction_model(model).accumulator;
  if (halves == Halves::none) return {accumulator, a_format, b_format};
  return prediction_by_halves(halves, a_format, b_format,
                              accumulator.output_format == FormatId::f16);
}

std::vector<ProbedInstruction> instructions_of(const Chip& chip) {
  std::vector<ProbedInstruction> found;
  for (const Instruction& instruction : kInstructions) {
    if (!has_family(instruction.family, chip.capability)) continue;
    const InstructionModel* model = model_of(architecture_of(chip.capability), instruction);
    if (model == nullptr) continue;
    ProbedInstruction probe{instruction.name,
                            std::string(model->name),
                            instruction.a_format,
                            instruction.b_format,
                            needs_halves(*model) ? halves_of(chip) : Halves::none,
                            instruction.scales};
    // An instruction of fewer terms than a step of the model is a step of that many.
    if (model->accumulator.terms > probe.terms())
      probe.model += fmt::format(":terms={}", probe.terms());
    found.push_back(std::move(probe));
  }
  return found;
}

}  // namespace fp8lab::cuda
