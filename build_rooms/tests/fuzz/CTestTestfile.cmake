# CMake generated Testfile for 
# Source directory: /work/wt/watch/tests/fuzz
# Build directory: /work/wt/watch/build_rooms/tests/fuzz
# 
# This file includes the relevant testing commands required for 
# testing this directory and lists subdirectories to be tested as well.
add_test([=[fuzz_corpus_arguments]=] "/work/wt/watch/build_rooms/tests/fuzz/fuzz_corpus_arguments" "/work/wt/watch/tests/fuzz/corpus/arguments")
set_tests_properties([=[fuzz_corpus_arguments]=] PROPERTIES  TIMEOUT "60" _BACKTRACE_TRIPLES "/work/wt/watch/tests/fuzz/CMakeLists.txt;13;add_test;/work/wt/watch/tests/fuzz/CMakeLists.txt;0;")
add_test([=[fuzz_corpus_definition]=] "/work/wt/watch/build_rooms/tests/fuzz/fuzz_corpus_definition" "/work/wt/watch/tests/fuzz/corpus/definition")
set_tests_properties([=[fuzz_corpus_definition]=] PROPERTIES  TIMEOUT "60" _BACKTRACE_TRIPLES "/work/wt/watch/tests/fuzz/CMakeLists.txt;13;add_test;/work/wt/watch/tests/fuzz/CMakeLists.txt;0;")
add_test([=[fuzz_corpus_grid]=] "/work/wt/watch/build_rooms/tests/fuzz/fuzz_corpus_grid" "/work/wt/watch/tests/fuzz/corpus/grid")
set_tests_properties([=[fuzz_corpus_grid]=] PROPERTIES  TIMEOUT "60" _BACKTRACE_TRIPLES "/work/wt/watch/tests/fuzz/CMakeLists.txt;13;add_test;/work/wt/watch/tests/fuzz/CMakeLists.txt;0;")
add_test([=[fuzz_corpus_models_file]=] "/work/wt/watch/build_rooms/tests/fuzz/fuzz_corpus_models_file" "/work/wt/watch/tests/fuzz/corpus/models_file")
set_tests_properties([=[fuzz_corpus_models_file]=] PROPERTIES  TIMEOUT "60" _BACKTRACE_TRIPLES "/work/wt/watch/tests/fuzz/CMakeLists.txt;13;add_test;/work/wt/watch/tests/fuzz/CMakeLists.txt;0;")
add_test([=[fuzz_corpus_npy]=] "/work/wt/watch/build_rooms/tests/fuzz/fuzz_corpus_npy" "/work/wt/watch/tests/fuzz/corpus/npy")
set_tests_properties([=[fuzz_corpus_npy]=] PROPERTIES  TIMEOUT "60" _BACKTRACE_TRIPLES "/work/wt/watch/tests/fuzz/CMakeLists.txt;13;add_test;/work/wt/watch/tests/fuzz/CMakeLists.txt;0;")
add_test([=[fuzz_corpus_npz]=] "/work/wt/watch/build_rooms/tests/fuzz/fuzz_corpus_npz" "/work/wt/watch/tests/fuzz/corpus/npz")
set_tests_properties([=[fuzz_corpus_npz]=] PROPERTIES  TIMEOUT "60" _BACKTRACE_TRIPLES "/work/wt/watch/tests/fuzz/CMakeLists.txt;13;add_test;/work/wt/watch/tests/fuzz/CMakeLists.txt;0;")
add_test([=[fuzz_corpus_parameters]=] "/work/wt/watch/build_rooms/tests/fuzz/fuzz_corpus_parameters" "/work/wt/watch/tests/fuzz/corpus/parameters")
set_tests_properties([=[fuzz_corpus_parameters]=] PROPERTIES  TIMEOUT "60" _BACKTRACE_TRIPLES "/work/wt/watch/tests/fuzz/CMakeLists.txt;13;add_test;/work/wt/watch/tests/fuzz/CMakeLists.txt;0;")
add_test([=[fuzz_corpus_recording]=] "/work/wt/watch/build_rooms/tests/fuzz/fuzz_corpus_recording" "/work/wt/watch/tests/fuzz/corpus/recording")
set_tests_properties([=[fuzz_corpus_recording]=] PROPERTIES  TIMEOUT "60" _BACKTRACE_TRIPLES "/work/wt/watch/tests/fuzz/CMakeLists.txt;13;add_test;/work/wt/watch/tests/fuzz/CMakeLists.txt;0;")
add_test([=[fuzz_corpus_safetensors]=] "/work/wt/watch/build_rooms/tests/fuzz/fuzz_corpus_safetensors" "/work/wt/watch/tests/fuzz/corpus/safetensors")
set_tests_properties([=[fuzz_corpus_safetensors]=] PROPERTIES  TIMEOUT "60" _BACKTRACE_TRIPLES "/work/wt/watch/tests/fuzz/CMakeLists.txt;13;add_test;/work/wt/watch/tests/fuzz/CMakeLists.txt;0;")
add_test([=[fuzz_corpus_sidecar]=] "/work/wt/watch/build_rooms/tests/fuzz/fuzz_corpus_sidecar" "/work/wt/watch/tests/fuzz/corpus/sidecar")
set_tests_properties([=[fuzz_corpus_sidecar]=] PROPERTIES  TIMEOUT "60" _BACKTRACE_TRIPLES "/work/wt/watch/tests/fuzz/CMakeLists.txt;13;add_test;/work/wt/watch/tests/fuzz/CMakeLists.txt;0;")
add_test([=[fuzz_corpus_vector_files]=] "/work/wt/watch/build_rooms/tests/fuzz/fuzz_corpus_vector_files" "/work/wt/watch/tests/fuzz/corpus/vector_files")
set_tests_properties([=[fuzz_corpus_vector_files]=] PROPERTIES  TIMEOUT "60" _BACKTRACE_TRIPLES "/work/wt/watch/tests/fuzz/CMakeLists.txt;13;add_test;/work/wt/watch/tests/fuzz/CMakeLists.txt;0;")
add_test([=[fuzz_corpus_vectors]=] "/work/wt/watch/build_rooms/tests/fuzz/fuzz_corpus_vectors" "/work/wt/watch/tests/fuzz/corpus/vectors")
set_tests_properties([=[fuzz_corpus_vectors]=] PROPERTIES  TIMEOUT "60" _BACKTRACE_TRIPLES "/work/wt/watch/tests/fuzz/CMakeLists.txt;13;add_test;/work/wt/watch/tests/fuzz/CMakeLists.txt;0;")
