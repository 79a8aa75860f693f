#pragma once
// Names of enumerators as Python spells them, where the library has no `find`.

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/cast/policy.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/scaling/quantize.hpp"

namespace fp8lab::python {

template <typename Enum, std::size_t N>
using Names = std::array<std::pair<std::string_view, Enum>, N>;

inline constexpr Names<AccumulationKind, 4> kAccumulationKinds{{
    {"fused_dot_product", AccumulationKind::fused_dot_product},
    {"sequential", AccumulationKind::sequential},
    {"float32", AccumulationKind::float32},
    {"exact", AccumulationKind::exact},
}};
inline constexpr Names<ProductExponent, 2> kProductExponents{{
    {"stored", ProductExponent::stored},
    {"normalized", ProductExponent::normalized},
}};
inline constexpr Names<ScaleSource, 4> kScaleSources{{
    {"current", ScaleSource::current},
    {"delayed", ScaleSource::delayed},
    {"ms_amp", ScaleSource::ms_amp},
    {"calibration", ScaleSource::calibration},
}};
inline constexpr Names<ZeroAmax, 2> kZeroAmax{{
    {"keep_history", ZeroAmax::keep_history},
    {"roll", ZeroAmax::roll},
}};
inline constexpr Names<OverflowPolicy, 2> kOverflowPolicies{{
    {"saturate", OverflowPolicy::saturate},
    {"non_saturating", OverflowPolicy::non_saturating},
}};
inline constexpr Names<SubnormalPolicy, 3> kSubnormalPolicies{{
    {"preserve", SubnormalPolicy::preserve},
    {"flush_to_zero", SubnormalPolicy::flush_to_zero},
    {"raise_to_min_normal", SubnormalPolicy::raise_to_min_normal},
}};
inline constexpr Names<InfinityPolicy, 2> kInfinityPolicies{{
    {"saturate", InfinityPolicy::saturate},
    {"non_saturating", InfinityPolicy::non_saturating},
}};
inline constexpr Names<NanPolicy, 3> kNanPolicies{{
    {"positive_all_ones", NanPolicy::positive_all_ones},
    {"signed_all_ones", NanPolicy::signed_all_ones},
    {"signed_quiet", NanPolicy::signed_quiet},
}};

template <typename Enum, std::size_t N>
std::string name_of(const Names<Enum, N>& names, Enum value) {
  for (const auto& [name, enumerator] : names)
    if (enumerator == value) return std::string(name);
  return "";
}

template <typename Enum, std::size_t N>
Enum find(const Names<Enum, N>& names, std::string_view argument, std::string_view name) {
  std::string known;
  for (const auto& [spelling, enumerator] : names) {
    if (spelling == name) return enumerator;
    known += (known.empty() ? "" : ", ") + std::string(spelling);
  }
  throw Error(argument, "one of " + known, "'" + std::string(name) + "'");
}

}  // namespace fp8lab::python
