#pragma once
// The parameters of an experiment. Their schema is `default.toml`: it gives the name,
// type and default of every parameter. Its table `[quick]` has the changes of the
// quick form, and `[range]` the allowed values (parameter_range.hpp). No other
// parameter can be set.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lab/experiment/parameter_range.hpp"

namespace fp8lab {

using ParameterValue =
    std::variant<std::int64_t, double, bool, std::string, std::vector<std::int64_t>,
                 std::vector<double>, std::vector<std::string>>;

/// The question at the start of an experiment's `default.toml`. Throws `Error` if
/// there is none.
std::string read_question(std::string_view toml);

class Parameters {
 public:
  /// Reads the top-level keys of a TOML document, except `question`, `quick` and `range`,
  /// then applies `[quick]` on request. Throws `Error` with the TOML position,
  /// for an unknown key in [quick] or [range], for a value of another type, and for a
  /// default outside of its range.
  static Parameters from_toml(std::string_view toml, bool quick);

  /// `key=value`, the value in TOML; texts may be bare, and lists without brackets (`k=128,256`). A
  /// real number that is an integer may stand for one (`elements=1e4`); `key.part=value` is told in
  /// model_parameters.hpp. Throws `Error` that lists the known keys, the type or the range.
  void set(std::string_view assignment);

  [[nodiscard]] std::int64_t integer(std::string_view key) const;
  [[nodiscard]] double real(std::string_view key) const;  ///< an integer is accepted
  [[nodiscard]] bool flag(std::string_view key) const;
  [[nodiscard]] const std::string& text(std::string_view key) const;
  [[nodiscard]] std::vector<std::int64_t> integers(std::string_view key) const;
  [[nodiscard]] std::vector<double> reals(std::string_view key) const;  ///< integers are accepted
  [[nodiscard]] std::vector<std::string> texts(std::string_view key) const;

  [[nodiscard]] const std::map<std::string, ParameterValue, std::less<>>& values() const {
    return values_;
  }
  /// Of parameters that have one.
  [[nodiscard]] const std::map<std::string, ParameterRange, std::less<>>& ranges() const {
    return ranges_;
  }
  /// The value as TOML text that `key=text` reads.
  [[nodiscard]] std::string to_toml(std::string_view key) const;

 private:
  std::map<std::string, ParameterValue, std::less<>> values_;
  std::map<std::string, ParameterRange, std::less<>> ranges_;
};

}  // namespace fp8lab
