#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <system_error>
#include <vector>

#include "fp8lab/core/error.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/plots/draw.hpp"

namespace fp8lab {
namespace {

class SpawnActions {
 public:
  SpawnActions() { posix_spawn_file_actions_init(&actions_); }
  ~SpawnActions() { posix_spawn_file_actions_destroy(&actions_); }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;
  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

/// Runs a program without a shell; what it prints goes to `log`. Its wait
/// status, or nothing if there is no such program.
std::optional<int> spawn_and_wait(std::vector<std::string> command,
                                  const std::filesystem::path& folder, const std::string& log) {
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  SpawnActions actions;
  posix_spawn_file_actions_addchdir_np(actions.get(), folder.c_str());
  posix_spawn_file_actions_addopen(actions.get(), STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(actions.get(), STDOUT_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_adddup2(actions.get(), STDOUT_FILENO, STDERR_FILENO);
  pid_t child = 0;
  const int error =
      posix_spawnp(&child, arguments[0], actions.get(), nullptr, arguments.data(), environ);
  if (error == ENOENT) return std::nullopt;
  if (error != 0)
    throw Error(fmt::format("{}: cannot run: {}", command[0],
                            std::error_code(error, std::generic_category()).message()));
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) throw Error(fmt::format("{}: cannot wait for it", command[0]));
  return status;
}

/// gnuplot names one font; readers without it should see a similar one.
void add_fallback_fonts(const std::filesystem::path& svg) {
  constexpr std::string_view kFont = "font-family=\"DejaVu Sans";
  std::string text = read_file(svg);
  for (std::size_t at = text.find(kFont); at != std::string::npos; at = text.find(kFont, at)) {
    at += kFont.size();
    text.insert(at, ", Verdana, sans-serif");
  }
  write_file(svg, text);
}

}  // namespace

bool run_gnuplot(const std::filesystem::path& folder, std::span<const std::string> names) {
  if (names.empty()) return true;
  constexpr const char* kLog = "gnuplot.log";
  std::vector<std::string> command{"gnuplot"};
  for (const std::string& name : names) command.push_back(name + ".gp");
  const std::optional<int> status = spawn_and_wait(std::move(command), folder, kLog);
  if (!status) return false;
  const std::string said = read_file(folder / kLog);
  std::filesystem::remove(folder / kLog);
  if (!WIFEXITED(*status) || WEXITSTATUS(*status) != 0)
    throw Error(fmt::format("gnuplot failed in {}: {}", folder.string(), said));
  for (const std::string& name : names)
    for (const char* ending : {".svg", ".png"})
      if (!std::filesystem::exists(folder / (name + ending)))
        throw Error(fmt::format("gnuplot left no {}{}: {}", name, ending, said));
  for (const std::string& name : names) add_fallback_fonts(folder / (name + ".svg"));
  return true;
}

}  // namespace fp8lab
