#include "lab/plots/draw.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <system_error>
#include <vector>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "lab/plots/draw_script.hpp"

namespace fp8lab {
namespace {

namespace fs = std::filesystem;

/// The first answer of a script that cannot draw; that of one that can is empty.
constexpr const char* kNoPackage = "no vl_convert";

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

/// Python that runs draw.py, spoken to over a socket. It ends with this object.
class Drawer {
 public:
  /// Nothing if `python` is no program, or has no vl-convert. Throws `Error` if the system cannot
  /// start it, or it ends before it has said which.
  static std::unique_ptr<Drawer> start(const std::string& python) {
    std::unique_ptr<Drawer> drawer(new Drawer);
    if (!drawer->spawn(python)) return nullptr;
    const std::optional<std::string> said = drawer->answer();
    if (said == kNoPackage) return nullptr;
    if (said && said->empty()) return drawer;
    throw Error(fmt::format("drawing plots: {} {}", python,
                            said ? "gave an answer of another program"
                                 : "ended as it started: it is broken, or a limit of open files or "
                                   "memory is too low"));
  }
  ~Drawer() {
    if (socket_ >= 0 && is_own()) ::shutdown(socket_, SHUT_RDWR);
    if (socket_ >= 0) ::close(socket_);
    while (child_ > 0 && is_own() && ::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  Drawer(const Drawer&) = delete;
  Drawer& operator=(const Drawer&) = delete;

  /// Whether this process started it, and no process that this one was forked from.
  [[nodiscard]] bool is_own() const { return owner_ == ::getpid(); }

  void draw(const fs::path& folder, std::span<const std::string> names) {
    // A path may hold any bytes.
    const std::string path = fs::absolute(folder).native();
    std::string hex;
    for (const char c : path) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
    nlohmann::json order{hex};
    for (const std::string& name : names) order.push_back(name);
    const std::string line = json_text(order) + "\n";
    std::size_t sent = 0;
    while (sent < line.size()) {
      const ssize_t now = ::send(socket_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
      if (now < 0 && errno == EINTR) continue;
      if (now <= 0) throw Error("drawing plots: Python ended");
      sent += static_cast<std::size_t>(now);
    }
    const std::optional<std::string> said = answer();
    if (!said) throw Error("drawing plots: Python ended");
    if (!said->empty()) throw Error(fmt::format("drawing plots in {}: {}", folder.string(), *said));
  }

 private:
  Drawer() = default;

  bool spawn(const std::string& python) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
      throw Error(fmt::format("drawing plots: no socket: {}",
                              std::error_code(errno, std::generic_category()).message()));
    SpawnActions actions;
    posix_spawn_file_actions_adddup2(actions.get(), ends[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(actions.get(), ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(actions.get(), STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    // Isolated: no module comes from the current folder, nor from where variables say.
    std::vector<std::string> words{python, "-I", "-c", kDrawScript};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const int error =
        posix_spawn(&child_, arguments[0], actions.get(), nullptr, arguments.data(), environ);
    ::close(ends[1]);
    socket_ = ends[0];
    if (error == 0) return true;
    child_ = 0;
    if (error == ENOENT || error == ENOTDIR || error == EACCES || error == ENOEXEC) return false;
    throw Error(fmt::format("drawing plots: {} cannot be started: {}", python,
                            std::error_code(error, std::generic_category()).message()));
  }

  /// The next line, or nothing if Python has ended.
  std::optional<std::string> answer() {
    std::size_t end = 0;
    while ((end = received_.find('\n')) == std::string::npos) {
      std::array<char, 4096> bytes{};
      const ssize_t now = ::read(socket_, bytes.data(), bytes.size());
      if (now < 0 && errno == EINTR) continue;
      if (now <= 0) return std::nullopt;
      received_.append(bytes.data(), static_cast<std::size_t>(now));
    }
    const auto said = parse_if_json<nlohmann::json>(received_.substr(0, end), "drawing plots");
    received_.erase(0, end + 1);
    if (!said || !said->is_string()) return std::nullopt;
    return said->get<std::string>();
  }

  pid_t child_ = 0;
  pid_t owner_ = ::getpid();
  int socket_ = -1;
  std::string received_;
};

/// The program of a name, from the folders of PATH that do not depend on the current one; names
/// with a slash are paths.
std::string program_of(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "/usr/bin:/bin" : path);
  for (std::string folder; std::getline(folders, folder, ':');)
    if (folder.starts_with('/') && ::access((folder + "/" + name).c_str(), X_OK) == 0)
      return folder + "/" + name;
  return "/" + name;  // which is nowhere
}

std::vector<std::string> pythons() {
  if (const char* named = std::getenv("FP8LAB_PYTHON"); named != nullptr && *named != '\0')
    return {program_of(named)};
  std::vector<std::string> found;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  for (const fs::path& folder : {program.parent_path(), program.parent_path().parent_path()})
    if (fs::exists(folder / "venv/bin/python", error))
      found.push_back((folder / "venv/bin/python").string());
  found.push_back(program_of("python3"));
  return found;
}

}  // namespace

bool draw_files(const fs::path& folder, std::span<const std::string> names) {
  static std::mutex mutex;
  static std::unique_ptr<Drawer> drawer;
  if (names.empty()) return true;
  const std::scoped_lock lock(mutex);
  if (drawer != nullptr && !drawer->is_own()) drawer.reset();
  if (drawer == nullptr)
    for (const std::string& python : pythons())
      if ((drawer = Drawer::start(python)) != nullptr) break;
  if (drawer == nullptr) return false;
  try {
    drawer->draw(folder, names);
  } catch (...) {
    drawer.reset();
    throw;
  }
  for (const std::string& name : names)
    for (const char* ending : {".svg", ".png", ".pdf"})
      if (!fs::exists(folder / (name + ending)))
        throw Error(fmt::format("drawing plots left no {}{}", name, ending));
  return true;
}

}  // namespace fp8lab
