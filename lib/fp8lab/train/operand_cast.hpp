#pragma once
// The cast of one operand of a linear layer, step after step, with a memory
// that can be saved: a delayed or windowed scale is a function of the amaxes seen.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fp8lab/train/layer.hpp"

namespace fp8lab::train {

class OperandCast {
 public:
  /// Throws `Error` for a recipe that cannot work.
  OperandCast(std::string name, const Recipe& recipe);

  /// Casts x, and its transpose where asked for.
  [[nodiscard]] QuantizedTensor cast(const FloatMatrix& x, bool with_transpose,
                                     const PassContext& context);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const Recipe& recipe() const { return quantizer_.recipe(); }

  /// True for a delayed or windowed scale.
  [[nodiscard]] bool has_past() const;

  /// The amax of every step so far; empty for a scale that uses only the current tensor.
  [[nodiscard]] const std::vector<float>& amaxes() const { return amaxes_; }

  /// Starts anew and takes the steps again that `amaxes` records: the scale that
  /// follows has the same bits.
  void restore(const std::vector<float>& amaxes);

 private:
  std::string name_;
  Quantizer quantizer_;
  std::vector<float> amaxes_;
};

/// Which of the two products of an operand need its codes.
struct OperandUse {
  bool first = false;
  bool second = false;  ///< with the operand transposed
};

/// The codes of an operand for its two products, of which it enters the second one transposed.
class TwoCasts {
 public:
  /// `second`: a recipe of its own for the second product; the cast is then called
  /// `name`.`second_product`. Throws `Error` for a recipe that cannot work.
  TwoCasts(const std::string& name, const Recipe& first, const std::optional<Recipe>& second,
           const std::string& second_product);

  /// Codes for the first product; for the second one they are its `transposed`.
  [[nodiscard]] QuantizedTensor cast(const FloatMatrix& x, OperandUse use,
                                     const PassContext& context);

  /// All casts there are, for checkpoints.
  void list(std::vector<OperandCast*>& casts);

 private:
  OperandCast first_;
  std::optional<OperandCast> second_;
};

}  // namespace fp8lab::train
