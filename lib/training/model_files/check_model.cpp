#include "training/model_files/check_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <system_error>

#include "fp8lab/core/error.hpp"
#include "fp8lab/io/checksum.hpp"
#include "fp8lab/io/files.hpp"
#include "training/model_files/check_parts.hpp"

namespace fp8lab {
namespace {

bool holds_codes(const ModelDirectory& source) {
  for (const WeightShard& shard : source.shards())
    for (const TensorSpec& tensor : shard.tensors)
      if (is_fp8(tensor.type) || is_packed(tensor.type)) return true;
  return false;
}

/// What the files say; a finding if they say nothing, or nothing that is known, of a model that
/// holds codes.
StoredQuantization quantization_to_check(const ModelDirectory& source,
                                         std::vector<Finding>& findings) {
  const std::string where = source.config().string();
  try {
    return read_stored_quantization(source);
  } catch (const Error& error) {
    if (!holds_codes(source)) throw;
    findings.push_back({"config", source.config().filename().string(), error.what()});
  }
  return {.where = where};
}

/// ModelOpt writes the same things in two files.
void compare_configs(const ModelDirectory& source, const StoredQuantization& stored,
                     std::vector<Finding>& findings) {
  if (stored.family == nullptr || stored.family->own_file().empty()) return;
  const std::string name(stored.family->own_file());
  const std::filesystem::path other = source.folder() / name;
  std::error_code error;
  if (!std::filesystem::exists(other, error)) return;
  const StoredQuantization second = read_own_file(*stored.family, read_file(other), other.string());
  const auto tell = [&](std::string_view what, const std::string& first,
                        const std::string& other_one) {
    if (first != other_one)
      findings.push_back(
          {"config", "hf_quant_config.json",
           fmt::format("expected the {} of config.json, {}, got {}", what, first, other_one)});
  };
  if (stored.has_forms && second.has_forms)
    tell("numbers", describe(stored.form), describe(second.form));
  if (stored.has_forms && second.has_forms && stored.quantizes_kv != second.quantizes_kv)
    tell("scheme of the KV cache", stored.quantizes_kv ? stored.kv_scheme : "none",
         second.quantizes_kv ? second.kv_scheme : "none");
  if (stored.kv_bits != 0 && second.kv_bits != 0 && stored.kv_bits != second.kv_bits)
    tell("scheme of the KV cache", stored.kv_scheme, second.kv_scheme);
  const auto lacks = [](const StoredQuantization& list, const NamePattern& pattern) {
    return std::none_of(list.ignored.begin(), list.ignored.end(),
                        [&](const NamePattern& own) { return own.text() == pattern.text(); });
  };
  for (const NamePattern& pattern : second.ignored)
    if (lacks(stored, pattern)) tell("modules that stay", "a list without it", pattern.text());
  for (const NamePattern& pattern : stored.ignored)
    if (lacks(second, pattern)) tell("modules that stay", pattern.text(), "a list without it");
}

/// Where codes of a weight are, to find the same ones again.
struct CodesPlace {
  std::string name;
  std::size_t shard = 0;
};

/// Weights of which every code is that of another one: a layer that was written twice.
class DuplicateSearch {
 public:
  DuplicateSearch(const ModelDirectory& source, std::vector<Finding>& findings)
      : source_(source), findings_(findings) {}

  void add(const StoredWeight& weight, std::size_t shard, const TensorView& codes) {
    constexpr std::size_t kLeast = 1024;
    if (codes.bytes.size() < kLeast || is_constant(codes.bytes)) return;
    std::vector<CodesPlace>& same = seen_[sample(codes.bytes)];
    for (const CodesPlace& other : same)
      if (holds(other, codes.bytes)) {
        findings_.push_back(
            {"copy", weight.codes.name,
             fmt::format("expected codes of its own, got those of {}", other.name)});
        return;
      }
    same.push_back({weight.codes.name, shard});
  }

