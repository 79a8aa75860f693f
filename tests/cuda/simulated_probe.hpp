#pragma once
// Runs the kernel of a probe on the simulated chip.

#include "simulated_mma.hpp"

namespace fp8lab::cuda {

/// Runs a batch through the kernel that the probe has on the chip.
inline std::vector<float> simulate(const TileBatch& batch) {
  shared_windows.forget();
  last_result.reset();
  std::vector<float> d(static_cast<std::size_t>(batch.tiles) * kTileOutputs, -1.0F);
  const TileArguments arguments{batch.a.data(), batch.b.data(),       batch.c.data(),      d.data(),
                                batch.steps,    batch.scale_a.data(), batch.scale_b.data()};
  const auto launch = [&](auto kernel) {
    device_on_host::launch({static_cast<unsigned>(batch.tiles), 1, 1}, 128,
                           [&] { kernel(arguments); });
  };
  const std::string_view name = planted.probe.name;
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  const std::uint32_t filler = format(planted.probe.b_format).max_finite_code();
  const auto sparse_mma = [&](auto op) {
    decltype(op)::kFiller = filler;
    launch(mma_sparse_probe<decltype(op)>);
  };
  const auto sparse_wgmma = [&](auto op) {
    decltype(op)::kFiller = filler;
    launch(wgmma_probe<decltype(op)>);
  };
  if (has("tcgen05.")) {
    const bool half = has("k32.f16.") || has("k16.f16.");
    const std::size_t scales =
        planted.probe.scales
            ? static_cast<std::size_t>(planted.probe.terms() / planted.probe.scales->block)
            : 0;
    const auto run = [&](auto op) {
      using Op = decltype(op);
      Op::kA = static_cast<int>(tcgen05_type(planted.probe.a_format));
      Op::kB = static_cast<int>(tcgen05_type(planted.probe.b_format));
      Op::kScaleType = planted.probe.scales && planted.probe.scales->format == ScaleFormat::ue8m0;
      const std::uint32_t signs = has(".f16.f16") ? 0x80008000u : 0x80808080u;
      Op::kFlipA = has(".negated_a") ? signs : 0;
      Op::kFlipB = has(".negated_b") ? signs : 0;
      Op::kFiller = filler;
      launch(tcgen05_probe<Op>);
    };
    if (has(".sp.") && scales == 1)
      run(SimulatedTcgen05<false, 1, 1>{});
    else if (has(".sp."))
      has(".e") ? run(SimulatedTcgen05<false, 0, 1>{}) : run(SimulatedTcgen05<false, 0, 2>{});
    else if (scales == 4)
      run(SimulatedTcgen05<false, 4>{});
    else if (scales == 2)
      run(SimulatedTcgen05<false, 2>{});
    else if (scales == 1)
      run(SimulatedTcgen05<false, 1>{});
    else if (half)
      run(SimulatedTcgen05<true, 0>{});
    else
      run(SimulatedTcgen05<false, 0>{});
  } else if (has("wgmma.")) {
    const bool half = has("k32.f16.") || has("k16.f16.");
    const bool registers = has(".registers");
    if (has(".sp."))
      has(".e") ? sparse_wgmma(SimulatedWgmma<float, 64, false, 0, 1>{})
                : sparse_wgmma(SimulatedWgmma<float, 64, false, 0, 2>{});
    else if (has(".f16.shared.negated_a"))
      launch(wgmma_probe<SimulatedWgmma<float, 64, false, 1, 2>>);
    else if (has(".negated_a"))
      launch(wgmma_probe<SimulatedWgmma<float, 64, false, 1>>);
    else if (has(".negated_b"))
      launch(wgmma_probe<SimulatedWgmma<float, 64, false, 2>>);
    else if (has("n256k"))
      launch(wgmma_probe<SimulatedWgmma<float, 256, false>>);
    else if (has("n8k"))
      launch(wgmma_probe<SimulatedWgmma<float, 8, false>>);
    else if (half && registers)
      launch(wgmma_probe<SimulatedWgmma<std::uint32_t, 64, true>>);
    else if (half)
      launch(wgmma_probe<SimulatedWgmma<std::uint32_t, 64, false>>);
    else if (registers)
      launch(wgmma_probe<SimulatedWgmma<float, 64, true>>);
    else
      launch(wgmma_probe<SimulatedWgmma<float, 64, false>>);
  } else if (planted.probe.scales) {
    if (planted.probe.narrow_operands() == NarrowOperands::in_bytes)
      launch(mma_scaled_probe<SimulatedScaledMma<1>>);
    else if (planted.probe.scales->block == 16)
      launch(mma_scaled_probe<SimulatedScaledMma<4>>);
    else
      launch(mma_scaled_probe<SimulatedScaledMma<2>>);
  } else if (has("mma.sp.")) {
    has(".e") ? sparse_mma(SimulatedSparseMma<1>{}) : sparse_mma(SimulatedSparseMma<2>{});
  } else if (planted.probe.terms() < planted.probe.terms_of_step()) {
    has("k16.f16.") ? launch(mma_short_probe<SimulatedShortMma<HalfState>>)
                    : launch(mma_short_probe<SimulatedShortMma<FloatState>>);
  } else if (has("k32.f16.") || has("k16.f16.")) {
    launch(mma_probe<SimulatedMma<HalfState>>);
  } else {
    launch(mma_probe<SimulatedMma<FloatState>>);
  }
  return d;
}

}  // namespace fp8lab::cuda
