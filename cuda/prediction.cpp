#include "prediction.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "emulated_model.hpp"
#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/accumulate/halves.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/gemm/gemm.hpp"
#include "fp8lab/vectors/replay.hpp"

namespace fp8lab::cuda {
namespace {

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
    const auto term =
        static_cast<std::size_t>(term_of_halves(static_cast<int>(i - first), kHalvesTerms));
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
void add_by_halves(const EmulatedModel& model, Halves halves, GemmProblem problem,
                   std::span<float> d) {
  std::vector<float> sums(d.size());
  std::vector<float> second(d.size());
  for (float& c : d) c = enter_accumulator(model, c);
  const std::int64_t terms = problem.a.k;
  const std::int64_t chain = halves == Halves::chained ? kHalvesTerms : kHalvesTerms / 2;
  const auto next = [&](std::span<float> to) {
    gemm(problem, to, 1);
    for (CodeMatrix* matrix : {&problem.a, &problem.b})
      matrix->data = static_cast<const std::uint16_t*>(matrix->data) + chain;
  };
  problem.a.k = problem.b.k = chain;
  for (std::int64_t k = 0; k < terms; k += kHalvesTerms) {
    next(sums);
    if (halves == Halves::separate) {
      next(second);
      for (std::size_t i = 0; i < d.size(); ++i) sums[i] = add_apart(model, sums[i], second[i]);
    }
    for (std::size_t i = 0; i < d.size(); ++i) d[i] = add_apart(model, d[i], sums[i]);
  }
}

}  // namespace

Prediction prediction_by_halves(Halves halves, FormatId a, FormatId b, bool half_output) {
  const std::string_view step = half_output ? "sm90.mma.f16.f16" : "sm90.mma.f16";
  return {find_instruction_model(step).accumulator, a, b, halves};
}

std::string_view to_string(Halves halves) {
  if (halves == Halves::none) return executed_name(std::nullopt);
  return executed_name(halves == Halves::chained ? HalvesOrder::chained : HalvesOrder::separate);
}

Halves find_halves(std::string_view name) {
  const std::optional<HalvesOrder> order = find_executed(name);
  if (!order) return Halves::none;
  return *order == HalvesOrder::chained ? Halves::chained : Halves::separate;
}

FormatId executed_format(const Prediction& prediction, FormatId given) {
  return prediction.halves == Halves::none ? given : FormatId::f16;
}

TileBatch executed_batch(const Prediction& prediction, TileBatch batch) {
  if (prediction.halves == Halves::none) return batch;
  return {batch.tiles,
          2 * batch.steps,
          executed_rows(prediction.a_format, batch.a),
          executed_rows(prediction.b_format, batch.b),
          std::move(batch.c),
          {},
          {}};
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
    if (prediction.halves == Halves::none) {
      problem.c = c.data();
      gemm(problem, d, 1);
    } else {
      std::copy(c.begin(), c.end(), d.begin());
      add_by_halves(emulated_model(prediction.accumulator), prediction.halves, problem, d);
    }
  }
  return results;
}

std::uint32_t predicted(const Prediction& prediction, const VectorCase& one) {
  auto c = std::bit_cast<float>(one.c);
  if (prediction.halves == Halves::none)
    return std::bit_cast<std::uint32_t>(dot_product(prediction.accumulator, prediction.a_format,
                                                    one.a, prediction.b_format, one.b, c));
  require(one.a.size() % kHalvesTerms == 0, "one", "a multiple of 32 terms",
          fmt::format("{}", one.a.size()));
  const EmulatedModel model = emulated_model(prediction.accumulator);
  /// The sum of a half of the instruction whose first term is `k`.
  const auto half = [&](std::size_t k, int which, float start) {
    std::vector<std::uint32_t> a;
    std::vector<std::uint32_t> b;
    for (int i = 0; i < kHalvesTerms / 2; ++i) {
      const auto term =
          k + static_cast<std::size_t>(term_of_halves(i + which * kHalvesTerms / 2, kHalvesTerms));
      a.push_back(half_code(prediction.a_format, one.a[term]));
      b.push_back(half_code(prediction.b_format, one.b[term]));
    }
    return dot_product(prediction.accumulator, FormatId::f16, a, FormatId::f16, b, start);
  };
  c = enter_accumulator(model, c);
  for (std::size_t k = 0; k < one.a.size(); k += kHalvesTerms) {
    const float first = half(k, 0, 0.0F);
    const float sum = prediction.halves == Halves::chained
                          ? half(k, 1, first)
                          : add_apart(model, first, half(k, 1, 0.0F));
    c = add_apart(model, c, sum);
  }
  return std::bit_cast<std::uint32_t>(c);
}

}  // namespace fp8lab::cuda
