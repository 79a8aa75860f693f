#pragma once
// Folders of results that a command writes beside what it prints, for `report`.

#include <string>

#include "fp8lab/io/files.hpp"
#include "lab/experiment/result_files.hpp"
#include "say.hpp"

namespace fp8lab::cli {

/// Writes results and their record to `out`, and says on stderr where they are.
inline void write_result_folder(const Results& results, const RunRecord& record,
                                const std::string& out) {
  make_writable_folder(out);
  const WrittenRun run = write_results(results, record, out, Plots::draw);
  say(stderr, "fp8lab: {} files in {}{}{}\n", run.files.size(), run.folder.string(),
      run.plots_note.empty() ? "" : "; ", run.plots_note);
}

}  // namespace fp8lab::cli
