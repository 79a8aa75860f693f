# Installs the project into a scratch prefix and builds and runs a user of it.
file(REMOVE_RECURSE ${WORK_DIR})
function(step)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT code EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "${command}\nexited with ${code}:\n${out}")
  endif()
endfunction()
step(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/prefix)
step(${CMAKE_COMMAND} -S ${SOURCE_DIR} -B ${WORK_DIR}/build -G ${GENERATOR}
  -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix -DCMAKE_CXX_COMPILER=${CXX}
  -DCMAKE_CXX_FLAGS=${CXX_FLAGS} -DCMAKE_BUILD_TYPE=Release)
step(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
step(${WORK_DIR}/build/example)
step(${WORK_DIR}/build/libraries)

# The same without CMake.
find_program(PKG_CONFIG NAMES pkg-config pkgconf)
if(PKG_CONFIG)
  file(GLOB_RECURSE pc ${WORK_DIR}/prefix/fp8lab.pc)
  cmake_path(GET pc PARENT_PATH folder)
  set(ENV{PKG_CONFIG_PATH} ${folder})
  execute_process(COMMAND ${PKG_CONFIG} --cflags --libs fp8lab OUTPUT_VARIABLE flags
    COMMAND_ERROR_IS_FATAL ANY OUTPUT_STRIP_TRAILING_WHITESPACE)
  separate_arguments(flags UNIX_COMMAND "${flags}")
  separate_arguments(more UNIX_COMMAND "${CXX_FLAGS}")
  step(${CXX} ${more} -O1 ${SOURCE_DIR}/example.cpp ${SOURCE_DIR}/check_kernel.cpp
    -o ${WORK_DIR}/with_pkg_config ${flags})
  step(${WORK_DIR}/with_pkg_config)
else()
  message(STATUS "pkg-config is not here: fp8lab.pc is not tried")
endif()

# What the command prints is installed for man and for shells.
foreach(file man/man1/fp8lab.1 bash-completion/completions/fp8lab zsh/site-functions/_fp8lab
    fish/vendor_completions.d/fp8lab.fish)
  set(path ${WORK_DIR}/prefix/share/${file})
  file(SIZE ${path} size)
  if(size LESS 1000)
    message(FATAL_ERROR "${path}: expected the text that the command prints, got ${size} bytes")
  endif()
endforeach()
