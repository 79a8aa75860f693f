# docs/cpp.md shows check_kernel.cpp, which the install test compiles and runs, as it is.
file(READ ${SOURCE_DIR}/check_kernel.cpp example)
file(READ ${README} readme)
string(FIND "${readme}" "```cpp\n${example}```\n" place)
if(place EQUAL -1)
  message(FATAL_ERROR "${README}: expected a ```cpp block that equals ${SOURCE_DIR}/check_kernel.cpp")
endif()
