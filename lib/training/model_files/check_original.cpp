// A quantized model against the one that it was made of.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <set>

#include "fp8lab/core/error.hpp"
#include "fp8lab/formats/format.hpp"
#include "training/model_files/check_parts.hpp"
#include "training/model_files/expert_cast.hpp"
#include "training/model_files/recipe_search.hpp"

namespace fp8lab {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The smallest SQNR of a rounding to nearest with full use of the range is 24 dB for three bits of
// mantissa and 12 dB for one; a whole weight has more.

struct Limits {
  double weight_db;
  double tile_db;
};

Limits limits_of(FormatId id) {
  switch (format(id).code_bits()) {
    case 4:
      return {12.0, 6.0};
    case 6:
      return {20.0, 12.0};
    default:
      return id == FormatId::e5m2 || id == FormatId::e5m2fnuz ? Limits{18.0, 12.0}
                                                              : Limits{24.0, 18.0};
  }
}

/// Tiles of less than this share of the mean energy do not count: they may be all noise.
constexpr double kSmallTile = 1e-3;

struct Sums {
  double signal = 0.0;
  double noise = 0.0;
  double product = 0.0;  ///< of original and quantized values
  double power = 0.0;    ///< of quantized values

  void add(float original, float value) {
    const double x = original;
    const double y = value;
    signal += x * x;
    noise += (y - x) * (y - x);
    product += x * y;
    power += y * y;
  }
};

double decibels(const Sums& sums) {
  if (sums.noise == 0.0) return kInfinity;
  if (!std::isfinite(sums.noise)) return -kInfinity;
  return sums.signal == 0.0 ? -kInfinity : 10.0 * std::log10(sums.signal / sums.noise);
}

/// Where the original of a weight is, and how it lies.
struct Original {
  const ModelDirectory& folder;
  std::map<std::size_t, std::unique_ptr<SafetensorsFile>> files;

  const TensorView* find(const std::string& name) {
    const WeightPlace* place = folder.find(name);
    if (place == nullptr) return nullptr;
    std::unique_ptr<SafetensorsFile>& file = files[place->shard];
    if (!file) file = folder.open(place->shard);
    return &file->find(name);
  }

  void release(const std::string& name) {
    const WeightPlace* place = folder.find(name);
    files[place->shard]->file().release(files[place->shard]->find(name).bytes);
  }
};

/// Rows [first, first + rows) of an expert, in the order of its codes.
std::vector<float> original_rows(const StoredWeight& weight, const TensorView& original,
                                 std::int64_t expert, std::int64_t first, std::int64_t rows) {
  const std::size_t width = element_bytes(original.type);
  const auto expert_bytes = static_cast<std::size_t>(weight.rows * weight.k) * width;
  const auto part =
      original.bytes.subspan(static_cast<std::size_t>(expert) * expert_bytes, expert_bytes);
  if (weight.turns_output) {
    const std::vector<std::byte> turned = transposed(part, weight.k, weight.rows, original.type);
    return to_float({original.type, {weight.rows, weight.k}, turned});
  }
  const auto row_bytes = static_cast<std::size_t>(weight.k) * width;
  return to_float({original.type,
                   {rows, weight.k},
                   part.subspan(static_cast<std::size_t>(first) * row_bytes,
                                static_cast<std::size_t>(rows) * row_bytes)});
}

class WeightCompare {
 public:
  WeightCompare(const StoredWeight& weight, const std::vector<float>& scales)
      : weight_(weight), scales_(scales), tiles_(scales.size()) {}

  void add(const WeightPart& part, const std::vector<float>& original) {
    const std::span<const float> table = decode_table(weight_.form.format);
    const auto* codes = reinterpret_cast<const std::uint8_t*>(part.codes.codes.bytes.data());
    std::size_t at = 0;
    for (std::int64_t r = 0; r < part.rows; ++r) {
      const std::int64_t tile_row = (part.first + r) / weight_.row_block;
      const std::int64_t first_tile =
          (part.expert * weight_.tile_rows() + tile_row) * weight_.tile_columns();
      for (std::int64_t c = 0; c < weight_.k; ++c, ++at) {
        const auto tile = static_cast<std::size_t>(first_tile + c / weight_.k_block);
        tiles_[tile].add(original[at], table[codes[at]] * scales_[tile]);
      }
    }
  }

  /// The error, and findings for a weight or tiles that no rounding explains.
  WeightError finish(std::vector<Finding>& findings) {
    WeightError error{weight_.written.name, describe(weight_.form), 0.0, 0.0, 0, 0, {}};
    Sums all;
    for (const Sums& tile : tiles_) {
      all.signal += tile.signal;
      all.noise += tile.noise;
      all.product += tile.product;
      all.power += tile.power;
    }
    error.sqnr_db = decibels(all);
    const std::int64_t bad = find_worst(all, error);
    const Limits limits = limits_of(weight_.form.format);
    if (error.sqnr_db < limits.weight_db)
      findings.push_back(
          {"error", weight_.codes.name,
           fmt::format("expected at least {} dB against the original, got {:.1f} dB{}",
                       limits.weight_db, error.sqnr_db, reason(all))});
    else if (bad > 0)
      findings.push_back(
          {"error", weight_.codes.name,
           fmt::format("expected at least {} dB in every tile, got {:.1f} dB in the tile at row "
                       "{}, column {} ({} of {} tiles have less){}",
                       limits.tile_db, error.worst_db, error.worst_row, error.worst_column, bad,
                       tiles_.size(), reason(tiles_[worst_]))});
    return error;
  }

