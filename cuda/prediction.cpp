#include "prediction.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "emulated_model.hpp"
#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/gemm/gemm.hpp"

namespace fp8lab::cuda {
namespace {

/// Which term of its instruction stands at place `i` of the halves' order.
int term_at(int i) {
  const int half = i / (kHalvesTerms / 2);
  const int within = i % (kHalvesTerms / 2);
  return within / 2 * 4 + half * 2 + within % 2;
}

/// Every FP8 value is an FP16 value.
std::uint32_t half_code(FormatId from, std::uint32_t code) {
  return cast(format(FormatId::f16), kNvidiaNosat, unpack(format(from), code)).code;
}

std::vector<std::uint8_t> executed_rows(FormatId from, const std::vector<std::uint8_t>& codes) {
  std::array<std::uint16_t, 256> half_of{};
  for (std::uint32_t code = 0; code < 256; ++code)
    half_of[code] = static_cast<std::uint16_t>(half_code(from, code));
  std::vector<std::uint8_t> halves(2 * codes.size());
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::size_t first = i / kHalvesTerms * kHalvesTerms;
    const auto term = static_cast<std::size_t>(term_at(static_cast<int>(i - first)));
    std::memcpy(halves.data() + 2 * i, &half_of[codes[first + term]], 2);
  }
  return halves;
}

CodeMatrix tile_matrix(FormatId id, const std::vector<std::uint8_t>& bytes, int tile, int steps) {
  const std::int64_t k = steps * kStepBytes * 8 / format(id).storage_bits;
  const auto row_bytes = static_cast<std::size_t>(steps * kStepBytes);
  return {id, bytes.data() + static_cast<std::size_t>(tile * kTile) * row_bytes, kTile, k, k, 1};
}

/// Instruction after instruction: their sums from zero, added to `d`.
void add_by_halves(const EmulatedModel& model, GemmProblem problem, std::span<float> d) {
  std::vector<float> sums(d.size());
  for (float& c : d) c = enter_accumulator(model, c);
  const std::int64_t terms = problem.a.k;
  problem.a.k = problem.b.k = kHalvesTerms;
  for (std::int64_t k = 0; k < terms; k += kHalvesTerms) {
    gemm(problem, sums, 1);
    for (std::size_t i = 0; i < d.size(); ++i) d[i] = add_apart(model, d[i], sums[i]);
    for (CodeMatrix* matrix : {&problem.a, &problem.b})
      matrix->data = static_cast<const std::uint16_t*>(matrix->data) + kHalvesTerms;
  }
}

}  // namespace

Prediction prediction_by_halves(FormatId a, FormatId b, bool half_output) {
  AccumulatorModel model = find_instruction_model("sm90.mma.f16").accumulator;
  if (half_output) {
    model.output_format = FormatId::f16;
    model.output_fraction_bits = 10;
    model.rounding = RoundingMode::nearest_even;
  }
  return {model, a, b, true};
}

FormatId executed_format(const Prediction& prediction, FormatId given) {
  return prediction.by_halves ? FormatId::f16 : given;
}

TileBatch executed_batch(const Prediction& prediction, TileBatch batch) {
  if (!prediction.by_halves) return batch;
  return {batch.tiles, 2 * batch.steps, executed_rows(prediction.a_format, batch.a),
          executed_rows(prediction.b_format, batch.b), std::move(batch.c)};
}

std::vector<float> library_results(const TileBatch& executed, const Prediction& prediction,
                                   int first, int count) {
  std::vector<float> results(static_cast<std::size_t>(count) * kTileOutputs);
#pragma omp parallel for schedule(dynamic)
  for (int tile = 0; tile < count; ++tile) {
    std::vector<float> c(kTileOutputs);
    for (int i = 0; i < kTileOutputs; ++i)
      c[static_cast<std::size_t>(i)] = executed.c[static_cast<std::size_t>(
          (first + tile) * kTile + case_of_c(i / kTile, i % kTile))];
    GemmProblem problem;
    problem.model = prediction.accumulator;
    problem.a = tile_matrix(executed_format(prediction, prediction.a_format), executed.a,
                            first + tile, executed.steps);
    problem.b = tile_matrix(executed_format(prediction, prediction.b_format), executed.b,
                            first + tile, executed.steps);
    const std::span<float> d =
        std::span(results).subspan(static_cast<std::size_t>(tile) * kTileOutputs, kTileOutputs);
    if (prediction.by_halves) {
      std::copy(c.begin(), c.end(), d.begin());
      add_by_halves(emulated_model(prediction.accumulator), problem, d);
    } else {
      problem.c = c.data();
      gemm(problem, d, 1);
    }
  }
  return results;
}

std::uint32_t predicted(const Prediction& prediction, const VectorCase& one) {
  const auto c = std::bit_cast<float>(one.c);
  if (!prediction.by_halves)
    return std::bit_cast<std::uint32_t>(dot_product(prediction.accumulator, prediction.a_format,
                                                    one.a, prediction.b_format, one.b, c));
  require(one.a.size() % kHalvesTerms == 0, "one", "a multiple of 32 terms",
          fmt::format("{}", one.a.size()));
  const EmulatedModel model = emulated_model(prediction.accumulator);
  float sum = enter_accumulator(model, c);
  std::vector<std::uint32_t> a(kHalvesTerms);
  std::vector<std::uint32_t> b(kHalvesTerms);
  for (std::size_t k = 0; k < one.a.size(); k += kHalvesTerms) {
    for (std::size_t i = 0; i < kHalvesTerms; ++i) {
      const std::size_t term = k + static_cast<std::size_t>(term_at(static_cast<int>(i)));
      a[i] = half_code(prediction.a_format, one.a[term]);
      b[i] = half_code(prediction.b_format, one.b[term]);
    }
    sum = add_apart(model, sum,
                    dot_product(prediction.accumulator, FormatId::f16, a, FormatId::f16, b, 0.0F));
  }
  return std::bit_cast<std::uint32_t>(sum);
}

}  // namespace fp8lab::cuda
