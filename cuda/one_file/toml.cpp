// What of toml++ is not in its headers, for a program that brings it along.

#ifndef TOML_HEADER_ONLY
#define TOML_HEADER_ONLY 0
#endif
#define TOML_IMPLEMENTATION
#include <toml++/toml.h>
