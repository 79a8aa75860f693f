#pragma once
// `quantize` of a model's folder.

#include <string>
#include <vector>

namespace fp8lab::cli {

struct QuantizeModelRequest {
  std::string input;
  std::string output;
  std::string recipe;
  std::string layout;
  std::string rule;
  std::vector<std::string> calibration;
  std::vector<std::string> ignore;
  std::vector<std::string> only;
  std::vector<std::string> recipe_for;
  std::string kv_cache;
  bool json = false;
};

/// Whether a path names a model rather than a file of tensors: a folder or an index.
bool names_model(const std::string& path);

int quantize_model(const QuantizeModelRequest& request);

}  // namespace fp8lab::cli
