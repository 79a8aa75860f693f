#include "training/model_files/model_directory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/io/files.hpp"

namespace fp8lab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kWeightsEnding = ".safetensors";

bool is_index(const fs::path& path) {
  return path.filename().string().ends_with(".safetensors.index.json");
}

/// Names of .safetensors files of a folder, sorted.
std::vector<std::string> weight_files(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == kWeightsEnding && !entry.is_directory())
      names.push_back(entry.path().filename().string());
  if (error)
    throw Error(fmt::format("{}: cannot read this folder: {}", folder.string(), error.message()));
  std::sort(names.begin(), names.end());
  return names;
}

/// The only file of weights in a folder without an index.
std::string only_file(const fs::path& folder) {
  const std::vector<std::string> names = weight_files(folder);
  if (std::find(names.begin(), names.end(), kSingleFile) != names.end())
    return std::string(kSingleFile);
  require(names.size() == 1, folder.string(),
          fmt::format("{}, {} or one .safetensors file", kIndexFile, kSingleFile),
          names.empty() ? "none" : fmt::format("{} of them, and no index", names.size()));
  return names.front();
}

/// {tensor: file} of an index, its files checked to be names of the folder.
std::map<std::string, std::string> weight_map(const json& index, const std::string& where) {
  require(index.is_object() && index.contains("weight_map") && index["weight_map"].is_object(),
          where, "an object with weight_map: {tensor: file}", "something else");
  std::map<std::string, std::string> map;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    require(file.is_string(), fmt::format("{}: weight_map['{}']", where, tensor.substr(0, 80)),
            "the name of a file", json_text(file).substr(0, 80));
    const auto name = file.get<std::string>();
    const bool plain = !name.empty() && fs::path(name).filename() == name && name != "." &&
                       name != ".." && name.ends_with(kWeightsEnding);
    require(plain, fmt::format("{}: weight_map['{}']", where, tensor.substr(0, 80)),
            "the name of a .safetensors file in the same folder",
            fmt::format("'{}'", name.substr(0, 80)));
    map[tensor] = name;
  }
  require(!map.empty(), where, "a weight_map with tensors", "an empty one");
  return map;
}

std::int64_t modified_of(const fs::path& path) {
  std::error_code error;
  const fs::file_time_type time = fs::last_write_time(path, error);
  return error ? 0 : static_cast<std::int64_t>(time.time_since_epoch().count());
}

TensorSpec spec_of(const NamedTensor& item) {
  return {item.name, item.tensor.type, item.tensor.shape};
}

/// What stands before the number in `model-00001-of-00004.safetensors`; empty for other names.
std::string series_of(const std::string& file) {
  const std::size_t of = file.rfind("-of-");
  if (of == std::string::npos) return {};
  const std::size_t dash = file.rfind('-', of - 1);
  return dash == std::string::npos || of == 0 ? std::string() : file.substr(0, dash);
}

}  // namespace

/// Does a part of the reading; what it throws may be added to the list of faults instead.
template <class Work>
void ModelDirectory::tolerate(const Work& work) const {
  if (faults_ == nullptr) return work();
  try {
    work();
  } catch (const Error& error) {
    faults_->emplace_back(error.what());
  }
}

ModelDirectory::ModelDirectory(const fs::path& path) { read(path); }

ModelDirectory::ModelDirectory(const fs::path& path, std::vector<std::string>& faults)
    : faults_(&faults) {
  read(path);
  faults_ = nullptr;
  require(!shards_.empty(), path.string(), "at least one file of weights that can be read", "none");
}

fs::path ModelDirectory::config() const {
  std::error_code error;
  const fs::path own = folder_ / "params.json";
  const fs::path usual = folder_ / "config.json";
  return fs::exists(own, error) && !fs::exists(usual, error) ? own : usual;
}

bool ModelDirectory::stands_alone() const {
  std::error_code error;
  return index_file_.empty() && shards_.size() == 1 && shards_.front().file != kSingleFile &&
         !fs::exists(config(), error);
}

void ModelDirectory::read(const fs::path& path) {
  std::error_code error;
  const bool is_folder = path.extension() != kWeightsEnding && fs::is_directory(path, error);
  folder_ = is_folder ? path : path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (is_index(path) || (is_folder && fs::exists(path / kIndexFile, error))) {
    read_index(is_folder ? path / kIndexFile : path);
  } else if (is_folder) {
    std::vector<std::string> files;
    tolerate([&] { files = {only_file(path)}; });
    if (files.empty()) files = weight_files(path);  // without an index, if faults are tolerated
    for (const std::string& file : files) tolerate([&] { add_shard(file); });
    tolerate([&] { refuse_strays(); });
  } else {
    require(path.extension() == kWeightsEnding, path.string(),
            "a model's folder, its index or a .safetensors file", "something else");
    add_shard(path.filename().string());
  }
}

