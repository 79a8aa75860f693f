#include "lab/mpi/session.hpp"

#include <fmt/format.h>
#include <mpi.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/printable.hpp"

namespace fp8lab::mpi {

void check(int code, std::string_view name) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw Error(
      fmt::format("{}: {}", name, std::string_view(text.data(), static_cast<std::size_t>(length))));
}

Session::Session() {
  int started = 0;
  check(MPI_Initialized(&started), "MPI_Initialized");
  require(started == 0, "mpi", "one session a process", "a second one");
  int threads = MPI_THREAD_SINGLE;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &threads), "MPI_Init_thread");
  require(threads >= MPI_THREAD_FUNNELED, "mpi", "support for threads (MPI_THREAD_FUNNELED)",
          fmt::format("level {}", threads));
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
}

Session::~Session() { MPI_Finalize(); }

void Session::barrier() const { check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier"); }

int Session::guard(int code, const std::function<int()>& body) const {
  try {
    return body();
  } catch (const std::exception& error) {
    fmt::print(stderr, "fp8lab: rank {} of {}: {}\n", rank_, size_, printable(error.what()));
    std::fflush(nullptr);
    MPI_Abort(MPI_COMM_WORLD, code);
    return code;
  }
}

void Session::abandon(int code) const {
  std::fflush(nullptr);
  MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

}  // namespace fp8lab::mpi
