#pragma once
// The two formats that most claims are about.

#include "fp8lab/formats/format.hpp"

namespace fp8lab::experiments {

inline const Format& e4m3() { return format(FormatId::e4m3fn); }
inline const Format& e5m2() { return format(FormatId::e5m2); }

}  // namespace fp8lab::experiments
