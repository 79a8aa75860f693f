#pragma once
// Where an experiment's matrix products run: on the emulator ("cpu", always
// there) or on what a program has added, such as a chip. Chosen once, at the
// start of a program, by the name that its user gives.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/gemm/gemm.hpp"

namespace fp8lab {

/// A product with the contract of `gemm`; what it gives for models that the
/// backend cannot run (a chip has one accumulator) is the backend's to say.
using GemmBackend = void (*)(const GemmProblem& problem, std::span<float> d, int threads);

/// Adds a backend, or replaces the one of that name. Not thread-safe, like the next.
void add_gemm_backend(std::string name, GemmBackend run);

/// Chooses what `gemm_on_backend` runs. Throws `Error` that lists the names.
void select_gemm_backend(std::string_view name);

/// The names, "cpu" first.
std::vector<std::string> gemm_backends();

/// D = the product on the chosen backend, `gemm` unless another was chosen.
void gemm_on_backend(const GemmProblem& problem, std::span<float> d, int threads = 0);

}  // namespace fp8lab
