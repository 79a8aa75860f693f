#pragma once

namespace fp8lab {

inline constexpr const char* kBuildVersion = "0.1.0";
inline constexpr const char* kBuildGit = "7f6b48f-dirty";

}  // namespace fp8lab
