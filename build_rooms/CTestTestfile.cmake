# CMake generated Testfile for 
# Source directory: /work/wt/watch
# Build directory: /work/wt/watch/build_rooms
# 
# This file includes the relevant testing commands required for 
# testing this directory and lists subdirectories to be tested as well.
subdirs("lib")
subdirs("experiments")
subdirs("apps/cli")
subdirs("apps/explorer")
subdirs("tests")
