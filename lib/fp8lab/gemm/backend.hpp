#pragma once
// Where matrix products and casts of whole tensors run: on the emulator ("cpu",
// always there) or on what a program has added, such as a chip. An experiment
// runs on the one that its user chose by name at the start of the program.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/cast/policy.hpp"
#include "fp8lab/gemm/gemm.hpp"

namespace fp8lab {

/// A product with the contract of `gemm`. False, and nothing written, for what the
/// backend does not have: a chip has one accumulator and few formats.
using GemmFunction = bool (*)(const GemmProblem& problem, std::span<float> d, int threads);

/// Writes to codes[i] the code of values[i] in an 8-bit format; values are already
/// scaled. False, and nothing written, for a format or policy that the backend does not have.
using CastFunction = bool (*)(FormatId format, const CastPolicy& policy,
                              std::span<const float> values, std::span<std::uint8_t> codes);

/// Whether NVIDIA's only cast of tensors, `cvt.rn.satfinite` (`kNvidiaSatfinite`), gives
/// these values the codes of `policy`: E4M3 or E5M2, to nearest even, and where the
/// policy differs on overflow, Inf or NaN, no value that meets the difference.
bool fits_satfinite(FormatId format, const CastPolicy& policy, std::span<const float> values);

struct Backend {
  std::string name;
  GemmFunction gemm = nullptr;
  CastFunction cast = nullptr;  ///< null: it has no casts
};

/// Adds a backend, or replaces the one of that name. Not thread-safe, like `select_backend`.
void add_backend(Backend backend);

/// The names, "cpu" first.
std::vector<std::string> backend_names();

/// The backend of that name. Throws `Error` that lists the names.
Backend find_backend(std::string_view name);

/// Chooses what the functions below run, for the whole process. Throws as `find_backend`.
void select_backend(std::string_view name);

/// D = the product on the chosen backend; `gemm` where that does not have it.
void gemm_on_backend(const GemmProblem& problem, std::span<float> d, int threads = 0);

/// Whether the chosen backend has casts at all: "cpu" leaves them to their callers.
bool backend_casts();

/// The cast on the chosen backend. False, and nothing written, where that does not
/// have it: the caller's own cast stands. Throws `Error` for spans of different lengths.
bool cast_on_backend(FormatId format, const CastPolicy& policy, std::span<const float> values,
                     std::span<std::uint8_t> codes);

}  // namespace fp8lab
