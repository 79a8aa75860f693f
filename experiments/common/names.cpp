#include "common/names.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "fp8lab/core/error.hpp"

namespace fp8lab::experiments {

std::string short_name(const Format& f) {
  if (f.id == FormatId::e4m3fn) return "E4M3";
  if (f.id == FormatId::f16) return "FP16";
  if (f.id == FormatId::f32) return "FP32";
  std::string name(f.name);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return name;
}

std::string subnormal_name(const CastPolicy& policy) {
  switch (policy.subnormals) {
    case SubnormalPolicy::preserve:
      return "kept";
    case SubnormalPolicy::flush_to_zero:
      return "flushed";
    case SubnormalPolicy::raise_to_min_normal:
      return "raised";
  }
  return "";
}

std::string in_words(const std::vector<std::string>& names) {
  if (names.size() < 2) return names.empty() ? "" : names.front();
  return fmt::format("{} and {}", fmt::join(names.begin(), names.end() - 1, ", "), names.back());
}

std::string plain_name(std::string_view name) {
  std::string plain(name);
  std::replace(plain.begin(), plain.end(), '_', '-');
  return plain;
}

std::vector<double> log_steps(std::string_view name, const LogAxis& axis) {
  require(axis.from <= axis.to, fmt::format("{}_to", name),
          fmt::format("at least {}_from = {:g}", name, axis.from), fmt::format("{:g}", axis.to));
  std::vector<double> steps;
  // Half a step of slack, so that rounding in `to` does not lose the last one.
  for (int i = 0; axis.from + i / axis.per_decade <= axis.to + 0.5 / axis.per_decade; ++i)
    steps.push_back(std::pow(10.0, axis.from + i / axis.per_decade));
  return steps;
}

}  // namespace fp8lab::experiments
