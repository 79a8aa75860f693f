#include "common/tensor_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "fp8lab/core/error.hpp"
#include "fp8lab/io/npy.hpp"
#include "fp8lab/io/safetensors.hpp"

namespace fp8lab::experiments {
namespace {

/// An error relative to a NaN or an infinity says nothing.
void require_finite(const NamedMatrix& matrix) {
  const auto count = [&](bool (*is)(float)) {
    return std::count_if(matrix.values.begin(), matrix.values.end(), is);
  };
  const auto nans = count([](float x) { return std::isnan(x); });
  const auto infinities = count([](float x) { return std::isinf(x); });
  require(nans + infinities == 0, "file", fmt::format("finite numbers in '{}'", matrix.name),
          fmt::format("{} NaN and {} Inf of {} elements", nans, infinities, matrix.values.size()));
}

NamedMatrix matrix_of(const std::string& name, const TensorView& view) {
  const std::int64_t columns = view.shape.empty() ? 1 : view.shape.back();
  NamedMatrix matrix{name, view.size() / columns, columns, to_float(view)};
  require_finite(matrix);
  return matrix;
}

/// Calls `use(name, view)` for each tensor with elements.
template <typename Use>
void for_tensors(const std::string& path, const Use& use) {
  const auto visit = [&](const std::string& name, const TensorView& view) {
    if (view.size() > 0) use(name, view);
  };
  if (path.ends_with(".npy")) {
    const NpyFile file(path);
    visit(std::filesystem::path(path).stem().string(), file.tensor());
    return;
  }
  const SafetensorsFile file(path);
  for (const NamedTensor& item : file.tensors()) visit(item.name, item.tensor);
}

}  // namespace

std::vector<NamedMatrix> read_matrices(const std::string& path) {
  std::vector<NamedMatrix> matrices;
  for_tensors(path, [&](const std::string& name, const TensorView& view) {
    if (view.shape.size() == 2) matrices.push_back(matrix_of(name, view));
  });
  require(!matrices.empty(), "file", "at least one 2-D tensor with elements", path);
  return matrices;
}

NamedMatrix read_tensor(std::string_view argument, const std::string& path, std::string_view name) {
  std::vector<std::string> names;
  for_tensors(path, [&](const std::string& one, const TensorView&) { names.push_back(one); });
  const bool only = name.empty() && names.size() == 1;
  NamedMatrix matrix;
  for_tensors(path, [&](const std::string& one, const TensorView& view) {
    if (only || one == name) matrix = matrix_of(one, view);
  });
  require(!matrix.values.empty(), argument,
          fmt::format("{}#TENSOR with one of {}", path, fmt::join(names, ", ")),
          name.empty() ? "no name" : fmt::format("'{}'", name));
  return matrix;
}

}  // namespace fp8lab::experiments
