# Everything comes from the distribution's packages (scripts/setup installs them).
find_package(OpenMP REQUIRED COMPONENTS CXX)  # only to make oneDNN single-threaded per thread
find_package(Eigen3 3.3 REQUIRED NO_MODULE)
find_package(nlohmann_json 3.9 REQUIRED)
find_package(Boost 1.71 REQUIRED COMPONENTS program_options)
find_package(benchmark 1.6 REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)  # SHA-256 of data files
find_package(Threads REQUIRED)
find_package(OneDNN 2.6 REQUIRED)  # our cmake/FindOneDNN.cmake; -DONEDNN_ROOT=dir for another copy
find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)  # the include rule, tests of scripts
if(MEMFLOOR_TESTS)
  find_package(GTest 1.11 REQUIRED)
endif()

# Headers of dependencies are "system" headers, so that their warnings are not ours: imported
# targets are so by default.
message(STATUS "oneDNN ${OneDNN_VERSION}: ${OneDNN_LIBRARY}")
