// Catch2 2 wants its main in one file of ours; Catch2 3 links its own.
#if !__has_include(<catch2/catch_test_macros.hpp>)
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
#endif
