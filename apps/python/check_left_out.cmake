# Fails if the linker took an object whose source `pip install` leaves out (FP8LAB_SOURCES_LEFT_OUT).
# -DMAP: the linker's map; -DLEFT_OUT: sources as room/name, separated by commas.
string(REPLACE "," ";" left_out "${LEFT_OUT}")
file(READ ${MAP} map)
foreach(source IN LISTS left_out)
  get_filename_component(name ${source} NAME)
  string(FIND "${map}" "(${name}.cpp.o)" at)
  if(NOT at EQUAL -1)
    message(FATAL_ERROR "FP8LAB_SOURCES_LEFT_OUT: expected sources that the Python package does not "
      "need, got ${source}.cpp: take it off the list in apps/python/CMakeLists.txt")
  endif()
endforeach()
