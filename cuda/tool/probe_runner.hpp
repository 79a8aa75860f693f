#pragma once
// Batches of tiles through one instruction and through the device's emulator.

#include <cstdint>
#include <span>
#include <vector>

#include "device_buffer.hpp"
#include "probes/probe.hpp"
#include "tiles.hpp"

namespace fp8lab::cuda {

class ProbeRunner {
 public:
  /// Room for batches of up to `tiles` tiles of `steps` chained instructions.
  ProbeRunner(const Probe& probe, int tiles, int steps);

  /// Packs the cases (a multiple of 64) and runs them on the chip.
  void run(std::span<const VectorCase> cases);
  /// Runs the same batch through the device's emulator, and counts the outputs
  /// whose bits differ from the chip's.
  std::uint64_t count_differences();
  /// The chip's outputs of the first `tiles` tiles, as binary32 bits.
  [[nodiscard]] std::vector<float> results(int tiles) const;
  /// What the library says for the first `tiles` tiles.
  [[nodiscard]] std::vector<float> library(int tiles) const {
    return library_results(executed_, prediction_, 0, tiles);
  }

  /// What the chip gives for one case.
  std::uint32_t run_one(const VectorCase& one);

 private:
  const Probe& probe_;
  Prediction prediction_;
  int steps_;
  TileBatch executed_;  ///< the last batch, as the tensor core gets it
  DeviceBuffer<std::uint8_t> a_;
  DeviceBuffer<std::uint8_t> b_;
  DeviceBuffer<std::uint8_t> executed_a_;  ///< empty where it is a_
  DeviceBuffer<std::uint8_t> executed_b_;
  DeviceBuffer<float> c_;
  DeviceBuffer<float> d_;
  DeviceBuffer<float> emulated_;
  DeviceBuffer<unsigned long long> count_;
};

}  // namespace fp8lab::cuda
