#include "common/page_reads.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "fp8lab/core/error.hpp"

namespace fp8lab::experiments {

/// What the fault handler may touch: plain memory, set up before the first fault.
struct PageCountedTensor::Window {
  std::byte* memory = nullptr;
  std::size_t page_bytes = 0;
  std::size_t pages = 0;
  std::vector<std::size_t> recent;  ///< page numbers, a ring
  std::size_t brought_in = 0;

  [[nodiscard]] std::size_t bytes() const { return pages * page_bytes; }

  /// Makes the page at `address` readable and the oldest one unreadable.
  bool bring_in(const std::byte* address) {
    if (address < memory || address >= memory + bytes()) return false;
    const auto page = static_cast<std::size_t>(address - memory) / page_bytes;
    std::size_t& slot = recent[brought_in % recent.size()];
    if (brought_in >= recent.size()) mprotect(memory + slot * page_bytes, page_bytes, PROT_NONE);
    slot = page;
    ++brought_in;
    return mprotect(memory + page * page_bytes, page_bytes, PROT_READ) == 0;
  }
};

namespace {

std::mutex one_at_a_time;
std::atomic<PageCountedTensor::Window*> active{nullptr};
struct sigaction previous {};

void on_fault(int signal, siginfo_t* info, void* /*context*/) {
  PageCountedTensor::Window* window = active.load();
  if (window != nullptr && window->bring_in(static_cast<const std::byte*>(info->si_addr))) return;
  // Not ours: the instruction faults again under the handler that was there before.
  sigaction(signal, &previous, nullptr);
}

/// Faults are counted until the end of the scope.
class Counting {
 public:
  explicit Counting(PageCountedTensor::Window& window) : lock_(one_at_a_time) {
    active = &window;
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    require(sigaction(SIGSEGV, &action, &previous) == 0, "page count", "a fault handler",
            std::strerror(errno));
  }
  ~Counting() {
    sigaction(SIGSEGV, &previous, nullptr);
    active = nullptr;
  }
  Counting(const Counting&) = delete;
  Counting& operator=(const Counting&) = delete;

 private:
  std::lock_guard<std::mutex> lock_;
};

}  // namespace

PageCountedTensor::PageCountedTensor(std::span<const float> values, std::size_t window_bytes)
    : window_(std::make_unique<Window>()) {
  Window& w = *window_;
  w.page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  w.pages = (values.size_bytes() + w.page_bytes - 1) / w.page_bytes;
  w.recent.resize(window_bytes / w.page_bytes);
  require(!values.empty(), "values", "at least one", "none");
  require(!w.recent.empty(), "window_bytes", fmt::format("at least {}", w.page_bytes),
          fmt::format("{}", window_bytes));
  void* memory =
      mmap(nullptr, w.bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(memory != MAP_FAILED, "page count", fmt::format("{} bytes of memory", w.bytes()),
          std::strerror(errno));
  w.memory = static_cast<std::byte*>(memory);
  std::memcpy(memory, values.data(), values.size_bytes());
  values_ = {static_cast<const float*>(memory), values.size()};
}

PageCountedTensor::~PageCountedTensor() { munmap(window_->memory, window_->bytes()); }

double PageCountedTensor::reads(const std::function<void()>& work) {
  Window& w = *window_;
  const Counting counting(w);
  require(mprotect(w.memory, w.bytes(), PROT_NONE) == 0, "page count", "protected pages",
          std::strerror(errno));
  w.brought_in = 0;
  work();
  return static_cast<double>(w.brought_in) / static_cast<double>(w.pages);
}

}  // namespace fp8lab::experiments
