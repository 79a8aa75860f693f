#pragma once
// Grid files, which describe sweeps.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fp8lab {

/// The content of a grid file. Keys that it leaves out are unset.
///
/// ```toml
/// experiment = "outlier"
/// repeat = 5
/// seed = 1
/// quick = true
/// [set]
/// elements = 4096
/// [axes]
/// format = ["e4m3fn", "e5m2"]
/// tiles = "16:256:*2"  # or lists as values: [[16, 64], [32]]
/// ```
struct GridFile {
  std::optional<std::string> experiment;
  std::optional<std::int64_t> repeats;
  std::optional<std::uint64_t> seed;
  std::optional<bool> quick;
  std::vector<std::string> assignments;  ///< `key=value`, as Parameters::set takes them
  std::vector<std::string> axes;         ///< `key=items`, as parse_axis takes them, in their order
};

/// Throws `Error` with the position for text that is not TOML, and with the key for
/// a key that is unknown or has another type.
GridFile parse_grid_file(std::string_view toml);

}  // namespace fp8lab
