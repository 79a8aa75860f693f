#pragma once
// An experiment's parameters as a struct: each member under the name that `default.toml` gives it.
//
//   struct Settings {
//     std::int64_t elements;
//     std::vector<double> decades;
//     static constexpr auto fields() {
//       return std::tuple{field("elements", &Settings::elements), field("decades",
//       &Settings::decades)};
//     }
//   };
//   const auto s = read_parameters<Settings>(context.parameters);
//
// Types, defaults, ranges and quick values are in `default.toml`, and checked before.

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "fp8lab/core/error.hpp"
#include "fp8lab/experiment/parameters.hpp"

namespace fp8lab {

/// A member and the parameter that it holds.
template <typename Struct, typename Value>
struct ParameterField {
  std::string_view name;
  Value Struct::*member;
};

template <typename Struct, typename Value>
constexpr ParameterField<Struct, Value> field(std::string_view name, Value Struct::*member) {
  return {name, member};
}

namespace parameter_struct_detail {

template <typename Value>
Value read(const Parameters& p, std::string_view name) {
  if constexpr (std::is_same_v<Value, std::int64_t>)
    return p.integer(name);
  else if constexpr (std::is_same_v<Value, double>)
    return p.real(name);
  else if constexpr (std::is_same_v<Value, bool>)
    return p.flag(name);
  else if constexpr (std::is_same_v<Value, std::string>)
    return p.text(name);
  else if constexpr (std::is_same_v<Value, std::vector<std::int64_t>>)
    return p.integers(name);
  else if constexpr (std::is_same_v<Value, std::vector<double>>)
    return p.reals(name);
  else if constexpr (std::is_same_v<Value, std::vector<std::string>>)
    return p.texts(name);
}

}  // namespace parameter_struct_detail

/// The parameters as a struct. Throws `Error` where a member has no parameter of its name and type,
/// and where a parameter has no member: nothing that a user sets is left unread.
template <typename Struct>
Struct read_parameters(const Parameters& parameters) {
  Struct result{};
  std::size_t read = 0;
  const auto read_field = [&]<typename Value>(const ParameterField<Struct, Value>& one) {
    result.*one.member = parameter_struct_detail::read<Value>(parameters, one.name);
    ++read;
  };
  std::apply([&](const auto&... fields) { (read_field(fields), ...); }, Struct::fields());
  if (read == parameters.values().size()) return result;
  for (const auto& entry : parameters.values()) {
    const std::string& key = entry.first;
    const auto is_key = [&](const auto&... fields) { return ((fields.name == key) || ...); };
    require(std::apply(is_key, Struct::fields()), "default.toml: " + key,
            "a parameter that the experiment reads", "one that it does not");
  }
  throw Error("parameters", "each parameter in one member", "one in two members");
}

}  // namespace fp8lab
