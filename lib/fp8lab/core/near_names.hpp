#pragma once
// What a person meant by a name that does not exist.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fp8lab {

/// Of `names` those that `given` may stand for, nearest first, three at most: names that a few
/// letters more, fewer, others or swapped make of it (one, or a third of its letters up to four),
/// and names that contain it, if it has three letters or more. Capitals do not matter.
std::vector<std::string_view> near_names(std::span<const std::string_view> names,
                                         std::string_view given);

/// " (did you mean a or b?)", or nothing where no name is near.
std::string did_you_mean(std::span<const std::string_view> names, std::string_view given);

/// What an `Error` says is expected in the place of `given`: all names where they are 16 or fewer,
/// else their number with a few examples; and those that may be meant.
std::string expected_name(std::span<const std::string_view> names, std::string_view given);

}  // namespace fp8lab
