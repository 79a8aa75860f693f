// What of toml++ is not in its headers, for a program that brings it along.

#define TOML_IMPLEMENTATION
#include <toml++/toml.h>
