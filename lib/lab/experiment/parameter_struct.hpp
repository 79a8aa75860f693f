#pragma once
// An experiment's parameters as a struct: each member under the name that `default.toml` gives it.
//
//   struct Settings {
//     std::size_t elements = 0;
//     std::vector<double> decades;
//     std::vector<const Format*> formats;
//     TraceShape shape;
//     static constexpr auto fields() {
//       return std::tuple{field("elements", &Settings::elements),
//                         field("decades", &Settings::decades),
//                         field("formats", &Settings::formats, find_format),
//                         group(&Settings::shape, field("steps", &TraceShape::steps))};
//     }
//   };
//   const auto s = read_parameters<Settings>(context.parameters);
//
// Types, defaults, ranges and quick values are in `default.toml`, and checked before.

#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "fp8lab/core/error.hpp"
#include "lab/experiment/parameters.hpp"

namespace fp8lab {
namespace parameter_struct_detail {

template <typename Value>
inline constexpr bool is_list = false;
template <typename Element>
inline constexpr bool is_list<std::vector<Element>> = true;

template <std::integral Value>
Value narrowed(std::string_view name, std::int64_t value) {
  if (!std::in_range<Value>(value))
    throw Error(name,
                "an integer from " + std::to_string(std::numeric_limits<Value>::min()) + " to " +
                    std::to_string(std::numeric_limits<Value>::max()),
                std::to_string(value));
  return static_cast<Value>(value);
}

template <typename To, typename From, typename Convert>
std::vector<To> each(const std::vector<From>& from, const Convert& convert) {
  std::vector<To> to;
  to.reserve(from.size());
  for (const From& value : from) to.push_back(convert(value));
  return to;
}

/// Reads a number, flag or text, or a list of numbers or texts.
struct Plain {
  template <typename Value>
  [[nodiscard]] Value read(const Parameters& p, std::string_view name) const {
    if constexpr (is_list<Value>) {
      using Element = typename Value::value_type;
      if constexpr (std::is_same_v<Element, std::string>)
        return p.texts(name);
      else if constexpr (std::integral<Element>)
        return each<Element>(p.integers(name),
                             [&](std::int64_t value) { return narrowed<Element>(name, value); });
      else
        return each<Element>(p.reals(name),
                             [](double value) { return static_cast<Element>(value); });
    } else if constexpr (std::is_same_v<Value, std::string>) {
      return p.text(name);
    } else if constexpr (std::is_same_v<Value, bool>) {
      return p.flag(name);
    } else if constexpr (std::integral<Value>) {
      return narrowed<Value>(name, p.integer(name));
    } else {
      static_assert(std::floating_point<Value>, "a member that needs a function of its text");
      return static_cast<Value>(p.real(name));
    }
  }
};

/// Reads a text or a list of texts, each as what `find` gives for it.
template <typename Find>
struct Named {
  Find find;

  template <typename Value>
  [[nodiscard]] Value read(const Parameters& p, std::string_view name) const {
    if constexpr (is_list<Value>)
      return each<typename Value::value_type>(p.texts(name), [&](const std::string& text) {
        return one<typename Value::value_type>(name, text);
      });
    else
      return one<Value>(name, p.text(name));
  }

 private:
  template <typename Value>
  [[nodiscard]] Value one(std::string_view name, const std::string& text) const try {
    if constexpr (std::is_pointer_v<Value> &&
                  std::is_lvalue_reference_v<std::invoke_result_t<Find, const std::string&>>)
      return &find(text);
    else
      return find(text);
  } catch (const Error& e) {
    const std::string said = e.what();
    const std::string named = std::string(name) + ": ";
    throw Error(said.starts_with(named) ? said : named + said);
  }
};

}  // namespace parameter_struct_detail

/// A member and the parameter that it holds.
template <typename Struct, typename Value, typename Reader>
struct ParameterField {
  std::string_view name;
  Value Struct::*member;
  Reader reader;

  void read_into(Struct& to, const Parameters& parameters) const {
    to.*member = reader.template read<Value>(parameters, name);
  }
  void add_names(std::vector<std::string_view>& names) const { names.push_back(name); }
};

/// Parameters of a member that is a struct.
template <typename Struct, typename Inner, typename Fields>
struct ParameterGroup {
  Inner Struct::*member;
  Fields fields;

  void read_into(Struct& to, const Parameters& parameters) const {
    std::apply([&](const auto&... one) { (one.read_into(to.*member, parameters), ...); }, fields);
  }
  void add_names(std::vector<std::string_view>& names) const {
    std::apply([&](const auto&... one) { (one.add_names(names), ...); }, fields);
  }
};

/// A member that holds a number (an integer is one that fits its type), a flag or a text, or a list
/// of numbers or texts.
template <typename Struct, typename Value>
constexpr auto field(std::string_view name, Value Struct::*member) {
  return ParameterField<Struct, Value, parameter_struct_detail::Plain>{name, member, {}};
}

/// A member, or a list, of what `find` gives for a text: a format, a recipe. Where `find` gives a
/// reference to it, the member may be a pointer. An `Error` that `find` throws is named after the
/// parameter.
template <typename Struct, typename Value, typename Find>
constexpr auto field(std::string_view name, Value Struct::*member, Find find) {
  return ParameterField<Struct, Value, parameter_struct_detail::Named<Find>>{name, member, {find}};
}

/// A member that is a struct with a list of its fields, which several experiments may share.
template <typename Struct, typename Inner, typename... Fields>
constexpr auto group(Inner Struct::*member, std::tuple<Fields...> fields) {
  return ParameterGroup<Struct, Inner, std::tuple<Fields...>>{member, fields};
}
/// The same with the fields one by one.
template <typename Struct, typename Inner, typename Field, typename... Fields>
constexpr auto group(Inner Struct::*member, Field first, Fields... more) {
  return group(member, std::tuple<Field, Fields...>{first, more...});
}
/// The same where the struct tells its fields itself, by `fields()`.
template <typename Struct, typename Inner>
constexpr auto group(Inner Struct::*member) {
  return group(member, Inner::fields());
}

/// The parameters as a struct. Throws `Error` where a member has no parameter of its name and type,
/// where a value does not fit its member, and where a parameter has no member: nothing that a user
/// sets is left unread.
template <typename Struct>
Struct read_parameters(const Parameters& parameters) {
  Struct result{};
  std::vector<std::string_view> names;
  const auto read = [&](const auto&... fields) {
    (fields.read_into(result, parameters), ...);
    (fields.add_names(names), ...);
  };
  std::apply(read, Struct::fields());
  for (const auto& entry : parameters.values()) {
    const std::string& key = entry.first;
    std::size_t readers = 0;
    for (const std::string_view name : names) readers += name == key ? 1U : 0U;
    require(readers > 0, "default.toml: " + key, "a parameter that the experiment reads",
            "one that it does not");
    require(readers == 1, "default.toml: " + key, "a parameter in one member", "one in two");
  }
  return result;
}

}  // namespace fp8lab
