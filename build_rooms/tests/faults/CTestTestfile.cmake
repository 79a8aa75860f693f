# CMake generated Testfile for 
# Source directory: /work/wt/watch/tests/faults
# Build directory: /work/wt/watch/build_rooms/tests/faults
# 
# This file includes the relevant testing commands required for 
# testing this directory and lists subdirectories to be tested as well.
add_test([=[faults]=] "/work/wt/watch/build/venv/bin/python" "/work/wt/watch/tests/faults/faults.py" "/work/wt/watch/build_rooms/fp8lab" "/work/wt/watch/build_rooms/tests/faults/libfp8lab_faults.so")
set_tests_properties([=[faults]=] PROPERTIES  COST "120" PROCESSORS "2" TIMEOUT "900" _BACKTRACE_TRIPLES "/work/wt/watch/tests/faults/CMakeLists.txt;5;add_test;/work/wt/watch/tests/faults/CMakeLists.txt;0;")
