#pragma once
// Texts of plots: mathematical type, lines.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace fp8lab {

/// How many characters the `^` at `at` raises, in texts of plots and reports: a number, or a
/// capital T that ends a word. 0 if there is no `^`, or something else behind it.
std::size_t raised_after(std::string_view text, std::size_t at);

/// `text` with what `^` raises as superscripts of Unicode: K¹·⁵², 10⁻³, x wᵀ.
std::string typeset(std::string_view text);

/// How many columns `text` takes: its code points.
std::size_t columns_of(std::string_view text);

/// The columns of the longest of `texts`; 0 without any.
std::size_t widest_of(const std::vector<std::string>& texts);

/// `text` in lines of at most `width` columns, broken at blanks where it has them.
std::vector<std::string> wrap(std::string_view text, std::size_t width);

}  // namespace fp8lab
