#include "common/tensor_file.hpp"

#include <fmt/format.h>

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

void add_view(const std::string& name, const TensorView& view, std::vector<NamedMatrix>& matrices) {
  if (view.shape.size() != 2 || view.size() == 0) return;
  NamedMatrix matrix{name, view.shape[0], view.shape[1], to_float(view)};
  require_finite(matrix);
  matrices.push_back(std::move(matrix));
}

}  // namespace

std::vector<NamedMatrix> read_matrices(const std::string& path) {
  std::vector<NamedMatrix> matrices;
  if (path.ends_with(".npy")) {
    const NpyFile file(path);
    add_view(std::filesystem::path(path).stem().string(), file.tensor(), matrices);
  } else {
    const SafetensorsFile file(path);
    for (const NamedTensor& item : file.tensors()) add_view(item.name, item.tensor, matrices);
  }
  require(!matrices.empty(), "file", "at least one 2-D tensor with elements", path);
  return matrices;
}

}  // namespace fp8lab::experiments
