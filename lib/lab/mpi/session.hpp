#pragma once
// One process of an MPI run: start, end, rank, size, and errors that end the
// whole run. No MPI header is needed to use it.

#include <functional>
#include <string_view>

namespace fp8lab::mpi {

/// MPI between construction and destruction; one at a time, from the thread
/// that made it. A failing MPI call throws `Error` with MPI's own words.
class Session {
 public:
  /// MPI_Init_thread with MPI_THREAD_FUNNELED. Throws `Error` where MPI gives
  /// less, or has been started already.
  Session();
  /// MPI_Finalize. Not for a process that leaves early: see `guard`.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  /// Rank 0 speaks and writes for all.
  [[nodiscard]] bool is_root() const { return rank_ == 0; }

  /// Returns when every process has called.
  void barrier() const;

  /// The result of `body`, unless it throws: then the message goes to stderr
  /// with the rank before it, and MPI_Abort ends all processes with exit code
  /// `code`. Without this, the others would wait for ever.
  int guard(int code, const std::function<int()>& body) const;

  /// Ends all processes at once with `code`: the way out where a rank has died
  /// and MPI_Finalize would wait for it.
  [[noreturn]] void abandon(int code) const;

 private:
  int rank_ = 0;
  int size_ = 1;
};

/// Throws `Error` with MPI's message unless `code`, what the call `name`
/// returned, is MPI_SUCCESS.
void check(int code, std::string_view name);

}  // namespace fp8lab::mpi
