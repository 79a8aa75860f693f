#include "tool/lt_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "fp8lab/core/error.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "tool/lt_output.hpp"

namespace fp8lab::cuda {
namespace {

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

std::vector<CallRounding> roundings_of(const Product& product, int parts) {
  const FormatId output = product.output.format;
  if (output == FormatId::f32) return {CallRounding::once};
  if (output != FormatId::f16 && output != FormatId::bf16)
    return {CallRounding::once, CallRounding::through_bf16, CallRounding::through_f16};
  std::vector<CallRounding> roundings{CallRounding::once};
  if (scaled_as_a_whole(product.problem)) roundings.push_back(CallRounding::sum_too);
  if (parts > 1) roundings.push_back(CallRounding::parts_too);
  return roundings;
}

/// The orders that differ for this number of parts.
std::vector<SplitOrder> adding_orders(int parts) {
  if (parts < 3) return {SplitOrder::serial};
  if (parts == 3) return {SplitOrder::serial, SplitOrder::pairwise};
  return {SplitOrder::serial, SplitOrder::pairwise, SplitOrder::tree};
}

/// Whether the parts, each one chain, add up to what promotion at their ends gives.
bool is_promotion(const SplitK& cut, std::int64_t interval, std::int64_t part, SplitOrder order,
                  CallRounding rounding, int terms) {
  return cut.parts > 1 && cut.cut == SplitCut::contiguous && interval == 0 &&
         order == SplitOrder::serial && rounding != CallRounding::parts_too && part % terms == 0 &&
         std::ranges::count(kIntervals, part) == 1;
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
        // The same parts as of larger tiles.
        const auto same = [&](const SplitK& other) {
          const std::int64_t its = (k + other.tile - 1) / other.tile;
          return other.parts == parts && other.cut == cut && cut == SplitCut::contiguous &&
                 (its + parts - 1) / parts * other.tile == each * tile;
        };
        if (std::ranges::any_of(cuts, same)) continue;
        cuts.push_back({parts, tile, cut, SplitOrder::serial});
      }
  return cuts;
}

std::uint64_t count_same(std::span<const std::byte> x, std::span<const std::byte> y,
                         std::size_t bytes) {
  std::uint64_t same = 0;
  for (std::size_t at = 0; at < x.size(); at += bytes)
    same += std::memcmp(x.data() + at, y.data() + at, bytes) == 0 ? 1 : 0;
  return same;
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
      CallModel model{interval, cut};
      const std::vector<std::vector<float>> parts = sums_of_parts(of_candidate(small, model));
      std::vector<std::vector<float>> all_parts;  // made if a candidate passes the sample
      for (const SplitOrder order : adding_orders(cut.parts))
        for (const ScaleOrder scale_order : orders_of(product.problem))
          for (const CallRounding rounding : roundings_of(product, cut.parts)) {
            model.split.order = order;
            model.scale_order = scale_order;
            model.rounding = rounding;
            if (is_promotion(cut, interval, longest, order, rounding, product.problem.model.terms))
              continue;
            ++finding.tried;
            const std::uint64_t same =
                count_same(output_of(small, sum_of(small, parts, model), model), wanted, bytes);
            if (same > most || finding.tried == 1) {
              most = same;
              finding.nearest = model;
            }
            if (same < small.size()) continue;
            if (all_parts.empty()) all_parts = sums_of_parts(of_candidate(product, model));
            if (std::ranges::equal(output_of(product, sum_of(product, all_parts, model), model),
                                   outputs))
              finding.fitting.push_back(model);
          }
    }
  finding.nearest_share = static_cast<double>(most) / static_cast<double>(small.size());
  return finding;
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
