#pragma once
// Parameters that texts of users are set into.

#include "lab/experiment/parameters.hpp"

/// A parameter of each kind, with room for ranges.
inline const fp8lab::Parameters& defaults() {
  static const fp8lab::Parameters kDefaults = fp8lab::Parameters::from_toml(
      "count = 4\nscale = 0.5\non = true\nname = 'a'\n"
      "counts = [1, 2]\nscales = [0.5, 1.5]\nnames = ['a', 'b']\n",
      false);
  return kDefaults;
}