 private:
  static bool is_constant(std::span<const std::byte> bytes) {
    const auto part = bytes.first(std::min<std::size_t>(bytes.size(), 4096));
    return std::all_of(part.begin(), part.end(), [&](std::byte b) { return b == part[0]; });
  }

  /// The size and a checksum of three parts.
  static std::string sample(std::span<const std::byte> bytes) {
    constexpr std::size_t kPart = 4096;
    const std::size_t part = std::min(kPart, bytes.size());
    std::string text;
    for (const std::size_t at : {std::size_t{0}, (bytes.size() - part) / 2, bytes.size() - part})
      text.append(reinterpret_cast<const char*>(bytes.data() + at), part);
    return fmt::format("{} {}", bytes.size(), crc32_text(text));
  }

  [[nodiscard]] bool holds(const CodesPlace& place, std::span<const std::byte> bytes) const {
    const std::unique_ptr<SafetensorsFile> file = source_.open(place.shard);
    const std::span<const std::byte> other = file->find(place.name).bytes;
    return std::equal(bytes.begin(), bytes.end(), other.begin(), other.end());
  }

  const ModelDirectory& source_;
  std::vector<Finding>& findings_;
  std::map<std::string, std::vector<CodesPlace>> seen_;
};

void check_all_values(const ModelDirectory& source, const StoredModel& model,
                      CheckedModel& checked) {
  std::vector<WeightRange> ranges;
  std::map<std::string, const StoredWeight*> weights;
  for (const StoredWeight& weight : model.weights) weights[weight.codes.name] = &weight;
  std::set<std::string> known = model.scales;
  for (const SideTensor& side : model.sides) known.insert(side.tensor.spec.name);
  DuplicateSearch duplicates(source, checked.findings);
  for (std::size_t s = 0; s < source.shards().size(); ++s) {
    const std::unique_ptr<SafetensorsFile> file = source.open(s);
    for (const NamedTensor& item : file->tensors()) {
      const WeightPlace* place = source.find(item.name);
      if (place->shard != s) continue;
      const auto found = weights.find(item.name);
      if (found == weights.end()) {
        if (!known.contains(item.name))
          check_floats(source.at(*place), *file, item.tensor, checked.findings);
        continue;
      }
      duplicates.add(*found->second, s, item.tensor);
      const std::vector<float> scales = read_scales(source, *found->second, *file);
      check_values(model, *found->second, scales, *file, item.tensor, ranges, checked.findings);
      file->file().release(item.tensor.bytes);
    }
  }
  check_ranges(ranges, checked.findings);
}

void describe_forms(const StoredModel& model, CheckedModel& checked) {
  for (const StoredWeight& weight : model.weights) {
    const std::string form = describe(weight.form);
    if (std::find(checked.forms.begin(), checked.forms.end(), form) == checked.forms.end())
      checked.forms.push_back(form);
  }
}

}  // namespace

CheckedModel check_model(const std::filesystem::path& path, const CheckModelOptions& options) {
  CheckedModel checked;
  std::vector<std::string> faults;
  const ModelDirectory source(path, faults);
  for (const std::string& fault : faults) checked.findings.push_back({"files", "", fault});
  const StoredModel model =
      read_stored_model(source, quantization_to_check(source, checked.findings));
  checked.method = model.stored.method;
  checked.weights = static_cast<std::int64_t>(model.weights.size());
  for (const WeightShard& shard : source.shards())
    checked.tensors += static_cast<std::int64_t>(shard.tensors.size());
  describe_forms(model, checked);
  for (const StoredFault& fault : model.faults)
    checked.findings.push_back({fault.kind, fault.tensor, fault.text});
  if (model.weights.empty() && model.faults.empty())
    checked.findings.push_back({"config", "", "expected quantized weights, got none"});
  compare_configs(source, model.stored, checked.findings);
  check_names(source, model, checked.findings);
  check_config(source, model, checked.findings);
  check_sides(source, model, checked.findings);
  check_all_values(source, model, checked);
  if (options.original) check_original(source, model, *options.original, checked);
  return checked;
}

}  // namespace fp8lab
