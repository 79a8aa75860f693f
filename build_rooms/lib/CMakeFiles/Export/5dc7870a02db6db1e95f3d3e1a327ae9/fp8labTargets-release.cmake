#----------------------------------------------------------------
# Generated CMake target import file for configuration "Release".
#----------------------------------------------------------------

# Commands may need to know the format version.
set(CMAKE_IMPORT_FILE_VERSION 1)

# Import target "fp8lab::fp8lab" for configuration "Release"
set_property(TARGET fp8lab::fp8lab APPEND PROPERTY IMPORTED_CONFIGURATIONS RELEASE)
set_target_properties(fp8lab::fp8lab PROPERTIES
  IMPORTED_LINK_INTERFACE_LANGUAGES_RELEASE "CXX"
  IMPORTED_LOCATION_RELEASE "${_IMPORT_PREFIX}/lib/libfp8lab.a"
  )

list(APPEND _cmake_import_check_targets fp8lab::fp8lab )
list(APPEND _cmake_import_check_files_for_fp8lab::fp8lab "${_IMPORT_PREFIX}/lib/libfp8lab.a" )

# Commands beyond this point should not need to know the version.
set(CMAKE_IMPORT_FILE_VERSION)
