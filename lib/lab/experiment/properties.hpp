#pragma once
// What an experiment's `default.toml` says of the experiment itself, beside its parameters.

#include <string_view>

namespace fp8lab {

/// The key of `supports_mpi`.
inline constexpr std::string_view kMpiKey = "mpi";

/// Whether the experiment's messages can go between MPI processes: `mpi = true`. Others send none.
/// Throws `Error` where the key has another type.
bool supports_mpi(std::string_view default_toml);

}  // namespace fp8lab
