#pragma once
// What an unknown kernel computes, found from the outside: the order of its sum as a tree, its
// unit's parameters, and the model that gives its bits. Any product of fixed shape is a kernel;
// nothing but its outputs is looked at.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fp8lab/reveal/kernel.hpp"
#include "fp8lab/reveal/order.hpp"
#include "fp8lab/reveal/structure.hpp"
#include "fp8lab/reveal/unit.hpp"

namespace fp8lab {

/// A parameter of the unit found: the chosen value, and all that give the same outputs of all
/// probes ("13", or "any of none, -170 .. -45").
struct RevealedParameter {
  std::string name;
  std::string value;
  std::string possible;
  bool certain = true;  ///< one value only
};

struct Revealed {
  ProbeShape shape;
  FormatId output = FormatId::f32;  ///< what the kernel writes
  FormatId rounded_to =
      FormatId::f32;  ///< what its sums are rounded to, in whatever it writes them
  RevealedOrder order;
  std::int64_t contradictions = 0;  ///< random pairs that the tree does not explain
  std::optional<SumStructure> structure;
  /// The unit as a name for every function: a registered instruction, or else a definition. Empty:
  /// none of the library's units gives these outputs.
  std::string model;
  std::string definition;                 ///< the same with all parameters
  std::vector<std::string> instructions;  ///< registered ones that give the same outputs
  std::vector<RevealedParameter> parameters;
  std::int64_t checked = 0;  ///< outputs of fresh random operands
  std::int64_t equal = 0;    ///< of these, by the model
  std::string failure;       ///< what is not explained, and why; empty: nothing
  std::int64_t rounds = 0;
  std::int64_t probes = 0;

  /// Whether the model gave every fresh output.
  [[nodiscard]] bool explained() const {
    return failure.empty() && checked > 0 && equal == checked;
  }
};

/// Probes `kernel` in rounds: first products that it gives back as they are, with the fresh
/// operands of the last check, then its order (`reveal_order`), then its unit. Operands are exact
/// in their formats; scales of the kernel must be 1, and C zero. `seed` draws the fresh operands.
/// The result depends on the kernel's outputs and the seed alone. Throws `Error` for a shape or
/// format that does not fit, and whatever the kernel throws.
Revealed reveal(const ProbeShape& shape, const ProbeKernel& kernel, std::uint64_t seed = 1);

/// A page of text. `whole_tree`: nested parentheses however long.
std::string describe(const Revealed& revealed, bool whole_tree = false);

/// The unit as a file of `--models`. Throws `Error` where there is none.
std::string models_file(const Revealed& revealed, std::string_view name);

/// A kernel of the library itself: `model` with promotion and split K, its sums rounded to `output`
/// (f32, f16 or bf16). Throws `Error` for a product that cannot be.
ProbeKernel kernel_of_model(const std::string& model, std::int64_t promotion_interval,
                            const SplitK& split, FormatId output);

}  // namespace fp8lab
