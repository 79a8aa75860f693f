// A page that opens from a file has no threads.

#include "fp8lab/core/threads.hpp"

namespace fp8lab {

int team_size(int /*requested*/) { return 1; }

ThreadShortage thread_shortage() { return {}; }

}  // namespace fp8lab
