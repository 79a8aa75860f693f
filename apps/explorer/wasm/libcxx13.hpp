#pragma once
// Included before every source where the compiler is Debian 12's Emscripten, whose C++ library is
// libc++ 13: the few names of C++20 that the library uses and that it does not have yet.

#include <algorithm>
#include <bit>
#include <functional>
#include <version>

#if defined(_LIBCPP_VERSION) && _LIBCPP_VERSION < 15000
namespace std {  // NOLINT(cert-dcl58-cpp): that is the purpose

#ifndef __cpp_lib_bit_cast
template <class To, class From>
constexpr To bit_cast(const From& from) noexcept {
  return __builtin_bit_cast(To, from);
}
#endif

namespace ranges {

template <class Range, class Value, class Projection = identity>
constexpr auto find(Range&& range, const Value& value, Projection projection = {}) {
  return find_if(range.begin(), range.end(),
                 [&](const auto& element) { return invoke(projection, element) == value; });
}

template <class Range, class Predicate>
constexpr bool all_of(Range&& range, Predicate predicate) {
  return std::all_of(range.begin(), range.end(), predicate);
}

template <class Range, class Value>
constexpr void fill(Range&& range, const Value& value) {
  std::fill(range.begin(), range.end(), value);
}

}  // namespace ranges
}  // namespace std
#endif