 private:
  std::int64_t find_worst(const Sums& all, WeightError& error) {
    const double least = kSmallTile * all.signal / static_cast<double>(tiles_.size());
    const Limits limits = limits_of(weight_.form.format);
    error.worst_db = kInfinity;
    std::int64_t bad = 0;
    for (std::size_t i = 0; i < tiles_.size(); ++i) {
      if (tiles_[i].signal < least && tiles_[i].noise < least) continue;
      const double db = decibels(tiles_[i]);
      bad += db < limits.tile_db ? 1 : 0;
      if (db >= error.worst_db) continue;
      error.worst_db = db;
      worst_ = i;
    }
    const auto tile = static_cast<std::int64_t>(worst_);
    error.worst_row = tile / weight_.tile_columns() * weight_.row_block;
    error.worst_column = tile % weight_.tile_columns() * weight_.k_block;
    return bad;
  }

  /// What a large error looks like.
  static std::string reason(const Sums& sums) {
    const double correlation = sums.product / std::sqrt(sums.signal * sums.power);
    if (!std::isfinite(correlation)) return {};
    if (std::abs(correlation) > 0.9)
      return fmt::format(
          ": the values are {:.4g} times those of the original, so the scale is wrong",
          sums.power / sums.product);
    if (std::abs(correlation) < 0.1)
      return ": the values are unlike the original's, so the tensor, the order of its rows or that "
             "of its packed codes is another one";
    return fmt::format(": the values follow the original's in part (correlation {:.2f})",
                       correlation);
  }

  const StoredWeight& weight_;
  const std::vector<float>& scales_;
  std::vector<Sums> tiles_;
  std::size_t worst_ = 0;
};

/// All weights, and the tensors that are copies.
class OriginalCheck {
 public:
  OriginalCheck(const ModelDirectory& source, const StoredModel& model,
                const ModelDirectory& original, CheckedModel& checked)
      : source_(source), model_(model), original_{original, {}}, checked_(checked) {}

  void run() {
    std::map<std::string, const StoredWeight*> weights;
    for (const StoredWeight& weight : model_.weights) weights[weight.codes.name] = &weight;
    for (std::size_t s = 0; s < source_.shards().size(); ++s) {
      const std::unique_ptr<SafetensorsFile> file = source_.open(s);
      for (const NamedTensor& item : file->tensors()) {
        const auto found = weights.find(item.name);
        if (found != weights.end())
          check_weight(*found->second, *file, item.tensor);
        else
          check_copy(item);
        file->file().release(item.tensor.bytes);
      }
    }
    check_missing();
    search_.finish(checked_);
  }

 private:
  void tell(const char* kind, const std::string& name, std::string text) {
    checked_.findings.push_back({kind, name, std::move(text)});
  }

  void check_weight(const StoredWeight& weight, const SafetensorsFile& file,
                    const TensorView& codes) {
    const TensorView* original = original_.find(weight.written.name);
    if (original == nullptr) {
      tell("missing tensor", weight.codes.name,
           fmt::format("expected {} in the original, got none", weight.written.name));
      return;
    }
    if (!is_float_of_32_bits_or_fewer(original->type) || original->shape != weight.written.shape) {
      tell("shape", weight.codes.name,
           fmt::format("expected the original's {}, which is {} {}, got {}", weight.written.name,
                       to_string(original->type), shape_text(original->shape),
                       shape_text(weight.written.shape)));
      return;
    }
    const std::vector<float> scales = read_scales(source_, weight, file);
    WeightCompare compare(weight, scales);
    for_each_part_of(weight, scales, file, codes, [&](const WeightPart& part) {
      compare.add(part, original_rows(weight, *original, part.expert, part.first, part.rows));
    });
    checked_.errors.push_back(compare.finish(checked_.findings));
    search_.add(weight, scales, codes, *original, joined_originals(weight),
                checked_.errors.size() - 1);
    original_.release(weight.written.name);
  }

  /// Weights of the original that share a tensor's scale with this one.
  std::vector<const TensorView*> joined_originals(const StoredWeight& weight) {
    std::vector<const TensorView*> views;
    for (const StoredWeight& other : model_.weights)
      if (is_joined(weight, other))
        if (const TensorView* view = original_.find(other.written.name)) views.push_back(view);
    return views;
  }

  /// Bytes of a tensor that is not quantized.
  void check_copy(const NamedTensor& item) {
    const TensorView* original = original_.find(item.name);
    if (original == nullptr || model_.scales.contains(item.name)) return;
    if (original->type != item.tensor.type || original->shape != item.tensor.shape)
      tell("copy", item.name,
           fmt::format("expected the original's {} {}, got {} {}", to_string(original->type),
                       shape_text(original->shape), to_string(item.tensor.type),
                       shape_text(item.tensor.shape)));
    else if (!std::equal(original->bytes.begin(), original->bytes.end(), item.tensor.bytes.begin(),
                         item.tensor.bytes.end()))
      tell("copy", item.name, "expected the bytes of the original, got others");
    original_.release(item.name);
  }

  /// Tensors of the original that are neither copied nor quantized.
  void check_missing() {
    std::set<std::string> written;
    for (const StoredWeight& weight : model_.weights) written.insert(weight.written.name);
    for (const WeightShard& shard : original_.folder.shards())
      for (const TensorSpec& tensor : shard.tensors)
        if (source_.find(tensor.name) == nullptr && !written.contains(tensor.name))
          tell("missing tensor", tensor.name, "expected this tensor of the original, got none");
  }

  const ModelDirectory& source_;
  const StoredModel& model_;
  Original original_;
  CheckedModel& checked_;
  RecipeSearch search_;
};

}  // namespace

void check_original(const ModelDirectory& source, const StoredModel& model,
                    const std::filesystem::path& original, CheckedModel& checked) {
  const ModelDirectory folder(original);
  OriginalCheck(source, model, folder, checked).run();
}

}  // namespace fp8lab
