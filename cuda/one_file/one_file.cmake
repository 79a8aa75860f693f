# fp8lab-cuda as one file: on a machine with a driver it needs the C library alone. What systems ship
# as shared libraries only is compiled in (these sources) or looked up when it is used (libzip,
# cuBLASLt). Shared libraries that are left on the command line by others are dropped, since nothing
# needs them any more. A version of {fmt} or Highway that is not known here stays shared.
option(FP8LAB_CUDA_ONE_FILE "Link fp8lab-cuda so that it needs nothing but the C library" ON)
if(NOT FP8LAB_CUDA_ONE_FILE OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  return()
endif()

execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libgomp.a
  OUTPUT_VARIABLE gomp OUTPUT_STRIP_TRAILING_WHITESPACE)
set(one_file_sources toml.cpp zip.cpp)
if(fmt_VERSION VERSION_GREATER_EQUAL 9 AND fmt_VERSION VERSION_LESS 10)
  list(APPEND one_file_sources fmt.cpp)
endif()
if(hwy_VERSION VERSION_LESS 1.1)
  list(APPEND one_file_sources targets.cpp)
endif()
list(TRANSFORM one_file_sources PREPEND one_file/)
# Other people's definitions, which our warnings are not for.
set_source_files_properties(one_file/fmt.cpp one_file/toml.cpp PROPERTIES COMPILE_OPTIONS -w)
target_sources(fp8lab-cuda PRIVATE ${one_file_sources})
target_link_options(fp8lab-cuda PRIVATE -static-libstdc++ -static-libgcc LINKER:--as-needed)
if(IS_ABSOLUTE "${gomp}")
  target_link_options(fp8lab-cuda PRIVATE
    LINKER:--whole-archive "${gomp}" LINKER:--no-whole-archive)
endif()
set_target_properties(fp8lab-cuda PROPERTIES SKIP_BUILD_RPATH ON)
