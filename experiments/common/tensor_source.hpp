#pragma once
// Where an experiment's tensors come from: a named distribution or a file of one's own.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/tensor_file.hpp"
#include "fp8lab/core/random.hpp"

namespace fp8lab::experiments {

class TensorSource {
 public:
  /// `text`: normal, uniform (U[0, 1)), laplace, student_t:DEGREES (1 to 1000),
  /// log_uniform:DECADES, log_normal:DECADES, outlier_channels:MAGNITUDE (six channels, as
  /// `outlier_channels` has them), or a file, FILE.npy, FILE.safetensors (its only tensor) or
  /// FILE.safetensors#TENSOR, of any shape (`read_tensor`). Normal and Laplace have a standard
  /// deviation of 1. Throws `Error` for `argument`, and what the readers throw.
  TensorSource(std::string_view argument, const std::string& text);

  [[nodiscard]] const std::string& name() const { return name_; }

  /// Row-major [rows, columns]. Of a file: a window of its matrix at a random place, rows and
  /// columns beside each other as they are there (going on at the other side), or where it is
  /// smaller in a dimension, consecutive elements. Throws `Error` where it has fewer elements.
  [[nodiscard]] std::vector<float> draw(const RandomStream& random, std::size_t rows,
                                        std::size_t columns) const;

 private:
  [[nodiscard]] std::vector<float> window(const RandomStream& random, std::size_t rows,
                                          std::size_t columns) const;

  std::string name_;
  std::string kind_;        ///< empty for a file
  double parameter_ = 0.0;  ///< of the kind
  NamedMatrix matrix_;
};

/// Unset for an empty text.
std::optional<TensorSource> find_source(std::string_view argument, const std::string& text);

/// Multiplies so that the root mean square is `rms`; a tensor of zeros stays as it is.
void normalize_rms(std::vector<float>& x, double rms);

}  // namespace fp8lab::experiments
