#include "training/model_files/rewrite.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/io/checksum.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/io/output_file.hpp"

namespace fp8lab {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::string_view kJournal = ".fp8lab-rewrite.json";
constexpr std::string_view kLock = ".fp8lab-rewrite.json.lock";  // of the journal
constexpr std::size_t kCopyPart = std::size_t{8} << 20;
constexpr int kIndent = 2;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<TensorSpec> outputs_of(const ShardTask& shard) {
  std::vector<TensorSpec> specs;
  for (const TensorTask& task : shard.tasks)
    specs.insert(specs.end(), task.outputs.begin(), task.outputs.end());
  return specs;
}

/// Names of outputs are the model's: one may come from two shards' tensors.
void require_unique_outputs(const ModelRewrite& rewrite) {
  std::map<std::string, std::string> origin;
  for (const ShardTask& shard : rewrite.shards)
    for (const TensorTask& task : shard.tasks)
      for (const TensorSpec& output : task.outputs) {
        const auto [at, is_new] = origin.emplace(output.name, task.source.name);
        require(is_new, fmt::format("tensor '{}' of '{}'", output.name, task.source.name),
                "a name that no other tensor has", is_new ? "" : "that of '" + at->second + "'");
      }
}

/// What a run is: another one must not go on in its folder.
Json journal_of(const ModelDirectory& source, const ModelRewrite& rewrite) {
  std::error_code error;
  const fs::path folder = fs::canonical(source.folder(), error);
  Json journal{{"version", 1}, {"source", error ? source.folder().string() : folder.string()}};
  for (const auto& [key, value] : rewrite.settings) journal[key] = value;
  for (const auto& [name, text] : rewrite.texts) journal["text of " + name] = crc32_text(text);
  Json shards = Json::array();
  for (const WeightShard& shard : source.shards())
    shards.push_back({{"file", shard.file}, {"bytes", shard.bytes}, {"modified", shard.modified}});
  journal["shards"] = std::move(shards);
  return json_in_utf8(journal);  // as it is read back
}

/// What a run that was killed had begun under a name of its own.
bool is_leftover(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.front() == '.' && name.ends_with(".partial");
}

bool holds_nothing(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) return true;
  const fs::directory_iterator entries(folder, error);
  return !error && std::all_of(begin(entries), end(entries), [](const fs::directory_entry& entry) {
    return is_leftover(entry.path()) || entry.path().filename() == kLock;
  });
}

void remove_leftovers(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (is_leftover(entry.path())) paths.push_back(entry.path());
  for (const fs::path& path : paths) fs::remove(path);
}

/// Whether an earlier part of the same run is there. Anything else in the folder is refused.
bool has_earlier_part(const fs::path& target, const Json& journal) {
  const fs::path path = target / kJournal;
  std::error_code error;
  if (!fs::exists(path, error)) {
    require(holds_nothing(target), target.string(), "a new or empty folder", "one with files");
    return false;
  }
  const Json earlier = parse_json<Json>(read_file(path), path.string());
  require(earlier.is_object(), path.string(), "a JSON object that an earlier run wrote",
          "something else");
  for (const auto& [key, value] : journal.items())
    require(earlier.contains(key) && earlier[key] == value, path.string(),
            fmt::format("an earlier part of the same run, with {} {}", key,
                        json_text(value).substr(0, 200)),
            earlier.contains(key) ? json_text(earlier[key]).substr(0, 200) : "none");
  return true;
}

/// Readers take every tensor from the shard that the index names.
std::string index_text(const ModelDirectory& source, const ModelRewrite& rewrite) {
  nlohmann::json map = nlohmann::json::object();
  std::uint64_t bytes = 0;
  for (const ShardTask& shard : rewrite.shards)
    for (const TensorSpec& output : outputs_of(shard)) {
      map[output.name] = source.shards()[shard.shard].file;
      bytes += output.bytes();
    }
  nlohmann::json index = nlohmann::json::object();
  if (!source.index_metadata().empty())
    index["metadata"] = parse_json<nlohmann::json>(source.index_metadata(), source.index_file());
  index["metadata"]["total_size"] = bytes;
  if (index["metadata"].contains("total_parameters")) index["metadata"].erase("total_parameters");
  index["weight_map"] = std::move(map);
  return json_text(index, kIndent) + "\n";
}

void copy_whole(const fs::path& from, const fs::path& to) {
  const MappedFile source(from);
  OutputFile out(to);
  for (std::size_t at = 0; at < source.bytes().size(); at += kCopyPart) {
    const auto part = source.bytes().subspan(at, std::min(kCopyPart, source.bytes().size() - at));
    out.write(text_of(part));
    source.release(part);
  }
  out.commit();
}

