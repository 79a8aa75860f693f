#pragma once
// The error type of the library. Bad arguments throw it. Numerical edge cases do
// not throw; they give defined bits.

#include <concepts>
#include <stdexcept>
#include <string>
#include <string_view>

namespace fp8lab {

/// Thrown for a bad argument, shape, option or file. The message always names
/// the argument, the expected value and the actual value:
/// `scale_a: expected [m, ceil(k/128)] = [64, 3], got [64, 2]`.
class Error : public std::runtime_error {
 public:
  Error(std::string_view argument, std::string_view expected, std::string_view got);

  /// A failure that no argument causes, such as a full disk.
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

/// Throws `Error` unless `condition` holds.
inline void require(bool condition, std::string_view argument, std::string_view expected,
                    std::string_view got) {
  if (!condition) throw Error(argument, expected, got);
}
/// The same for a number: text is made only if it is needed.
inline void require(bool condition, std::string_view argument, std::string_view expected,
                    std::integral auto got) {
  if (!condition) throw Error(argument, expected, std::to_string(got));
}

}  // namespace fp8lab
