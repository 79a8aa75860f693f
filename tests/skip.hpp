#pragma once
// What a test says whose surroundings are missing.

#include <string>

/// Notes that a test could not look at anything, and why. The program then ends with 77, CTest's
/// sign of a skipped test, unless a test failed. Only for tests with a CTest entry of their own:
/// elsewhere 77 is a failure.
void skip_test(const std::string& reason);
