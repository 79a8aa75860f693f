#pragma once
// The one error type of the library. Bad arguments throw it; numerical edge
// cases never do, they give defined bits.

#include <concepts>
#include <stdexcept>
#include <string>
#include <string_view>

namespace fp8lab {

/// Thrown for a bad argument, shape, option or file. The message always names
/// the argument, what was expected and what came:
/// `scale_a: expected [m, ceil(k/128)] = [64, 3], got [64, 2]`.
class Error : public std::runtime_error {
 public:
  Error(std::string_view argument, std::string_view expected, std::string_view got);

  /// A failure that is not about an argument (a disk that is full, say).
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

/// Throws `Error` unless `condition` holds.
inline void require(bool condition, std::string_view argument, std::string_view expected,
                    std::string_view got) {
  if (!condition) throw Error(argument, expected, got);
}
/// The same of a number: text is made only where it is needed.
inline void require(bool condition, std::string_view argument, std::string_view expected,
                    std::integral auto got) {
  if (!condition) throw Error(argument, expected, std::to_string(got));
}

}  // namespace fp8lab
