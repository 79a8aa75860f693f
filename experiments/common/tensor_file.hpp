#pragma once
// Real tensors from a file.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fp8lab::experiments {

struct NamedMatrix {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<float> values;  ///< row-major
};

/// The 2-D tensors with elements of a .npy or .safetensors file. Throws `Error`
/// for a file without any, and what the readers throw.
std::vector<NamedMatrix> read_matrices(const std::string& path);

/// The tensor called `name`, or the only one for an empty name, of any shape: its last dimension is
/// the columns, all others are the rows; a vector is one row. Throws `Error` for `argument`.
NamedMatrix read_tensor(std::string_view argument, const std::string& path, std::string_view name);

}  // namespace fp8lab::experiments
