#pragma once
// Recordings of real GPUs: a few rows in tests/golden/silicon, and whole files in the folder that
// FP8LAB_SILICON_DIR names.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "fp8lab/core/error.hpp"
#include "fp8lab/vectors/vectors.hpp"
#include "skip.hpp"

struct Recording {
  std::string name;  ///< of its file
  fp8lab::VectorFile file;
};

/// Every *.txt of a folder, by name. Throws `Error` if there is none.
inline std::vector<Recording> recordings_in(const std::filesystem::path& folder) {
  std::vector<Recording> found;
  if (std::filesystem::is_directory(folder))
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().extension() == ".txt")
        found.push_back({entry.path().filename(), fp8lab::read_vectors(entry.path())});
  fp8lab::require(!found.empty(), "recordings", "a folder with vector files (*.txt)",
                  folder.string());
  std::ranges::sort(found, {}, &Recording::name);
  return found;
}

/// Those of FP8LAB_SILICON_DIR. Without it none, and the test counts as skipped; where CI is true
/// that is an error, as a folder without recordings is everywhere.
inline std::vector<Recording> recordings_beside() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  const std::string folder = variable("FP8LAB_SILICON_DIR");
  if (!folder.empty()) return recordings_in(folder);
  fp8lab::require(variable("CI") != "true", "FP8LAB_SILICON_DIR",
                  "a folder of recordings where CI is true", "nothing");
  skip_test("FP8LAB_SILICON_DIR names no folder of recordings");
  return {};
}
