#pragma once
// The commands of fp8lab-cuda, and the table that they end in.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace fp8lab::cuda {

/// Exit codes, as those of fp8lab.
enum ExitCode : int { kPass = 0, kMismatch = 1, kUsage = 2 };

/// One line of the closing table.
struct CheckRow {
  std::string name;
  std::uint64_t cases = 0;
  std::uint64_t mismatches = 0;
};

struct CrossCheckOptions {
  std::uint64_t seed = 1;
  std::uint64_t outputs = 100'000'000;  ///< of each instruction
  std::string only;                     ///< a part of an instruction's name, or empty
};

struct DeviceFacts {
  std::string gpu;
  std::string driver;
  std::string cuda;
};
DeviceFacts device_facts();

/// Prints what the device is. Returns an exit code, as do all commands.
int run_info();

/// Runs generated cases of every instruction and writes one recording each,
/// with GPU, driver, CUDA version, date and seed in the header.
int run_record(const std::filesystem::path& out, std::uint64_t seed);

/// Chip against emulator, bit for bit.
std::vector<CheckRow> check_instructions(const CrossCheckOptions& options);
std::vector<CheckRow> check_gemms(const CrossCheckOptions& options);
std::vector<CheckRow> check_casts();
int run_cross_check(const CrossCheckOptions& options);

/// Which model gives cuBLASLt's bits; prints match rates, decides nothing.
void search_cublaslt_models(std::uint64_t seed);

/// Rates and errors measured on the chip, medians of repeated runs.
int run_bench(std::uint64_t seed);

/// Prints the table; kMismatch if any row has a mismatch.
int print_table(const std::vector<CheckRow>& rows);

}  // namespace fp8lab::cuda
