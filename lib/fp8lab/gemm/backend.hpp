#pragma once
// Where matrix products and casts of whole tensors run: on the emulator, which a
// `Backend` is by default, or on what a program brings along, such as a chip. It is a
// value: code runs on the backend that it is given, and on no other.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/cast/policy.hpp"
#include "fp8lab/gemm/gemm.hpp"

namespace fp8lab {

/// A product with the contract of `gemm`. False, and nothing written, for what the
/// backend does not have: a chip has one accumulator and few formats. Many threads may call it.
using GemmFunction =
    std::function<bool(const GemmProblem& problem, std::span<float> d, int threads)>;

/// Writes to codes[i] the code of values[i] in an 8-bit format; values are already
/// scaled. False, and nothing written, for a format or policy that the backend does not have.
/// Many threads may call it.
using CastFunction =
    std::function<bool(FormatId format, const CastPolicy& policy, std::span<const float> values,
                       std::span<std::uint8_t> codes)>;

/// Whether NVIDIA's only cast of tensors, `cvt.rn.satfinite` (`kNvidiaSatfinite`), gives
/// these values the codes of `policy`: E4M3 or E5M2, to nearest even, and where the
/// policy differs on overflow, Inf or NaN, no value that meets the difference.
bool fits_satfinite(FormatId format, const CastPolicy& policy, std::span<const float> values);

/// By default the emulator on the CPU, which has every product and leaves casts to their callers.
struct Backend {
  std::string name = "cpu";
  GemmFunction gemm{};  ///< empty: the emulator's
  CastFunction cast{};  ///< empty: it has no casts
};

/// Of a list in which names are unique.
std::vector<std::string> backend_names(std::span<const Backend> backends);

/// The backend of that name. Throws `Error` that lists the names.
const Backend& find_backend(std::span<const Backend> backends, std::string_view name);

/// D = the product on `backend`; `gemm` where that does not have it. Throws what `gemm` throws.
void gemm_on(const Backend& backend, const GemmProblem& problem, std::span<float> d,
             int threads = 0);

/// The product on `backend` alone: false, and nothing written, where that does not have it.
bool try_gemm_on(const Backend& backend, const GemmProblem& problem, std::span<float> d,
                 int threads = 0);

/// The cast on `backend`. False, and nothing written, where that does not have it: the
/// caller's own cast stands. Throws `Error` for spans of different lengths.
bool try_cast_on(const Backend& backend, FormatId format, const CastPolicy& policy,
                 std::span<const float> values, std::span<std::uint8_t> codes);

}  // namespace fp8lab
