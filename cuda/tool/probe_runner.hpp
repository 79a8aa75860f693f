#pragma once
// Batches of tiles through one instruction and through the device's emulator.

#include <cstdint>
#include <vector>

#include "device_buffer.hpp"
#include "probes/probe.hpp"
#include "tiles.hpp"

namespace fp8lab::cuda {

class ProbeRunner {
 public:
  explicit ProbeRunner(const Probe& probe) : probe_(probe), prediction_(probe.prediction()) {}

  /// Runs a batch on the chip: d [tiles, 64, 64].
  std::vector<float> run(const TileBatch& batch);

  /// Whether the device has an emulator of what the probe is held to.
  [[nodiscard]] bool has_emulator() const;
  /// Runs the last batch through it, and counts the outputs whose bits differ from the chip's.
  std::uint64_t count_differences();

 private:
  const Probe& probe_;
  Prediction prediction_;
  TileBatch last_;
  DeviceBuffer<std::uint8_t> a_;
  DeviceBuffer<std::uint8_t> b_;
  DeviceBuffer<std::uint8_t> a_scales_;
  DeviceBuffer<std::uint8_t> b_scales_;
  DeviceBuffer<float> c_;
  DeviceBuffer<float> d_;
};

}  // namespace fp8lab::cuda
