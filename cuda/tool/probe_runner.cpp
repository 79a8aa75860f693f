#include "probe_runner.hpp"

#include <bit>

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
      steps_(steps),
      a_(operand_bytes(tiles, steps)),
      b_(operand_bytes(tiles, steps)),
      c_(static_cast<std::size_t>(tiles) * kTile),
      d_(static_cast<std::size_t>(tiles) * kTileOutputs),
      emulated_(d_.size()),
      count_(1) {}

void ProbeRunner::run(std::span<const VectorCase> cases) {
  batch_ = pack_tiles(cases, probe_.a_format, probe_.b_format, steps_);
  a_.copy_in(batch_.a);
  b_.copy_in(batch_.b);
  c_.copy_in(batch_.c);
  d_.fill(0xab);
  launch_probe(probe_, a_.data(), b_.data(), c_.data(), d_.data(), batch_.tiles, steps_);
}

std::uint64_t ProbeRunner::count_differences() {
  emulated_.fill(0xcd);
  count_.fill(0);
  launch_emulated_tiles(emulated_model(probe_.instruction().accumulator),
                        emulated_format(probe_.a_format), emulated_format(probe_.b_format),
                        a_.data(), b_.data(), c_.data(), emulated_.data(), batch_.tiles, steps_);
  launch_count_differences(reinterpret_cast<const std::uint32_t*>(d_.data()),
                           reinterpret_cast<const std::uint32_t*>(emulated_.data()),
                           static_cast<std::size_t>(batch_.tiles) * kTileOutputs, count_.data());
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
