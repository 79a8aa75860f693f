#pragma once
// The table that a run ends in.

#include <filesystem>
#include <string>
#include <vector>

#include "tool/parts.hpp"

namespace fp8lab::cuda {

/// Neither a mismatch nor a problem.
bool agrees(const CheckRow& row);

/// For people: a line for each row and how many agree, differ, and have no verdict (nothing was
/// compared, or a problem). Empty without rows.
std::string table_text(const std::vector<CheckRow>& rows);

/// The same as CSV: name, cases, mismatches, problem, note. Throws `Error` if it cannot be written.
void write_table(const std::filesystem::path& file, const std::vector<CheckRow>& rows);

}  // namespace fp8lab::cuda
