# The parts of cuda/ that need no CUDA: for the tool, for the backends, and for tests everywhere.
if(TARGET fp8lab_cuda_host)
  return()
endif()
set(cuda_host_sources cast_table.cpp chip_products.cpp driver.cpp emulated_model.cpp host_arguments.cpp prediction.cpp
  stream_gemm.cpp tiles.cpp probes/instructions.cpp tool/batches.cpp tool/candidates.cpp tool/errors.cpp
  tool/experiments.cpp tool/judge.cpp tool/judge_cast.cpp tool/judge_rounding.cpp tool/log.cpp tool/lt_calls.cpp
  tool/lt_model.cpp tool/lt_output.cpp tool/lt_separate.cpp tool/lt_text.cpp tool/mismatches.cpp tool/pack_cases.cpp
  tool/parts.cpp tool/random_problem.cpp tool/table.cpp tool/tar.cpp tool/winner.cpp)
list(TRANSFORM cuda_host_sources PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
add_library(fp8lab_cuda_host STATIC ${cuda_host_sources})
target_include_directories(fp8lab_cuda_host PUBLIC ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_LIST_DIR})
target_link_libraries(fp8lab_cuda_host PUBLIC fp8lab::lab
  PRIVATE fp8lab_options fmt::fmt nlohmann_json::nlohmann_json OpenMP::OpenMP_CXX ${CMAKE_DL_LIBS})
