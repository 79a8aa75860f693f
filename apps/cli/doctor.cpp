#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "command.hpp"
#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/core/machine.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/core/target.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/gemm/gemm.hpp"
#include "fp8lab/io/files.hpp"
#include "lab/plots/draw.hpp"
#include "lab/plots/plot_json.hpp"
#include "terminal.hpp"

namespace fp8lab::cli {
namespace {

/// A product whose bits are kept: 24 x 40 outputs of 512 random codes each, with promotion where
/// the model has FP8 operands. The hash is FNV-1a of the bits of D, row by row.
struct KeptProduct {
  std::string_view model;
  std::int64_t promotion = 0;
  std::uint64_t hash = 0;
};
constexpr KeptProduct kKept[] = {{"sm90.wgmma.e4m3", 128, 0x4aa4cb1cb0ff7dde},
                                 {"sm90.mma.bf16", 0, 0x7972cd8b22ae9aab},
                                 {"gfx942.mfma.fp8", 0, 0xa0e5d4b8f558a590},
                                 {"sequential14.rne", 0, 0xc5838fd8099d18c2}};

constexpr std::int64_t kKeptRows = 24;
constexpr std::int64_t kKeptColumns = 40;
constexpr std::int64_t kKeptTerms = 512;

/// Codes of finite numbers: every bit of sign and significand, and exponents near one.
template <class T>
std::vector<T> random_codes(const Format& f, std::string_view stream, std::int64_t count) {
  const RandomStream random(1, stream);
  std::vector<T> codes;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t bits = random.bits32(static_cast<std::uint64_t>(i));
    const auto exponent = static_cast<std::uint32_t>(f.bias - 3 + static_cast<int>(bits % 6));
    const std::uint32_t significand = (bits >> 8) & ((1U << f.mantissa_bits) - 1);
    const std::uint32_t sign = (bits >> 31) << (f.code_bits() - 1);
    codes.push_back(static_cast<T>(sign | exponent << f.mantissa_bits | significand));
  }
  return codes;
}

/// The hash of a product on a target.
template <class T>
std::uint64_t hash_with(const KeptProduct& kept, const InstructionModel& model, Target target) {
  const std::vector<T> a =
      random_codes<T>(format(model.a_format), "doctor/a", kKeptRows * kKeptTerms);
  const std::vector<T> b =
      random_codes<T>(format(model.b_format), "doctor/b", kKeptColumns * kKeptTerms);
  GemmProblem problem;
  problem.model = model.accumulator;
  problem.a = {model.a_format, a.data(), kKeptRows, kKeptTerms, kKeptTerms, 1};
  problem.b = {model.b_format, b.data(), kKeptColumns, kKeptTerms, kKeptTerms, 1};
  problem.promotion_interval = kept.promotion;
  std::vector<float> d(static_cast<std::size_t>(kKeptRows * kKeptColumns));
  gemm_with_target(problem, d, target, 1);
  std::string bytes;
  for (const float x : d)
    for (int shift = 0; shift < 32; shift += 8)
      bytes += static_cast<char>(std::bit_cast<std::uint32_t>(x) >> shift);
  return RandomStream::hash(bytes);
}

std::uint64_t hash_of(const KeptProduct& kept, Target target) {
  const InstructionModel& model = find_instruction_model(kept.model);
  return format(model.a_format).storage_bits == 8 ? hash_with<std::uint8_t>(kept, model, target)
                                                  : hash_with<std::uint16_t>(kept, model, target);
}

/// What is wrong with a target; empty if it has all kept bits.
std::string fault_of(Target target) {
  std::string faults;
  for (const KeptProduct& kept : kKept)
    if (const std::uint64_t hash = hash_of(kept, target); hash != kept.hash)
      faults += fmt::format("{}{}: expected bits with the hash {:016x}, got {:016x}",
                            faults.empty() ? "" : "; ", kept.model, kept.hash, hash);
  return faults;
}

bool has_library(const char* name) {
  void* const library = ::dlopen(name, RTLD_LAZY);
  if (library != nullptr) ::dlclose(library);
  return library != nullptr;
}

/// The program for products on a GPU, beside this one.
bool has_cuda_tool() {
  std::error_code failed;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", failed);
  return !failed && std::filesystem::exists(self.parent_path() / "fp8lab-cuda", failed);
}

/// Draws a plot of one point.
std::string drawing() {
  std::string folder = (std::filesystem::temp_directory_path() / "fp8lab-doctor-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) return "not tried: no temporary folder can be made";
  std::string said;
  try {
    const Plot plot{"point", "A point", {"x"}, {"y"}, {{"one", {1.0}, {1.0}}}};
    write_file(std::filesystem::path(folder) / "point.json", plot_json(plot));
    said = draw_files(folder, std::vector<std::string>{plot.name})
               ? "vl-convert is here: runs write SVG, PNG and PDF"
               : fmt::format("{}: runs write specifications alone", kNoDrawing);
  } catch (const Error& error) {
    said = error.what();
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return said;
}

using Facts = std::vector<std::pair<std::string, std::string>>;

Facts doctor_facts() {
  const Machine machine = this_machine();
  std::vector<std::string_view> targets;
  for (const Target target : available_targets()) targets.push_back(to_string(target));
#ifdef FP8LAB_WITH_MPI
  const std::string mpi = "in this build: --mpi works under mpirun";
#else
  const std::string mpi = "not in this build";
#endif
  const std::string driver = has_library("libcuda.so.1") ? "a driver is here" : "no driver";
  return {{"version", build_git().empty() ? build_version()
                                          : fmt::format("{} ({})", build_version(), build_git())},
          {"compiler", machine.compiler},
          {"system", machine.os},
          {"processor", machine.cpu},
          {"targets",
           fmt::format("{}; uses {}", fmt::join(targets, ", "), to_string(current_target()))},
          {"threads", fmt::format("{} of {} hardware threads", team_size(0), machine.cores)},
          {"plots", drawing()},
          {"mpi", mpi},
          {"cuda", has_cuda_tool() ? driver + ", and fp8lab-cuda is beside this program"
                                   : driver + "; fp8lab-cuda is not beside this program"}};
}

int run(bool json) {
  const Facts known = doctor_facts();
  const auto start = std::chrono::steady_clock::now();
  Facts tests;
  for (const Target target : available_targets())
    tests.emplace_back(to_string(target), fault_of(target));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const bool right =
      std::ranges::all_of(tests, [](const auto& test) { return test.second.empty(); });
  if (json) {
    nlohmann::ordered_json report = nlohmann::ordered_json::object();
    for (const auto& [name, text] : known) report[name] = text;
    for (const auto& [name, fault] : tests)
      report["self_test"][name] = fault.empty() ? "pass" : fault;
    fmt::print("{}\n", json_text(report, 2));
    return right ? kPass : kMismatch;
  }
  const std::size_t columns = columns_of_terminal();
  for (const auto& [name, text] : known)
    fmt::print("{}", paragraph(fmt::format("{:<11}", name), text, columns));
  for (const auto& [name, fault] : tests)
    fmt::print("{}",
               paragraph(fmt::format("{:<11}", "self-test"),
                         fmt::format("{}: {}", name,
                                     fault.empty() ? "all kept bits" : "WRONG BITS: " + fault),
                         columns));
  fmt::print("{} in {:.1f} s\n", right ? "pass" : "FAIL", seconds);
  return right ? kPass : kMismatch;
}

}  // namespace

void add_doctor(Command& app, Action& action) {
  auto json = std::make_shared<bool>(false);
  Command* command = app.add_subcommand(
      "doctor", "Show build and machine, and test bits on every target. Exit 1: wrong bits");
  command->add_flag("--json", *json, "machine-readable output");
  command->callback([json, &action] { action = [json] { return run(*json); }; });
}

}  // namespace fp8lab::cli
