#include "fp8lab/attention/judge.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "fp8lab/cast/cast.hpp"

namespace fp8lab {
namespace {

/// Approximate exponentials and another order of sums move O by less than this (relative L2).
constexpr double kOtherRoundings = 1e-3;
/// A P that rounds the other way moves a row by at most half of E4M3's step, 1/8.
constexpr double kOneStepOfP = 0.0625;
/// Rows may be this many tolerances off where the whole is within one.
constexpr double kRowTolerances = 8.0;

bool same(float x, float y) { return x == y || (std::isnan(x) && std::isnan(y)); }

std::string range_text(const char* name, std::int64_t begin, std::int64_t end) {
  if (end - begin == 1) return fmt::format("{} {}", name, begin);
  return fmt::format("{}s {} to {}", name, begin, end - 1);
}

std::string heads_text(const std::vector<char>& has) {
  std::vector<std::size_t> heads;
  for (std::size_t head = 0; head < has.size(); ++head)
    if (has[head] != 0) heads.push_back(head);
  constexpr std::size_t kMostListed = 8;
  if (heads.size() == 1) return fmt::format("head {}", heads.front());
  if (heads.back() - heads.front() + 1 == heads.size())
    return fmt::format("heads {} to {}", heads.front(), heads.back());
  if (heads.size() > kMostListed) return fmt::format("{} heads", heads.size());
  return fmt::format("heads {}", fmt::join(heads, ", "));
}

}  // namespace

std::string OutputRegion::text(const AttentionShape& shape) const {
  std::vector<std::string> parts;
  if (std::ranges::count(heads, 0) != 0) parts.push_back(heads_text(heads));
  if (row_end - row_begin < shape.m) parts.push_back(range_text("row", row_begin, row_end));
  if (column_end - column_begin < shape.d_v)
    parts.push_back(range_text("column", column_begin, column_end));
  return fmt::format("{}", fmt::join(parts, ", "));
}

OutputJudge::OutputJudge(const AttentionShape& shape, std::span<const float> got,
                         const std::vector<float>& golden, FormatId output, double tolerance)
    : shape_(shape), got_(got), unrounded_(golden), output_(output), tolerance_(tolerance) {
  golden_ = rounded(golden);
  golden_fit_ = fit({attention_blocks(shape_, shape_.m), golden_});
  find_wrong_rows();
  find_region();
}

std::vector<std::size_t> OutputJudge::set_aside_non_finite() {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < got_.size(); ++i)
    if (!same(got_[i], golden_[i]) && (!std::isfinite(got_[i]) || !std::isfinite(golden_[i])))
      found.push_back(i);
  if (found.empty()) return found;
  aside_.assign(got_.size(), 0);
  for (const std::size_t i : found) aside_[i] = 1;
  golden_fit_ = fit({attention_blocks(shape_, shape_.m), golden_});
  find_wrong_rows();
  find_region();
  return found;
}

float OutputJudge::rounded(float value) const {
  if (output_ == FormatId::f32) return value;
  const Format& f = format(output_);
  const CastPolicy& policy = f.storage_bits == 8 ? kNvidiaSatfinite : kNvidiaNosat;
  return static_cast<float>(round_trip(f, policy, value));
}

std::vector<float> OutputJudge::rounded(std::vector<float> values) const {
  if (output_ != FormatId::f32)
    for (float& value : values) value = rounded(value);
  return values;
}

OutputFit OutputJudge::fit(const OutputRows& expected, const OutputRegion* only) const {
  OutputFit found;
  double squares = 0.0;
  double norm = 0.0;
  double farthest = 0.0;
  const auto width = static_cast<std::size_t>(shape_.d_v);
  const float* value = expected.o.data();
  double rows = 0.0;
  for (const AttentionRows& part : expected.rows)
    for (std::int64_t row = part.begin; row < part.end; ++row, value += width) {
      const auto first = static_cast<std::size_t>(part.head * shape_.m + row) * width;
      double apart_in_row = 0.0;
      for (std::size_t c = 0; c < width; ++c) {
        const std::size_t i = first + c;
        if (!aside_.empty() && aside_[i] != 0) continue;
        const auto column = static_cast<std::int64_t>(c);
        const bool own =
            only == nullptr || (only->has(part.head, row) && column >= only->column_begin &&
                                column < only->column_end);
        const float e = own ? value[c] : golden_[i];
        norm += static_cast<double>(e) * static_cast<double>(e);
        const bool right = same(golden_[i], got_[i]);
        const bool fits = same(e, got_[i]);
        found.wrong += right ? 0 : 1;
        found.explained += !right && fits ? 1 : 0;
        found.contradicted += right && !fits ? 1 : 0;
        if (fits) continue;
        const double apart = static_cast<double>(got_[i]) - static_cast<double>(e);
        apart_in_row += std::isfinite(apart) ? apart * apart : INFINITY;
      }
      squares += apart_in_row;
      farthest = std::max(farthest, apart_in_row);
      rows += 1.0;
    }
  found.distance = squares == 0.0 ? 0.0 : std::sqrt(squares / norm);
  found.row_distance = farthest == 0.0 ? 0.0 : std::sqrt(farthest / (norm / rows));
  return found;
}

