#pragma once
// Rewrites the folder of a model tensor by tensor. The shards are those of the source, processed
// one at a time. All other files are copied.
//
// An interrupted run leaves complete shards and a description of the run, `.fp8lab-rewrite.json`.
// The same run, started again, continues after them. config.json and the index are written last:
// a folder without them does not load.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/io/safetensors.hpp"
#include "training/model_files/model_directory.hpp"

namespace fp8lab {

/// Writes every byte of a task's outputs. `file` is the shard that `tensor` is in.
using TensorWork = std::function<void(const SafetensorsFile& file, const TensorView& tensor,
                                      SafetensorsWriter& out)>;

/// One tensor of the source and its outputs.
struct TensorTask {
  TensorSpec source;
  std::vector<TensorSpec> outputs;
  TensorWork work;
};

/// Copies a tensor unchanged, with its name.
TensorTask copy_task(const TensorSpec& source);

struct ShardTask {
  std::size_t shard = 0;  ///< of the source
  std::map<std::string, std::string> metadata;
  std::vector<TensorTask> tasks;
};

struct ModelRewrite {
  std::vector<ShardTask> shards;
  std::map<std::string, std::string> texts;  ///< files of the target with their content
  std::set<std::string> dropped;             ///< files of the source that the target must not have
  std::map<std::string, std::string> settings;  ///< settings that a continued run must share
};

struct RewriteProgress {
  std::string_view shard;
  std::uint64_t done = 0;  ///< bytes of source tensors
  std::uint64_t total = 0;
};

struct RewriteSummary {
  std::uint64_t bytes_read = 0;     ///< of tensors
  std::uint64_t bytes_written = 0;  ///< of shards, those of an earlier run included
  std::size_t resumed = 0;          ///< shards of an earlier run
  std::vector<std::string> copied;  ///< files beside the weights
  std::vector<std::string> left;    ///< folders and weights in other forms, which are not copied
};

/// Throws `Error` with the path unless files can be written to `target` and no other process is
/// doing so, so that long work before `rewrite_model` is not in vain. Makes no folder.
void require_free_target(const std::filesystem::path& target);

/// Throws `Error` for a target that holds something else than an earlier part of the same run, two
/// outputs of one name, files that cannot be read or written, and what `work` throws.
RewriteSummary rewrite_model(const ModelDirectory& source, const ModelRewrite& rewrite,
                             const std::filesystem::path& target,
                             const std::function<void(const RewriteProgress&)>& progress = {});

}  // namespace fp8lab
