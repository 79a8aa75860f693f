#pragma once

namespace fp8lab {

/// draw.py, embedded by the build.
extern const char* const kDrawScript;

}  // namespace fp8lab