bool OutputJudge::passes() const {
  if (golden_fit_.mismatches() == 0) return true;
  return golden_fit_.distance <= tolerance_ &&
         golden_fit_.row_distance <= std::max(kRowTolerances * tolerance_, kOneStepOfP);
}

Explains OutputJudge::explains(const OutputFit& fit) const {
  if (fit.mismatches() == 0) return Explains::all;
  if (fit.wrong == 0) return Explains::nothing;
  if (tolerance_ == 0.0 && fit.explained * 10 >= fit.wrong * 9 &&
      fit.contradicted * 20 <= fit.explained)
    return Explains::most;
  const double limit = tolerance_ > 0.0 ? tolerance_ : kOtherRoundings;
  const double share = tolerance_ > 0.0 ? 0.5 : 0.25;
  const bool near = fit.distance <= limit && fit.distance <= share * golden_fit_.distance &&
                    fit.row_distance <= std::max(kRowTolerances * limit, kOneStepOfP);
  return near ? Explains::within : Explains::nothing;
}

bool OutputJudge::worth_trying(const OutputFit& fit, const OutputFit& golden) const {
  if (fit.wrong == 0) return false;
  const double limit = tolerance_ > 0.0 ? tolerance_ : kOtherRoundings;
  return fit.explained * 10 >= fit.wrong * 7 ||
         (fit.distance <= 3.0 * limit && fit.distance <= 0.6 * golden.distance);
}

OutputFit OutputJudge::golden_fit(const std::vector<AttentionRows>& rows) const {
  std::vector<float> golden;
  for (const AttentionRows& part : rows) {
    const auto first = golden_.begin() + (part.head * shape_.m + part.begin) * shape_.d_v;
    golden.insert(golden.end(), first, first + (part.end - part.begin) * shape_.d_v);
  }
  return fit({rows, std::move(golden)});
}

std::vector<std::size_t> OutputJudge::promising(std::span<const OutputFit> fits,
                                                const OutputFit& golden, std::size_t most) const {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < fits.size(); ++i)
    if (worth_trying(fits[i], golden)) order.push_back(i);
  std::ranges::stable_sort(
      order, {}, [&](std::size_t i) { return std::pair(-fits[i].explained, fits[i].distance); });
  if (order.size() > most) order.resize(most);
  std::ranges::sort(order);
  return order;
}

bool OutputJudge::wrong(std::size_t element) const {
  if (!aside_.empty() && aside_[element] != 0) return false;
  if (tolerance_ == 0.0) return !same(got_[element], golden_[element]);
  const double apart = static_cast<double>(got_[element]) - static_cast<double>(golden_[element]);
  const double size = std::max(std::abs(static_cast<double>(golden_[element])), usual_);
  return !(std::abs(apart) <= 3.0 * tolerance_ * size);
}

void OutputJudge::find_wrong_rows() {
  double squares = 0.0;
  for (const float value : golden_)
    squares += std::isfinite(value) ? static_cast<double>(value) * static_cast<double>(value) : 0.0;
  usual_ = std::sqrt(squares / static_cast<double>(golden_.size()));
  const auto width = static_cast<std::size_t>(shape_.d_v);
  wrong_rows_.assign(golden_.size() / width, 0);
  for (std::size_t i = 0; i < golden_.size(); ++i)
    if (wrong(i)) wrong_rows_[i / width] = 1;
  // A tolerance that no element exceeds by itself.
  if (std::ranges::count(wrong_rows_, 1) == 0 && golden_fit_.mismatches() != 0)
    std::ranges::fill(wrong_rows_, char{1});
}

void OutputJudge::find_region() {
  region_ = {std::vector<char>(static_cast<std::size_t>(shape_.heads), 0), shape_.m, 0, shape_.d_v,
             0};
  for (std::size_t row = 0; row < wrong_rows_.size(); ++row) {
    if (wrong_rows_[row] == 0) continue;
    const auto at = static_cast<std::int64_t>(row);
    region_.heads[static_cast<std::size_t>(at / shape_.m)] = 1;
    region_.row_begin = std::min(region_.row_begin, at % shape_.m);
    region_.row_end = std::max(region_.row_end, at % shape_.m + 1);
    for (std::int64_t c = 0; c < shape_.d_v; ++c)
      if (wrong(static_cast<std::size_t>(at * shape_.d_v + c))) {
        region_.column_begin = std::min(region_.column_begin, c);
        region_.column_end = std::max(region_.column_end, c + 1);
      }
  }
  // Within a tolerance, the outer columns may be right by chance.
  const bool most = (region_.column_end - region_.column_begin) * 4 > shape_.d_v * 3;
  if (tolerance_ > 0.0 && most) {
    region_.column_begin = 0;
    region_.column_end = shape_.d_v;
  }
}

}  // namespace fp8lab
