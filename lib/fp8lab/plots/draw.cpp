#include "fp8lab/plots/draw.hpp"

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
#include <system_error>
#include <vector>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/plots/draw_script.hpp"

namespace fp8lab {
namespace {

namespace fs = std::filesystem;

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
  /// Nothing if `python` is no program, or has no vl-convert.
  static std::unique_ptr<Drawer> start(const std::string& python) {
    std::unique_ptr<Drawer> drawer(new Drawer);
    if (!drawer->spawn(python) || !drawer->answer()) return nullptr;
    return drawer;
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
    nlohmann::json order{fs::absolute(folder).string()};
    for (const std::string& name : names) order.push_back(name);
    const std::string line = order.dump() + "\n";
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
    std::vector<std::string> words{python, "-c", kDrawScript};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const int error =
        posix_spawnp(&child_, arguments[0], actions.get(), nullptr, arguments.data(), environ);
    ::close(ends[1]);
    socket_ = ends[0];
    if (error != 0) child_ = 0;
    return error == 0;
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

std::vector<std::string> pythons() {
  if (const char* named = std::getenv("FP8LAB_PYTHON"); named != nullptr && *named != '\0')
    return {named};
  std::vector<std::string> found;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  for (const fs::path& folder : {program.parent_path(), program.parent_path().parent_path()})
    if (fs::exists(folder / "venv/bin/python", error))
      found.push_back((folder / "venv/bin/python").string());
  found.emplace_back("python3");
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
