#pragma once
// A model that is stated as text: `[NAME=]BASE[:PARAMETER=VALUE,...]`. This is the form alone; what
// bases and parameters there are, the accumulators know (accumulate/definition.hpp).

#include <string>
#include <string_view>
#include <vector>

namespace fp8lab {

/// The parts of such a text. Each is made of letters, digits, `_`, `.`, `+` and `-`.
struct ModelText {
  struct Item {
    std::string parameter;
    std::string value;
    friend bool operator==(const Item&, const Item&) = default;
  };
  std::string name;  ///< empty where none was given
  std::string base;
  std::vector<Item> items;  ///< in the order of the text, each parameter once

  /// Throws `Error` for `argument`: a text of another form or longer than `kMostModelText`, and a
  /// parameter that comes twice.
  static ModelText parse(std::string_view argument, std::string_view text);

  /// The text again: `parse` of it gives the same parts.
  [[nodiscard]] std::string text() const;

  /// Gives the parameter of exactly this spelling a value, in its place or as the last one.
  void set(std::string_view parameter, std::string_view value);

  friend bool operator==(const ModelText&, const ModelText&) = default;
};

inline constexpr std::size_t kMostModelText = 1000;

/// `a,b:F=10,M=13,c` as `a`, `b:F=10,M=13`, `c`: a comma before `PARAMETER=VALUE` belongs to the
/// model before it if that has a `:`. Parts lose blanks around them.
std::vector<std::string> split_model_list(std::string_view text);

}  // namespace fp8lab
