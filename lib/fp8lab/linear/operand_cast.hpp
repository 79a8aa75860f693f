#pragma once
// The cast of one operand of a linear layer at every step, with a state that can be
// saved: a delayed or windowed scale is a function of all earlier amaxes.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fp8lab/linear/layer.hpp"

namespace fp8lab::train {

class OperandCast {
 public:
  /// Throws `Error` for a recipe that is not valid.
  OperandCast(std::string name, const Recipe& recipe);

  /// Casts x, and its transpose if `with_transpose`.
  [[nodiscard]] QuantizedTensor cast(const FloatMatrix& x, bool with_transpose,
                                     const PassContext& context);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const Recipe& recipe() const { return quantizer_.recipe(); }

  /// Whether the scale is a delayed or windowed one.
  [[nodiscard]] bool has_past() const;

  /// The amax of every step so far; empty for a scale that uses only the current tensor.
  [[nodiscard]] const std::vector<float>& amaxes() const { return amaxes_; }

  /// Restores the state from the amaxes of all steps. The next scale has the same
  /// bits.
  void restore(const std::vector<float>& amaxes);

 private:
  std::string name_;
  Quantizer quantizer_;
  std::vector<float> amaxes_;
};

/// The products of an operand that need its codes.
struct OperandUse {
  bool first = false;
  bool second = false;  ///< the product with the transposed operand
};

/// The codes of an operand for its two products. It enters the second product transposed.
class TwoCasts {
 public:
  /// `second`: another recipe for the second product; that cast is then called
  /// `name`.`second_product`. Throws `Error` for a recipe that is not valid.
  TwoCasts(const std::string& name, const Recipe& first, const std::optional<Recipe>& second,
           const std::string& second_product);

  /// The codes for the first product; `transposed` has those for the second.
  [[nodiscard]] QuantizedTensor cast(const FloatMatrix& x, OperandUse use,
                                     const PassContext& context);

  /// Appends all casts, for checkpoints.
  void list(std::vector<OperandCast*>& casts);

 private:
  OperandCast first_;
  std::optional<OperandCast> second_;
};

}  // namespace fp8lab::train
