#include "probe_runner.hpp"

#include <bit>
#include <utility>

#include "emulated_model.hpp"
#include "emulated_tiles.hpp"

namespace fp8lab::cuda {
namespace {

std::size_t operand_bytes(int tiles, int steps) {
  return static_cast<std::size_t>(tiles) * kTile * static_cast<std::size_t>(steps * kStepBytes);
}

}  // namespace

ProbeRunner::ProbeRunner(const Probe& probe, int tiles, int steps)
    : probe_(probe),
      prediction_(probe.prediction()),
      steps_(steps),
      a_(operand_bytes(tiles, steps)),
      b_(operand_bytes(tiles, steps)),
      executed_a_(probe.halves == Halves::none ? 0 : operand_bytes(tiles, 2 * steps)),
      executed_b_(executed_a_.size()),
      c_(static_cast<std::size_t>(tiles) * kTile),
      d_(static_cast<std::size_t>(tiles) * kTileOutputs),
      emulated_(d_.size()),
      count_(1) {}

void ProbeRunner::run(std::span<const VectorCase> cases) {
  TileBatch batch = pack_tiles(cases, probe_.a_format, probe_.b_format, steps_);
  a_.copy_in(batch.a);
  b_.copy_in(batch.b);
  c_.copy_in(batch.c);
  d_.fill(0xab);
  launch_probe(probe_, a_.data(), b_.data(), c_.data(), d_.data(), batch.tiles, steps_);
  executed_ = executed_batch(prediction_, std::move(batch));
}

std::uint64_t ProbeRunner::count_differences() {
  emulated_.fill(0xcd);
  count_.fill(0);
  const bool whole = prediction_.halves == Halves::none;
  if (!whole) {
    executed_a_.copy_in(executed_.a);
    executed_b_.copy_in(executed_.b);
  }
  launch_emulated_tiles(emulated_model(prediction_.accumulator),
                        emulated_format(executed_format(prediction_, probe_.a_format)),
                        emulated_format(executed_format(prediction_, probe_.b_format)),
                        prediction_.halves, whole ? a_.data() : executed_a_.data(),
                        whole ? b_.data() : executed_b_.data(), c_.data(), emulated_.data(),
                        executed_.tiles, executed_.steps);
  launch_count_differences(reinterpret_cast<const std::uint32_t*>(d_.data()),
                           reinterpret_cast<const std::uint32_t*>(emulated_.data()),
                           static_cast<std::size_t>(executed_.tiles) * kTileOutputs, count_.data());
  return count_.copy_out()[0];
}

std::vector<float> ProbeRunner::results(int tiles) const {
  return d_.copy_out(static_cast<std::size_t>(tiles) * kTileOutputs);
}

std::uint32_t ProbeRunner::run_one(const VectorCase& one) {
  // The tile's first output takes the first case's a, b and c.
  run(std::vector<VectorCase>(kTile, one));
  return std::bit_cast<std::uint32_t>(d_.copy_out(1)[0]);
}

}  // namespace fp8lab::cuda