/// Weights in a form that is not read here: beside the new ones they would be the old model.
bool is_other_weights(const fs::path& path) {
  for (const char* ending : {".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5",
                             ".msgpack", ".onnx", ".index.json"})
    if (path.filename().string().ends_with(ending)) return true;
  return false;
}

/// What stands beside the weights: tokenizers, generation settings, licences.
void copy_others(const ModelDirectory& source, const ModelRewrite& rewrite, const fs::path& target,
                 RewriteSummary& summary) {
  std::set<std::string> known{source.index_file()};
  for (const WeightShard& shard : source.shards()) known.insert(shard.file);
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(source.folder()))
    paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  for (const fs::path& path : paths) {
    const std::string name = path.filename().string();
    if (name.front() == '.' || known.contains(name) || rewrite.texts.contains(name) ||
        rewrite.dropped.contains(name))
      continue;
    if (fs::is_regular_file(path) && !is_other_weights(path)) {
      copy_whole(path, target / name);
      summary.copied.push_back(name);
    } else {
      summary.left.push_back(name);
    }
  }
}

/// All shards, one after the other.
class ShardRun {
 public:
  ShardRun(const ModelDirectory& source, const ModelRewrite& rewrite, const fs::path& target,
           const std::function<void(const RewriteProgress&)>& progress)
      : source_(source), rewrite_(rewrite), target_(target), progress_(progress) {
    for (const ShardTask& shard : rewrite.shards)
      for (const TensorTask& task : shard.tasks) total_ += task.source.bytes();
  }

  void run(bool resumes, RewriteSummary& summary) {
    for (const ShardTask& shard : rewrite_.shards) {
      const std::vector<TensorSpec> outputs = outputs_of(shard);
      if (outputs.empty()) continue;
      const fs::path path = target_ / source_.shards()[shard.shard].file;
      const std::uint64_t bytes = safetensors_bytes(outputs, shard.metadata);
      summary.bytes_written += bytes;
      std::error_code error;
      // Files take their name when they are complete.
      if (resumes && fs::file_size(path, error) == bytes && !error) {
        ++summary.resumed;
        for (const TensorTask& task : shard.tasks) done_ += task.source.bytes();
        continue;
      }
      write(shard, outputs, path);
    }
    summary.bytes_read = total_;
  }

 private:
  void write(const ShardTask& shard, const std::vector<TensorSpec>& outputs, const fs::path& path) {
    const std::unique_ptr<SafetensorsFile> file = source_.open(shard.shard);
    SafetensorsWriter out(path, outputs, shard.metadata);
    for (const TensorTask& task : shard.tasks) {
      const TensorView& tensor = file->find(task.source.name);
      if (progress_) progress_({source_.shards()[shard.shard].file, done_, total_});
      try {
        task.work(*file, tensor, out);
      } catch (const Error& error) {
        throw Error(fmt::format("{}: '{}': {}", source_.shards()[shard.shard].file,
                                task.source.name, error.what()));
      }
      file->file().release(tensor.bytes);
      done_ += task.source.bytes();
    }
    out.commit();
  }

  const ModelDirectory& source_;
  const ModelRewrite& rewrite_;
  const fs::path& target_;
  const std::function<void(const RewriteProgress&)>& progress_;
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;
};

}  // namespace

TensorTask copy_task(const TensorSpec& source) {
  const auto copy = [name = source.name](const SafetensorsFile& file, const TensorView& tensor,
                                         SafetensorsWriter& out) {
    for (std::size_t at = 0; at < tensor.bytes.size(); at += kCopyPart) {
      const auto part = tensor.bytes.subspan(at, std::min(kCopyPart, tensor.bytes.size() - at));
      out.write(name, at, part);
      file.file().release(part);
    }
  };
  return {source, {source}, copy};
}

void require_free_target(const fs::path& target) {
  require_writable_folder(target);
  std::error_code error;
  if (!fs::exists(target, error)) return;
  const OutputLock alone(target / kJournal);
}

RewriteSummary rewrite_model(const ModelDirectory& source, const ModelRewrite& rewrite,
                             const fs::path& target,
                             const std::function<void(const RewriteProgress&)>& progress) {
  require_unique_outputs(rewrite);
  const Json journal = journal_of(source, rewrite);
  make_writable_folder(target);
  const OutputLock alone(target / kJournal);
  const bool resumes = has_earlier_part(target, journal);
  remove_leftovers(target);
  if (!resumes) write_file(target / kJournal, json_text(journal, kIndent) + "\n");
  RewriteSummary summary;
  ShardRun(source, rewrite, target, progress).run(resumes, summary);
  copy_others(source, rewrite, target, summary);
  if (!source.index_file().empty())
    write_file(target / source.index_file(), index_text(source, rewrite));
  for (const auto& [name, text] : rewrite.texts) write_file(target / name, text);
  fs::remove(target / kJournal);
  return summary;
}

}  // namespace fp8lab
