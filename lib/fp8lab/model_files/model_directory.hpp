#pragma once
// A model's weights as they are published: a folder with config.json and .safetensors files
// (shards), which `model.safetensors.index.json` names where there are several.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fp8lab/io/safetensors.hpp"

namespace fp8lab {

/// One file of weights, as its header describes it.
struct WeightShard {
  std::string file;                 ///< its name in the folder
  std::vector<TensorSpec> tensors;  ///< in the order of their data
  std::map<std::string, std::string> metadata;
  std::uint64_t bytes = 0;    ///< of the file
  std::int64_t modified = 0;  ///< when, in the file system's clock
};

/// Where a tensor is.
struct WeightPlace {
  std::size_t shard = 0;
  std::size_t tensor = 0;  ///< index in `WeightShard::tensors`
};

/// The headers are read and checked at once, the data when it is asked for: a model need not fit
/// into memory.
class ModelDirectory {
 public:
  /// `path`: a folder, its index file, or a single .safetensors file. Without an index the folder
  /// must hold exactly one such file, or one called model.safetensors.
  ///
  /// Throws `Error` that names the file or tensor for: an index that is not one; a shard that is
  /// missing, truncated or outside the folder; a tensor that the index places where it is not,
  /// that it does not know, or that two shards hold; a shard of the index's naming scheme that the
  /// index does not name; an index beside a model.safetensors that it does not name, of which
  /// readers take either.
  explicit ModelDirectory(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  [[nodiscard]] const std::vector<WeightShard>& shards() const { return shards_; }
  /// The name of the index file; empty where there is none.
  [[nodiscard]] const std::string& index_file() const { return index_file_; }
  /// The index's "metadata" as JSON text; empty where there is none.
  [[nodiscard]] const std::string& index_metadata() const { return index_metadata_; }

  /// Null for a name that no shard holds.
  [[nodiscard]] const WeightPlace* find(std::string_view name) const;
  [[nodiscard]] const TensorSpec& at(const WeightPlace& place) const;

  /// Opens a shard for its data. Throws `Error` where its header is no longer the one that was
  /// read.
  [[nodiscard]] std::unique_ptr<SafetensorsFile> open(std::size_t shard) const;

 private:
  void read_index(const std::filesystem::path& path);
  void add_shard(const std::string& file);
  void refuse_strays() const;

  std::filesystem::path folder_;
  std::string index_file_;
  std::string index_metadata_;
  std::vector<WeightShard> shards_;
  std::unordered_map<std::string, WeightPlace> places_;
};

/// The name of an index file in a model's folder.
inline constexpr std::string_view kIndexFile = "model.safetensors.index.json";

}  // namespace fp8lab
