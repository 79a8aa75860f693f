# Sets vega_script: Vega, Vega-Lite and Vega-Embed as one text, which vl-convert (a package of PyPI) has
# and bundles. Nothing is fetched. The text is made once a build folder and version.
set(FP8LAB_VEGA_PYTHON "" CACHE FILEPATH "Python that has vl-convert-python; empty: build/venv, or python3")
set(vega_pythons ${FP8LAB_VEGA_PYTHON} $ENV{FP8LAB_PYTHON} ${PROJECT_SOURCE_DIR}/build/venv/bin/python python3)
set(vega_made FALSE)
foreach(python IN LISTS vega_pythons)
  execute_process(COMMAND ${python} -I ${CMAKE_CURRENT_LIST_DIR}/vega.py ${CMAKE_CURRENT_BINARY_DIR}/generated
    OUTPUT_VARIABLE vega_file OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE vega_failed ERROR_QUIET)
  if(vega_failed EQUAL 0)
    set(vega_made TRUE)
    break()
  endif()
endforeach()
if(NOT vega_made)
  message(FATAL_ERROR "The report's page draws plots with Vega, which comes from the Python package vl-convert-python: "
    "install it (pip install -r lib/requirements.txt), and name its Python with -DFP8LAB_VEGA_PYTHON=...")
endif()
file(READ ${vega_file} vega_script)
