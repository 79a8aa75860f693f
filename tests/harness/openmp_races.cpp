// usage: openmp_races [race]
// Loops, reductions and critical sections as the library has them, and with `race` a counter that
// every thread changes. Under the thread sanitizer the first must pass and the second must not.
// OpenMP's runtime is not instrumented: without Archer, which tells the sanitizer what it orders,
// reductions look like races.

#include <cstdio>
#include <numeric>
#include <vector>

namespace {

constexpr int kThreads = 4;
constexpr int kCount = 1000;

double sum_of_loops() {
  std::vector<double> x(kCount, 1.0);
  double* const values = x.data();
  for (int round = 0; round < 50; ++round) {
    double sum = 0.0;
#pragma omp parallel for num_threads(kThreads) reduction(+ : sum)
    for (int i = 0; i < kCount; ++i) sum += values[i] += 1.0;
#pragma omp parallel for num_threads(kThreads) schedule(dynamic, 16)
    for (int i = 0; i < kCount; ++i) values[kCount - 1 - i] += sum > 0.0 ? 1.0 : 0.0;
#pragma omp parallel num_threads(kThreads)
    {
#pragma omp critical(fp8lab_openmp_races)
      values[0] += 1.0;
    }
  }
  return std::accumulate(x.begin(), x.end(), 0.0);
}

int racy_count() {
  int count = 0;
#pragma omp parallel num_threads(kThreads)
  for (int i = 0; i < kCount; ++i) ++count;
  return count;
}

}  // namespace

int main(int argc, char**) {
  std::printf("%g\n", sum_of_loops());
  if (argc > 1) std::printf("%d\n", racy_count());
  return 0;
}
