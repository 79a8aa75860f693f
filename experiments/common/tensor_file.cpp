#include "common/tensor_file.hpp"

#include <filesystem>

#include "fp8lab/core/error.hpp"
#include "fp8lab/io/npy.hpp"
#include "fp8lab/io/safetensors.hpp"

namespace fp8lab::experiments {
namespace {

void add_view(const std::string& name, const TensorView& view, std::vector<NamedMatrix>& matrices) {
  if (view.shape.size() != 2 || view.size() == 0) return;
  matrices.push_back({name, view.shape[0], view.shape[1], to_float(view)});
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
