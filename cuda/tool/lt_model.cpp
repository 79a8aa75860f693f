#include "tool/lt_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/names.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/product/partial_sums.hpp"

namespace fp8lab::cuda {
namespace {

constexpr std::array<std::string_view, 5> kRoundings{"once", "sum_too", "parts_too", "through_bf16",
                                                     "through_f16"};
constexpr std::array<std::int64_t, 8> kIntervals{0, 128, 32, 64, 256, 512, 1024, 2048};
constexpr std::array<std::int64_t, 2> kTiles{128, 64};
constexpr int kMostParts = 16;
// A sample of this size rules out nearly every candidate at little cost.
constexpr std::int64_t kSampleRows = 4;
constexpr std::int64_t kSampleColumns = 16;

/// The orders that differ for scales of the whole sum; without scales there is one.
std::vector<ScaleOrder> orders_of(const GemmProblem& problem) {
  if (!scaled_as_a_whole(problem)) return {ScaleOrder::product_then_fma};
  return {ScaleOrder::product_then_fma, ScaleOrder::a_then_fma_b, ScaleOrder::b_then_fma_a};
}

std::vector<LtRounding> roundings_of(const Product& product, int parts) {
  const FormatId output = product.output.format;
  if (output == FormatId::f32) return {LtRounding::once};
  if (output != FormatId::f16 && output != FormatId::bf16)
    return {LtRounding::once, LtRounding::through_bf16, LtRounding::through_f16};
  std::vector<LtRounding> roundings{LtRounding::once};
  if (scaled_as_a_whole(product.problem)) roundings.push_back(LtRounding::sum_too);
  if (parts > 1) roundings.push_back(LtRounding::parts_too);
  return roundings;
}

/// The orders that differ for this number of parts.
std::vector<SplitOrder> adding_orders(int parts) {
  if (parts < 3) return {SplitOrder::serial};
  if (parts == 3) return {SplitOrder::serial, SplitOrder::pairwise};
  return {SplitOrder::serial, SplitOrder::pairwise, SplitOrder::tree};
}

/// Ways to cut K, fewest parts first; none of them twice.
std::vector<SplitK> cuts_of(std::int64_t k, int stated_parts) {
  std::vector<int> counts;
  for (int parts = 1; parts <= kMostParts; ++parts) counts.push_back(parts);
  if (stated_parts > kMostParts) counts.push_back(stated_parts);
  std::vector<SplitK> cuts;
  for (const int parts : counts)
    for (const SplitCut cut : {SplitCut::contiguous, SplitCut::modulo})
      for (const std::int64_t tile : kTiles) {
        const std::int64_t tiles = (k + tile - 1) / tile;
        if (parts == 1 && !cuts.empty()) continue;
        if (parts > 1 && parts > tiles) continue;
        const std::int64_t each = (tiles + parts - 1) / parts;
        // Fewer parts than asked, or one tile a part, where both cuts are the same.
        if (cut == SplitCut::contiguous && (tiles + each - 1) / each != parts) continue;
        if (cut == SplitCut::modulo && each == 1) continue;
        cuts.push_back({parts, tile, cut, SplitOrder::serial});
      }
  return cuts;
}

void round_to(FormatId to, std::vector<float>& values) {
  const OutputCast output = default_output(to);
  for (float& value : values)
    value = static_cast<float>(decode(format(to), encode(format(to), output.policy, value)));
}

std::vector<std::vector<float>> sums_of_parts(const Product& product) {
  std::vector<std::vector<float>> sums;
  for (const Product& part : split_parts(product)) sums.push_back(compute_sums(part));
  return sums;
}

/// The output of a candidate, from the FP32 sums of its parts.
std::vector<std::byte> output_of(const Product& product, std::vector<std::vector<float>> parts,
                                 const LtModel& model) {
  const FormatId output = product.output.format;
  if (model.rounding == LtRounding::parts_too)
    for (std::vector<float>& part : parts) round_to(output, part);
  std::vector<float> sums = add_up(std::move(parts), model.split.order);
  if (model.rounding == LtRounding::sum_too) round_to(output, sums);
  GemmProblem problem = product.problem;
  problem.scale_order = model.scale_order;
  scale_sums(problem, sums);
  if (model.rounding == LtRounding::through_bf16) round_to(FormatId::bf16, sums);
  if (model.rounding == LtRounding::through_f16) round_to(FormatId::f16, sums);
  return cast_output(sums, product.output);
}

std::uint64_t count_same(std::span<const std::byte> x, std::span<const std::byte> y,
                         std::size_t bytes) {
  std::uint64_t same = 0;
  for (std::size_t at = 0; at < x.size(); at += bytes)
    same += std::memcmp(x.data() + at, y.data() + at, bytes) == 0 ? 1 : 0;
  return same;
}

/// The product of a candidate's promotion and parts.
Product with(const Product& product, const LtModel& model) {
  Product one = product;
  one.problem.promotion_interval = model.interval;
  one.problem.scale_order = model.scale_order;
  one.split = model.split;
  return one;
}

std::vector<std::byte> outputs_of(std::span<const std::byte> outputs, const Sample& sample,
                                  std::size_t row_bytes, std::size_t bytes) {
  std::vector<std::byte> taken;
  for (const std::int64_t row : sample.rows)
    for (const std::int64_t column : sample.columns) {
      const std::byte* at = outputs.data() + static_cast<std::size_t>(row) * row_bytes +
                            static_cast<std::size_t>(column) * bytes;
      taken.insert(taken.end(), at, at + bytes);
    }
  return taken;
}

void require_simple(const Product& product, std::size_t size, std::size_t bytes) {
  require(size == product.size() * bytes, "outputs",
          fmt::format("{} bytes", product.size() * bytes), size);
  require(product.problem.c == nullptr, "c", "none", "a tensor");
  require(product.epilogue.empty(), "epilogue", "none", "one");
  require(!scaled_in_blocks(product.problem), "scales", "one, or one per row", "tiles along k");
}

}  // namespace

std::string_view to_string(LtRounding rounding) {
  return kRoundings[static_cast<std::size_t>(rounding)];
}
LtRounding find_lt_rounding(std::string_view name) {
  return find_enumerator<LtRounding>(kRoundings, "rounding", name);
}

std::string to_string(const LtModel& model) {
  std::string text = fmt::format("N_C {}, ", model.interval);
  if (model.split.parts > 1)
    text += fmt::format("split {} {} {} tile {}, ", model.split.parts,
                        fp8lab::to_string(model.split.cut), fp8lab::to_string(model.split.order),
                        model.split.tile);
  return text +
         fmt::format("{}, {}", fp8lab::to_string(model.scale_order), to_string(model.rounding));
}

LtFinding find_lt_model(const Product& product, std::span<const std::byte> outputs,
                        int stated_parts) {
  const auto bytes = static_cast<std::size_t>(format(product.output.format).storage_bits / 8);
  require_simple(product, outputs.size(), bytes);
  const Sample sample{spread(product.rows(), kSampleRows),
                      spread(product.columns(), kSampleColumns)};
  const Product small = take(product, sample);
  const std::vector<std::byte> wanted =
      outputs_of(outputs, sample, static_cast<std::size_t>(product.columns()) * bytes, bytes);
  const std::int64_t k = product.problem.a.k;
  LtFinding finding{.outputs = product.size()};
  std::uint64_t most = 0;
  for (const SplitK& cut : cuts_of(k, stated_parts))
    for (const std::int64_t interval : kIntervals) {
      const std::int64_t tiles = (k + cut.tile - 1) / cut.tile;
      const std::int64_t longest =
          cut.parts == 1 ? k : (tiles + cut.parts - 1) / cut.parts * cut.tile;
      if (interval >= longest) continue;
      if (interval > 0 && interval % product.problem.model.terms != 0) continue;
      LtModel model{interval, cut};
      const std::vector<std::vector<float>> parts = sums_of_parts(with(small, model));
      std::vector<std::vector<float>> all_parts;  // made if a candidate passes the sample
      for (const SplitOrder order : adding_orders(cut.parts))
        for (const ScaleOrder scale_order : orders_of(product.problem))
          for (const LtRounding rounding : roundings_of(product, cut.parts)) {
            model.split.order = order;
            model.scale_order = scale_order;
            model.rounding = rounding;
            ++finding.tried;
            const std::uint64_t same = count_same(output_of(small, parts, model), wanted, bytes);
            if (same > most || finding.tried == 1) {
              most = same;
              finding.nearest = model;
            }
            if (same < small.size()) continue;
            if (all_parts.empty()) all_parts = sums_of_parts(with(product, model));
            if (std::ranges::equal(output_of(product, all_parts, model), outputs))
              finding.fitting.push_back(model);
          }
    }
  finding.nearest_share = static_cast<double>(most) / static_cast<double>(small.size());
  return finding;
}

LtKnown in_common(const std::vector<LtModel>& fitting) {
  LtKnown known;
  const auto set = [&](auto& field, auto of) {
    if (fitting.empty()) return;
    const auto value = of(fitting.front());
    if (std::ranges::all_of(fitting, [&](const LtModel& model) { return of(model) == value; }))
      field = value;
  };
  set(known.interval, [](const LtModel& model) { return model.interval; });
  set(known.parts, [](const LtModel& model) { return model.split.parts; });
  set(known.tile, [](const LtModel& model) { return model.split.tile; });
  set(known.cut, [](const LtModel& model) { return model.split.cut; });
  set(known.order, [](const LtModel& model) { return model.split.order; });
  set(known.scale_order, [](const LtModel& model) { return model.scale_order; });
  set(known.rounding, [](const LtModel& model) { return model.rounding; });
  return known;
}

std::string to_string(const LtFinding& finding) {
  if (finding.fitting.empty())
    return fmt::format("none of the {} candidates; nearest, in {:.1f} % of a sample: {}",
                       finding.tried, 100.0 * finding.nearest_share, to_string(finding.nearest));
  std::string text = to_string(finding.fitting.front());
  if (finding.fitting.size() > 1)
    text += fmt::format(" (and {} more that give all {} outputs)", finding.fitting.size() - 1,
                        finding.outputs);
  return text;
}

}  // namespace fp8lab::cuda
