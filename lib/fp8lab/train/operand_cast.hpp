#pragma once
// The cast of one operand of a linear layer, step after step, with a memory
// that can be saved: a delayed or windowed scale is a function of the amaxes seen.

#include <memory>
#include <string>
#include <vector>

#include "fp8lab/train/layer.hpp"

namespace fp8lab::train {

class OperandCast {
 public:
  /// Throws `Error` for a recipe that cannot work.
  OperandCast(std::string name, const Recipe& recipe);

  /// Casts x, and its transpose where asked for.
  QuantizedTensor cast(const FloatMatrix& x, bool with_transpose, const PassContext& context);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const Recipe& recipe() const { return quantizer_.recipe(); }

  /// True for a delayed or windowed scale.
  [[nodiscard]] bool has_past() const;

  /// The amax of every step so far; empty for a scale without a past.
  [[nodiscard]] const std::vector<float>& amaxes() const { return amaxes_; }

  /// Starts anew and takes the steps again that `amaxes` records: the scale that
  /// follows has the same bits.
  void restore(const std::vector<float>& amaxes);

 private:
  std::string name_;
  Quantizer quantizer_;
  std::vector<float> amaxes_;
};

}  // namespace fp8lab::train
