#pragma once
// The result folder of a run: OUT/<experiment>/ with one CSV file per table, the
// plots, and result.json, which has the command that gives the same bytes again.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lab/experiment/experiment.hpp"

namespace fp8lab {

/// The data in result.json beside the results. All of it may differ between reruns,
/// except `command` and its consequences.
struct RunRecord {
  std::string experiment;
  std::string question;
  Parameters parameters;
  std::uint64_t seed = 0;
  bool quick = false;
  int threads = 1;
  std::string command;  ///< a shell command that repeats the run
  std::chrono::system_clock::time_point started;
  double duration_seconds = 0.0;
};

enum class Plots : std::uint8_t { draw, skip };

struct WrittenRun {
  std::filesystem::path folder;
  std::vector<std::string> files;  ///< names in `folder`, result.json last
  std::string plots_note;          ///< the reason if there are no pictures; else empty
  std::string result_json;         ///< the text of result.json
};

/// Writes the run to `out / record.experiment`. Files are written atomically,
/// result.json last. Files of an earlier run that this one does not write are removed.
/// The bytes of CSV files depend only on the tables.
///
/// result.json (`"schema": "fp8lab.result.1"`): experiment, question, quick,
/// seed, parameters, command, version, git (absent outside a checkout), machine
/// {cpu, cores, os, compiler}, threads, started (UTC), duration_seconds,
/// findings, headline {title, sentence, plot, advice, measure, failing, mitigation, mitigated}
/// (absent but for experiments that show a failure mode), tables [{name, title, file, crc32, rows,
/// columns [{name, unit, description}]}] (crc32 of the file's bytes, eight hex digits), plots
/// [{name, title, kind, files, crc32}] (NAME.json is `plot_json`; a checksum for each file),
/// plots_note (absent where plots are drawn), files, crc32 (of the text before it:
/// `with_own_checksum`).
///
/// Throws `Error` that names the path and the reason for a folder that cannot be
/// written, and for names of tables or plots that are no file names or duplicates.
WrittenRun write_results(const Results& results, const RunRecord& record,
                         const std::filesystem::path& out, Plots plots);

/// Throws `Error` with the path and the reason unless `write_results` could write there, so that
/// long work does not fail at its end. Makes no folder.
void require_writable_results(const std::filesystem::path& out, const std::string& experiment);

/// `text`, quoted so that a POSIX shell reads it as one word.
std::string shell_quoted(std::string_view text);

}  // namespace fp8lab
