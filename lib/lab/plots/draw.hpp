#pragma once
// Draws files of plots from their specifications, with Python's vl-convert. No other part needs
// Python: the report's page draws the same specifications itself.

#include <filesystem>
#include <span>
#include <string>

namespace fp8lab {

/// What to say where `draw_files` finds no vl-convert.
inline constexpr const char* kNoDrawing = "Python's vl-convert-python was not found";

/// Makes `NAME.svg`, `NAME.png` (1.5 pixels a point) and `NAME.pdf` of `NAME.json` (plot_json) for
/// all `names`, in `folder`. Same values, same bytes. Python is what FP8LAB_PYTHON names, else
/// `venv/bin/python` beside the program or in the folder above, else `python3`; it runs from the
/// first call to the end of the program, isolated from the current folder and from Python's
/// variables. False if none has vl-convert. Throws `Error` with what it said if it fails, or cannot
/// be started.
bool draw_files(const std::filesystem::path& folder, std::span<const std::string> names);

}  // namespace fp8lab
