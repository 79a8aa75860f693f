#pragma once
// The commands of fp8lab-cuda, and the table that they end in.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "probes/instructions.hpp"
#include "tool/parts.hpp"

namespace fp8lab::cuda {

/// Exit codes, as those of fp8lab.
enum ExitCode : int { kPass = 0, kMismatch = 1, kUsage = 2 };

struct CrossCheckOptions {
  std::uint64_t seed = 1;
  std::uint64_t outputs = 100'000'000;  ///< of each instruction
  std::string only;                     ///< a part of an instruction's name, or empty
  Chip chip;                            ///< what the device is
  std::filesystem::path out;            ///< folder for rows that differ; empty: they are not kept
};

struct DeviceFacts {
  std::string gpu;
  std::string driver;
  std::string cuda;
};
DeviceFacts device_facts();
/// What recordings say of the device, and the date.
std::map<std::string, std::string> recording_header();

/// Prints what the device is. Returns an exit code, as do all commands.
int run_info();

/// Runs generated cases of every instruction of the chip and writes one recording each, with
/// GPU, driver, CUDA version, date and seed in the header.
std::vector<Part> record_parts(const std::filesystem::path& out, const Chip& chip,
                               std::uint64_t seed);

/// Chip against emulator, bit for bit: instructions (those that `only` leaves),
/// whole products, casts. Throws `Error` if `only` leaves none.
std::vector<Part> instruction_parts(const CrossCheckOptions& options);
std::vector<Part> gemm_parts(const CrossCheckOptions& options);
std::vector<Part> cast_parts(const Chip& chip);
std::vector<Part> cross_check_parts(const CrossCheckOptions& options);

/// Which model gives cuBLASLt's bits; prints match rates, decides nothing. On chips without wgmma,
/// or without cuBLASLt, one row that says so.
std::vector<Part> search_parts(const Chip& chip, std::uint64_t seed);

/// How cuBLASLt makes its output in calls of known models, as a table `cublaslt.csv` in `out`;
/// without a model of the chip's FP8 products, or without cuBLASLt, one row that says so.
std::vector<Part> observe_parts(const std::filesystem::path& out, const Chip& chip,
                                std::uint64_t seed);

/// Rates and errors measured on the chip, medians of repeated runs; what it has.
std::vector<Part> bench_parts(const Chip& chip, std::uint64_t seed);

}  // namespace fp8lab::cuda
