# CMake generated Testfile for 
# Source directory: /work/wt/watch/tests/explorer
# Build directory: /work/wt/watch/build_rooms/tests/explorer
# 
# This file includes the relevant testing commands required for 
# testing this directory and lists subdirectories to be tested as well.
add_test([=[explorer_same_bits]=] "/work/wt/watch/build/venv/bin/python" "/work/wt/watch/tests/explorer/same_bits.py" "/work/wt/watch/build_rooms/tests/explorer/explorer_same_bits" "/work/wt/watch/build_rooms/tests/explorer/explorer_answer")
set_tests_properties([=[explorer_same_bits]=] PROPERTIES  SKIP_RETURN_CODE "77" _BACKTRACE_TRIPLES "/work/wt/watch/tests/explorer/CMakeLists.txt;15;add_test;/work/wt/watch/tests/explorer/CMakeLists.txt;0;")
add_test([=[explorer_page]=] "/work/wt/watch/build/venv/bin/python" "/work/wt/watch/tests/explorer/page_test.py" "/work/wt/watch/build_rooms/explorer.html")
set_tests_properties([=[explorer_page]=] PROPERTIES  LABELS "browser" SKIP_RETURN_CODE "77" _BACKTRACE_TRIPLES "/work/wt/watch/tests/explorer/CMakeLists.txt;18;add_test;/work/wt/watch/tests/explorer/CMakeLists.txt;0;")
