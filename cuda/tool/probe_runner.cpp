#include "probe_runner.hpp"

#include <span>

#include "emulated_model.hpp"
#include "emulated_tiles.hpp"

namespace fp8lab::cuda {
namespace {

/// Room for the values in `buffer`, and they in it.
template <typename T>
void put(DeviceBuffer<T>& buffer, const std::vector<T>& values) {
  if (buffer.size() < values.size()) buffer = DeviceBuffer<T>(values.size());
  buffer.copy_in(std::span<const T>(values));
}

}  // namespace

std::vector<float> ProbeRunner::run(const TileBatch& batch) {
  const std::size_t outputs = static_cast<std::size_t>(batch.tiles) * kTileOutputs;
  put(a_, batch.a);
  put(b_, batch.b);
  put(c_, batch.c);
  put(a_scales_, batch.scale_a);
  put(b_scales_, batch.scale_b);
  if (d_.size() < outputs) d_ = DeviceBuffer<float>(outputs);
  d_.fill(0xab);
  launch_probe(
      probe_,
      {a_.data(), b_.data(), c_.data(), d_.data(), batch.steps, a_scales_.data(), b_scales_.data()},
      batch.tiles);
  last_ = batch;
  return d_.copy_out(outputs);
}

bool ProbeRunner::has_emulator() const {
  return can_emulate(prediction_.accumulator, executed_format(prediction_, probe_.a_format),
                     executed_format(prediction_, probe_.b_format));
}

std::uint64_t ProbeRunner::count_differences() {
  const TileBatch executed = executed_batch(prediction_, last_);
  const std::size_t outputs = static_cast<std::size_t>(executed.tiles) * kTileOutputs;
  const DeviceBuffer<std::uint8_t> a{std::span<const std::uint8_t>(executed.a)};
  const DeviceBuffer<std::uint8_t> b{std::span<const std::uint8_t>(executed.b)};
  DeviceBuffer<float> emulated(outputs);
  DeviceBuffer<unsigned long long> count(1);
  emulated.fill(0xcd);
  count.fill(0);
  launch_emulated_tiles(emulated_model(prediction_.accumulator),
                        emulated_format(executed_format(prediction_, probe_.a_format)),
                        emulated_format(executed_format(prediction_, probe_.b_format)),
                        prediction_.halves, a.data(), b.data(), c_.data(), emulated.data(),
                        executed.tiles, executed.steps);
  launch_count_differences(reinterpret_cast<const std::uint32_t*>(d_.data()),
                           reinterpret_cast<const std::uint32_t*>(emulated.data()), outputs,
                           count.data());
  return count.copy_out()[0];
}

}  // namespace fp8lab::cuda
