#pragma once
// Scales of a model's inputs from samples of them.

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "fp8lab/scaling/presets.hpp"

namespace fp8lab {

/// What samples are taken for, and what else is no mistake in a file of them.
struct CalibrationTargets {
  std::map<std::string, std::int64_t> columns;  ///< k of each module whose input gets a scale
  std::set<std::string> kept;                   ///< modules that stay as they are
  bool as_multipliers = false;  ///< scales that multiply into codes, not back (NVFP4)
  bool has_outputs = false;     ///< files hold samples of keys and values too (kv_cache.hpp)
};

struct InputScales {
  std::map<std::string, float> scales;  ///< of each module: value = code * scale
  std::set<std::string> unused;         ///< kept modules that have samples
};

/// The input scales of `preset`'s calibrated activation recipe after all samples. A .safetensors
/// file holds samples [..., k] (F32, F16, BF16) under the name of their module, or of its
/// `.input`, and with `.0`, `.1` ... behind it where there are several: one batch each, in the
/// order of files and numbers. ModelOpt's scale is amax / 448, as it is exported (nvidia-modelopt
/// 0.47.0, torch/export/quant_utils.py, *read*), that of NVFP4 the scale of the tensor; all others
/// are the recipe's inverse scale.
///
/// A file that does not end with .safetensors is a trace of amaxes (amax_trace.hpp), whose lines
/// are batches in order. It gives the scales that its tensors would.
///
/// Throws `Error` naming file and tensor for a module that the model does not have, a sample of
/// other columns, of integers or with NaN or Inf, a traced amax that is no BF16 number under a
/// recipe of BF16, and for a module without a sample.
InputScales calibrate_inputs(const Preset& preset, const std::vector<std::filesystem::path>& files,
                             const CalibrationTargets& targets);

}  // namespace fp8lab
