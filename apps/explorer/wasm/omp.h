#pragma once
// Emscripten has no OpenMP, and a page that opens from a file has no threads.

inline int omp_get_max_threads() { return 1; }
