#pragma once
// Reals for people.

#include <string>

namespace fp8lab {

/// A real for people: 4 significant digits, with an exponent only below 1e-4
/// and from 1e6 on; integers below that in full.
std::string short_number(double value);

}  // namespace fp8lab