void ModelDirectory::read_index(const fs::path& path) {
  constexpr int kDepth = 8;
  index_file_ = path.filename().string();
  const std::string where = path.string();
  const std::string text = read_file(path);
  const auto index = parse_json<json>(text, where, kDepth);
  const std::map<std::string, std::string> map = weight_map(index, where);
  if (index.contains("metadata") && index["metadata"].is_object())
    index_metadata_ = json_text(index["metadata"]);
  std::set<std::string> files;
  for (const auto& [tensor, file] : map) files.insert(file);
  for (const std::string& file : files)
    tolerate([&] {
      require_file(file, map, where);
      add_shard(file);
    });
  const auto was_read = [&](const std::string& file) {
    return std::any_of(shards_.begin(), shards_.end(),
                       [&](const WeightShard& shard) { return shard.file == file; });
  };
  for (const auto& [tensor, file] : map) {
    const WeightPlace* place = find(tensor);
    if (place == nullptr && !was_read(file)) continue;  // the whole file is a fault already
    tolerate([&, &name = tensor, &shard = file] {
      require(place != nullptr && shards_[place->shard].file == shard,
              fmt::format("{}: '{}'", where, name.substr(0, 80)), "a tensor of " + shard,
              place == nullptr ? "a tensor that no shard holds"
                               : "one of " + shards_[place->shard].file);
    });
  }
  for (const auto& [tensor, place] : places_)
    tolerate([&, &name = tensor, &at = place] {
      require(
          map.contains(name),
          fmt::format("{}: '{}'", (folder_ / shards_[at.shard].file).string(), name.substr(0, 80)),
          "a tensor that " + index_file_ + " names (the shard may belong to another model)",
          "one that it does not");
    });
  tolerate([&] { refuse_strays(); });
}

/// Throws `Error` that names a tensor that is lost without a shard.
void ModelDirectory::require_file(const std::string& file,
                                  const std::map<std::string, std::string>& map,
                                  const std::string& where) const {
  std::error_code error;
  if (fs::exists(folder_ / file, error)) return;
  const auto is_in = [&](const auto& item) { return item.second == file; };
  const auto first = std::find_if(map.begin(), map.end(), is_in);
  const auto count = std::count_if(map.begin(), map.end(), is_in);
  throw Error(fmt::format("{}: '{}'", where, first->first.substr(0, 80)),
              fmt::format("a tensor of {}{}", file,
                          count > 1 ? fmt::format(", as {} more", count - 1) : ""),
              fmt::format("no such file in {}", folder_.string()));
}

void ModelDirectory::add_shard(const std::string& file) {
  const fs::path path = folder_ / file;
  const SafetensorsFile opened(path);
  WeightShard shard{file, {}, opened.metadata(), opened.file().bytes().size(), modified_of(path)};
  for (const NamedTensor& item : opened.tensors()) tolerate([&] { add_tensor(shard, item); });
  shards_.push_back(std::move(shard));
}

/// Adds a tensor to the shard that comes next.
void ModelDirectory::add_tensor(WeightShard& shard, const NamedTensor& item) {
  const auto [at, is_new] =
      places_.emplace(item.name, WeightPlace{shards_.size(), shard.tensors.size()});
  shard.tensors.push_back(spec_of(item));
  require(is_new, fmt::format("{}: '{}'", (folder_ / shard.file).string(), item.name.substr(0, 80)),
          "a tensor that no other shard holds",
          is_new ? "" : "one that " + shards_[at->second.shard].file + " holds too");
}

/// Files that a reader might take for a part of the model, and that this one does not read.
void ModelDirectory::refuse_strays() const {
  std::set<std::string> known;
  std::set<std::string> series;
  for (const WeightShard& shard : shards_) {
    known.insert(shard.file);
    series.insert(series_of(shard.file));
  }
  series.insert("model");
  for (const std::string& file : weight_files(folder_)) {
    if (known.contains(file)) continue;
    const bool stray =
        file == kSingleFile || (!series_of(file).empty() && series.contains(series_of(file)));
    require(!stray, (folder_ / file).string(),
            index_file_.empty() ? "an index that lists the several files of weights"
                                : "a file that " + index_file_ + " names",
            index_file_.empty() ? "none" : "one that it does not");
  }
}

const WeightPlace* ModelDirectory::find(std::string_view name) const {
  const auto found = places_.find(std::string(name));
  return found == places_.end() ? nullptr : &found->second;
}

const TensorSpec& ModelDirectory::at(const WeightPlace& place) const {
  return shards_.at(place.shard).tensors.at(place.tensor);
}

std::unique_ptr<SafetensorsFile> ModelDirectory::open(std::size_t shard) const {
  const WeightShard& known = shards_.at(shard);
  auto file = std::make_unique<SafetensorsFile>(folder_ / known.file);
  const std::vector<NamedTensor>& tensors = file->tensors();
  const bool same = std::equal(
      tensors.begin(), tensors.end(), known.tensors.begin(), known.tensors.end(),
      [](const NamedTensor& now, const TensorSpec& then) { return spec_of(now) == then; });
  require(same, (folder_ / known.file).string(), "the same tensors as before", "others");
  return file;
}

}  // namespace fp8lab
