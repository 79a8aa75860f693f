#pragma once
// A backend runs matrix products and casts of whole tensors. The default `Backend` is the
// emulator on the CPU; a program can add others, such as a GPU. A backend is a value that is
// passed to functions. There is no global backend.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/cast/policy.hpp"
#include "fp8lab/gemm/gemm.hpp"

namespace fp8lab {

/// Computes a product with the contract of `gemm`. Returns false, and writes nothing, if the
/// backend does not support it: a chip has one accumulator and few formats. Must be thread-safe.
using GemmFunction =
    std::function<bool(const GemmProblem& problem, std::span<float> d, int threads)>;

/// Writes the code of values[i] in an 8-bit format to codes[i]. The values are already
/// scaled. Returns false, and writes nothing, if the backend does not support the format or the
/// policy. Must be thread-safe.
using CastFunction =
    std::function<bool(FormatId format, const CastPolicy& policy, std::span<const float> values,
                       std::span<std::uint8_t> codes)>;

/// Whether `cvt.rn.satfinite` (`kNvidiaSatfinite`), NVIDIA's only cast of tensors, gives these
/// values the codes of `policy`. True for E4M3 and E5M2 with rounding to nearest even, unless the
/// policy treats overflow, Inf or NaN in another way and one of the values is such a case.
bool fits_satfinite(FormatId format, const CastPolicy& policy, std::span<const float> values);

/// The default is the emulator on the CPU. It supports every product and leaves casts to callers.
struct Backend {
  std::string name = "cpu";
  GemmFunction gemm{};  ///< empty: `gemm` of the emulator
  CastFunction cast{};  ///< empty: no casts
};

/// The names of a list of backends. Names must be unique.
std::vector<std::string> backend_names(std::span<const Backend> backends);

/// The backend called `name`. Throws `Error` that lists the names.
const Backend& find_backend(std::span<const Backend> backends, std::string_view name);

/// Computes the product on `backend`, or with `gemm` if it is not supported. Throws as `gemm`.
void gemm_on(const Backend& backend, const GemmProblem& problem, std::span<float> d,
             int threads = 0);

/// Computes the product on `backend` only. Returns false and writes nothing if not supported.
bool try_gemm_on(const Backend& backend, const GemmProblem& problem, std::span<float> d,
                 int threads = 0);

/// Casts on `backend`. Returns false, and writes nothing, if it is not supported: the caller then
/// casts by itself. Throws `Error` for spans of different lengths.
bool try_cast_on(const Backend& backend, FormatId format, const CastPolicy& policy,
                 std::span<const float> values, std::span<std::uint8_t> codes);

}  // namespace fp8lab
