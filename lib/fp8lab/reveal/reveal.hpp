#pragma once
// Finds the arithmetic of an unknown kernel from its outputs only: the order of its sum as a tree,
// the parameters of its unit, and the model that gives its bits. A kernel is any product of fixed
// shape.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fp8lab/reveal/kernel.hpp"
#include "fp8lab/reveal/order.hpp"
#include "fp8lab/reveal/structure.hpp"
#include "fp8lab/reveal/unit.hpp"

namespace fp8lab {

/// A parameter of the unit: the chosen value, and all values with the same outputs for all probes
/// ("13", or "any of none, -170 .. -45").
struct RevealedParameter {
  std::string name;
  std::string value;
  std::string possible;
  bool certain = true;  ///< one value only
};

struct Revealed {
  ProbeShape shape;
  FormatId output = FormatId::f32;  ///< format of the kernel's outputs
  FormatId rounded_to =
      FormatId::f32;  ///< what its sums are rounded to, in whatever it writes them
  RevealedOrder order;
  std::int64_t contradictions = 0;  ///< random pairs that contradict the tree
  std::optional<SumStructure> structure;
  /// The unit as the name of a model: a registered instruction, or else a definition. Empty if no
  /// unit of the library gives these outputs.
  std::string model;
  std::string definition;                 ///< the same with all parameters
  std::vector<std::string> instructions;  ///< registered instructions with the same outputs
  std::vector<RevealedParameter> parameters;
  std::int64_t checked = 0;  ///< outputs of new random operands
  std::int64_t equal = 0;    ///< of these, outputs that the model gives
  std::string failure;       ///< what is not explained, with the reason; or empty
  std::int64_t rounds = 0;
  std::int64_t probes = 0;

  /// Whether the model gives all these outputs.
  [[nodiscard]] bool explained() const {
    return failure.empty() && checked > 0 && equal == checked;
  }
};

/// Probes `kernel` in rounds: first single products and the random operands of the last check, then
/// its order (`reveal_order`), then its unit. Operands are exact in their formats. The scales of
/// the kernel must be 1, and C zero. `seed`: for the random operands. The result depends only on
/// the outputs of the kernel and the seed. Throws `Error` for a shape or format that does not fit,
/// and what the kernel throws.
Revealed reveal(const ProbeShape& shape, const ProbeKernel& kernel, std::uint64_t seed = 1);

/// The result as text. `whole_tree`: with the complete tree in nested parentheses.
std::string describe(const Revealed& revealed, bool whole_tree = false);

/// The unit as a file for `--models`. Throws `Error` if there is none.
std::string models_file(const Revealed& revealed, std::string_view name);

/// A kernel that the library computes: `model` with promotion and split K, and sums rounded to
/// `output` (f32, f16 or bf16). Throws `Error` for a product that is not valid.
ProbeKernel kernel_of_model(const std::string& model, std::int64_t promotion_interval,
                            const SplitK& split, FormatId output);

}  // namespace fp8lab
