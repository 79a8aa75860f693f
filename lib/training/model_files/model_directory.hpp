#pragma once
// A model's weights as they are published: a folder with config.json and .safetensors files
// (shards). If there are several, `model.safetensors.index.json` names them.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
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
  std::uint64_t bytes = 0;    ///< size of the file
  std::int64_t modified = 0;  ///< time of the last change, in ticks of the file system's clock
};

/// The place of a tensor.
struct WeightPlace {
  std::size_t shard = 0;   ///< index in `ModelDirectory::shards`
  std::size_t tensor = 0;  ///< index in `WeightShard::tensors`
};

/// Reads and checks all headers at once. Data is read only on request, so a model may be larger
/// than memory.
class ModelDirectory {
 public:
  /// `path`: a folder, its index file, or a single .safetensors file. Without an index the folder
  /// must hold exactly one such file, or one called model.safetensors.
  ///
  /// Throws `Error` that names the file or tensor, if
  /// - the index is not a valid index;
  /// - a shard is missing, truncated or outside the folder;
  /// - the index gives a wrong shard for a tensor, or none, or two shards hold the same tensor;
  /// - a file is named like a shard of the index, but the index does not list it;
  /// - there is a model.safetensors that the index does not list: readers would disagree which of
  ///   the two to load.
  explicit ModelDirectory(const std::filesystem::path& path);

  /// The same, but what is wrong is added to `faults`, as the message of the error, and the rest is
  /// read. Throws `Error` only if there is nothing to read.
  ModelDirectory(const std::filesystem::path& path, std::vector<std::string>& faults);

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  [[nodiscard]] const std::vector<WeightShard>& shards() const { return shards_; }
  /// The file that describes the model, whether or not it exists: config.json, or params.json in a
  /// folder of Mistral's own files, which has no config.json.
  [[nodiscard]] std::filesystem::path config() const;
  /// Whether these are weights alone, which no file describes: one file of another name than a
  /// model's (model.safetensors), as ComfyUI has them, without a configuration beside it.
  [[nodiscard]] bool stands_alone() const;
  /// The name of the index file; empty if there is none.
  [[nodiscard]] const std::string& index_file() const { return index_file_; }
  /// The index's "metadata" as JSON text; empty if there is none.
  [[nodiscard]] const std::string& index_metadata() const { return index_metadata_; }

  /// The place of the tensor called `name`; null if no shard holds it.
  [[nodiscard]] const WeightPlace* find(std::string_view name) const;
  [[nodiscard]] const TensorSpec& at(const WeightPlace& place) const;

  /// Opens a shard to read its data. Throws `Error` if its header has changed since it was read.
  [[nodiscard]] std::unique_ptr<SafetensorsFile> open(std::size_t shard) const;

 private:
  void read(const std::filesystem::path& path);
  void read_index(const std::filesystem::path& path);
  void require_file(const std::string& file, const std::map<std::string, std::string>& map,
                    const std::string& where) const;
  void add_shard(const std::string& file);
  void add_tensor(WeightShard& shard, const NamedTensor& item);
  void refuse_strays() const;
  template <class Work>
  void tolerate(const Work& work) const;

  std::filesystem::path folder_;
  std::string index_file_;
  std::string index_metadata_;
  std::vector<WeightShard> shards_;
  std::unordered_map<std::string, WeightPlace> places_;
  std::vector<std::string>* faults_ = nullptr;  ///< null: the first one is thrown
};

/// The name of an index file in a model's folder.
inline constexpr std::string_view kIndexFile = "model.safetensors.index.json";

}  // namespace fp8lab
