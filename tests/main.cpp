// Runs the tests. Ends with 0 if all passed, 77 if none failed and one was skipped, 2 for wrong
// options, else 1: Catch2's own count of failures could be 77. A test that checks nothing fails,
// and so does a choice of tests that matches none.

#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/catch_version_macros.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

#include <atomic>
#include <cstdio>
#include <type_traits>

#include "skip.hpp"

namespace {

bool skipped = false;

#if CATCH_VERSION_MAJOR >= 3
constexpr int kWarnings = Catch::WarnAbout::NoAssertions;  // no tests: an error by itself

bool lists(const Catch::ConfigData& config) {
  return config.listTests || config.listTags || config.listReporters || config.listListeners;
}

bool has_wrong_filter(Catch::Session&) { return false; }  // an error by itself
#else
constexpr int kWarnings = Catch::WarnAbout::NoAssertions | Catch::WarnAbout::NoTests;

bool lists(const Catch::ConfigData& config) {
  return config.listTests || config.listTags || config.listReporters || config.listTestNamesOnly;
}

/// Such as a comma inside quotes.
bool has_wrong_filter(Catch::Session& session) {
  return !session.config().testSpec().getInvalidArgs().empty();
}
#endif

#if defined(__has_feature)
#define FP8LAB_HAS_FEATURE(feature) __has_feature(feature)
#else
#define FP8LAB_HAS_FEATURE(feature) 0
#endif

#if FP8LAB_HAS_FEATURE(address_sanitizer)
/// LLVM 14's OpenMP loses buffers of a team that grows, which the sanitizer reports: the largest
/// team of all tests comes first.
void make_largest_team() {
  std::atomic<int> threads{0};
#pragma omp parallel num_threads(16)
  ++threads;
}
#else
void make_largest_team() {}
#endif

}  // namespace

void skip_test(const std::string& reason) {
  SUCCEED();
  skipped = true;
  std::printf("SKIPPED: %s\n", reason.c_str());
}

int main(int argc, char** argv) {
  Catch::Session session;
  if (session.applyCommandLine(argc, argv) != 0) return 2;
  auto& warnings = session.configData().warnings;
  warnings = static_cast<std::remove_reference_t<decltype(warnings)>>(warnings | kWarnings);
  make_largest_team();
  const int failures = session.run();
  if (has_wrong_filter(session)) return 2;
  if (lists(session.configData())) return 0;
  if (failures != 0) return 1;
  return skipped ? 77 : 0;
}
