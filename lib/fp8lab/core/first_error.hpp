#pragma once
// Exceptions in parallel regions, which they must not leave.

#include <atomic>
#include <exception>
#include <mutex>

namespace fp8lab {

/// Stores the first exception of a parallel region and rethrows it afterwards. Later iterations of
/// the region are skipped, since their data may be missing.
class FirstError {
 public:
  template <typename Work>
  void guard(const Work& work) noexcept {
    if (failed_) return;
    try {
      work();
    } catch (...) {
      failed_ = true;
      const std::scoped_lock lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace fp8lab
