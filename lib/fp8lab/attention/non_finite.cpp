#include "fp8lab/attention/non_finite.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace fp8lab {
namespace {

/// The places of some elements of O.
class Places {
 public:
  Places(const AttentionInputs& inputs, const AttentionOptions& options, const OutputJudge& judge,
         std::span<const std::size_t> elements)
      : inputs_(inputs),
        options_(options),
        judge_(judge),
        shape_(judge.shape()),
        elements_(elements) {
    for (const std::size_t i : elements) {
      const auto at = static_cast<std::int64_t>(i);
      columns_.insert(at % shape_.d_v);
      rows_.insert(at / shape_.d_v);
      (std::isnan(judge.got()[i]) ? nans_ : std::isinf(judge.got()[i]) ? infinities_ : numbers_)++;
    }
  }

  AttentionCause cause() const {
    AttentionCause found;
    found.name = name();
    found.text = fmt::format("{} {}{}", what(), where(), reason(found.name));
    found.mismatches = judge_.golden_fit().mismatches();
    found.distance = judge_.golden_fit().distance;
    return found;
  }

 private:
  [[nodiscard]] std::string name() const {
    if (!zero_columns().empty()) return "nan_of_zero_channel";
    if (empty_rows()) return "nan_of_empty_row";
    if (saturates()) return "nan_of_p";
    return "not_finite";
  }

  [[nodiscard]] std::string what() const {
    std::vector<std::string> parts;
    if (nans_ > 0) parts.push_back(fmt::format("{} NaN", nans_));
    if (infinities_ > 0) parts.push_back(fmt::format("{} infinite", infinities_));
    if (numbers_ > 0)
      parts.push_back(fmt::format("{} finite where the right output is not", numbers_));
    return fmt::format("{}", fmt::join(parts, ", "));
  }

  template <typename Set>
  static std::string listed(const char* noun, const Set& set) {
    constexpr std::size_t kMostListed = 6;
    std::vector<std::int64_t> some;
    for (const std::int64_t one : set)
      if (some.size() < kMostListed) some.push_back(one);
    return fmt::format("{}{} {}{}", noun, set.size() == 1 ? "" : "s", fmt::join(some, ", "),
                       set.size() > kMostListed ? ", ..." : "");
  }

  [[nodiscard]] bool whole_columns() const {
    return elements_.size() == columns_.size() * judge_.wrong_rows().size();
  }
  [[nodiscard]] bool whole_rows() const {
    return std::ssize(elements_) == std::ssize(rows_) * shape_.d_v;
  }

  [[nodiscard]] std::string where() const {
    if (elements_.size() == judge_.got().size()) return "in all outputs";
    if (whole_columns()) return "in " + listed("column", columns_) + " of every row of every head";
    std::set<std::int64_t> heads;
    std::set<std::int64_t> in_heads;
    for (const std::int64_t row : rows_) {
      heads.insert(row / shape_.m);
      in_heads.insert(row % shape_.m);
    }
    return fmt::format("in {}{}, {}", whole_rows() ? "whole rows: " : "", listed("head", heads),
                       listed("row", in_heads)) +
           (whole_rows() ? "" : ", " + listed("column", columns_));
  }

  /// Wrong columns of which V has zeros alone: a scale of their own is 0.
  [[nodiscard]] std::set<std::int64_t> zero_columns() const {
    if (!whole_columns()) return {};
    const AttentionOperand& v = inputs_.v;
    const std::uint32_t magnitude = format(v.format).magnitude_mask();
    std::set<std::int64_t> zero = columns_;
    for (std::size_t i = 0; i < v.codes.size(); ++i)
      if ((v.codes[i] & magnitude) != 0) zero.erase(static_cast<std::int64_t>(i) % v.columns);
    return zero.size() == columns_.size() ? zero : std::set<std::int64_t>{};
  }

  [[nodiscard]] bool empty_rows() const {
    return whole_rows() && std::ranges::all_of(rows_, [&](std::int64_t row) {
             const SeenColumns seen = seen_columns(shape_, options_, row % shape_.m);
             return seen.begin >= seen.end;
           });
  }

  /// Whether P would be NaN in just these rows without saturation in its cast.
  [[nodiscard]] bool saturates() const {
    if (!whole_rows()) return false;
    AttentionVariant variant;
    variant.p_cast = kNvidiaNosat;
    for (const AttentionRows& block : attention_blocks(shape_, options_.q_tile)) {
      std::vector<float> o(static_cast<std::size_t>((block.end - block.begin) * shape_.d_v), 0.0F);
      std::vector<AttentionTile> tiles = attention_tiles(shape_.n, options_.kv_tile);
      attention_rows(inputs_, options_, variant, block, o, tiles);
      for (std::int64_t row = block.begin; row < block.end; ++row) {
        const bool nan =
            !std::isfinite(o[static_cast<std::size_t>((row - block.begin) * shape_.d_v)]);
        if (nan != rows_.contains(block.head * shape_.m + row)) return false;
      }
    }
    return true;
  }

  static std::string reason(std::string_view of_name) {
    if (of_name == "nan_of_zero_channel")
      return ", where V is all zeros: a scale of their own would be 0, and 0 / 0 is NaN";
    if (of_name == "nan_of_empty_row")
      return ": rows that see no column, whose row sum is 0: 0 / 0 is NaN";
    if (of_name == "nan_of_p")
      return ": P is above the largest number of its format there, and its cast does not saturate";
    return "";
  }

  const AttentionInputs& inputs_;
  const AttentionOptions& options_;
  const OutputJudge& judge_;
  AttentionShape shape_;
  std::span<const std::size_t> elements_;
  std::set<std::int64_t> columns_;
  std::set<std::int64_t> rows_;  ///< head * m + row
  std::int64_t nans_ = 0;
  std::int64_t infinities_ = 0;
  std::int64_t numbers_ = 0;
};

}  // namespace

AttentionCause non_finite_cause(const AttentionInputs& inputs, const AttentionOptions& options,
                                const OutputJudge& judge, std::span<const std::size_t> elements) {
  return Places(inputs, options, judge, elements).cause();
}

}  // namespace fp8lab
