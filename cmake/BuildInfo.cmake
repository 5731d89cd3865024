# Writes generated/memfloor_build_info.h: what identifies the code and the build in a result file.
# Included, it makes the target memfloor_build_info; run by cmake -P at every build, it writes the
# header, which changes (and recompiles its one user) only when the code, the commit or the flags
# change.

if(NOT CMAKE_SCRIPT_MODE_FILE)
  get_target_property(interface_options memfloor_options INTERFACE_COMPILE_OPTIONS)
  string(TOUPPER "${CMAKE_BUILD_TYPE}" upper_type)
  string(JOIN " " all_flags ${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${upper_type}} -std=c++20
         ${interface_options})
  set(boost_version ${Boost_VERSION_STRING})
  # Values travel in a file, so that spaces and quotes need no care.
  set(values ${CMAKE_BINARY_DIR}/generated/build_info_values.cmake)
  file(GENERATE OUTPUT ${values} CONTENT "\
set(source_dir [==[${CMAKE_SOURCE_DIR}]==])
set(header [==[${CMAKE_BINARY_DIR}/generated/memfloor_build_info.h]==])
set(version [==[${PROJECT_VERSION}]==])
set(compiler [==[${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}]==])
set(flags [==[${all_flags}]==])
set(build_type [==[${CMAKE_BUILD_TYPE}]==])
set(eigen_version [==[${Eigen3_VERSION}]==])
set(json_version [==[${nlohmann_json_VERSION}]==])
set(boost_version [==[${boost_version}]==])
set(benchmark_version [==[${benchmark_VERSION}]==])
set(openssl_version [==[${OPENSSL_VERSION}]==])
set(onednn_version [==[${OneDNN_VERSION}]==])
")
  add_custom_target(memfloor_build_info
    COMMAND ${CMAKE_COMMAND} -DVALUES=${values} -P ${CMAKE_CURRENT_LIST_FILE}
    BYPRODUCTS ${CMAKE_BINARY_DIR}/generated/memfloor_build_info.h
    COMMENT "Noting the commit and the flags" VERBATIM)
  return()
endif()

include(${VALUES})

# What a result depends on, beside the machine and its libraries.
set(source_folders core backends engine models techniques data_loaders suite cmake)

# One hash over the names and the contents of all source files: whether two results have the same
# code, with or without git, committed or not.
set(patterns "")
foreach(folder IN LISTS source_folders)
  foreach(ending cc h cu cuh cmake)
    list(APPEND patterns ${source_dir}/${folder}/*.${ending})
  endforeach()
endforeach()
file(GLOB_RECURSE source_files RELATIVE ${source_dir} ${patterns})
list(APPEND source_files CMakeLists.txt)
list(SORT source_files)
set(hashes "")
foreach(source_file IN LISTS source_files)
  file(SHA256 ${source_dir}/${source_file} hash)
  string(APPEND hashes "${hash} ${source_file}\n")
endforeach()
string(SHA256 source_sha256 "${hashes}")

# The same code decides whether a commit is "-dirty"; results and notes do not.
set(commit "unknown")
find_program(git git)
if(git)
  execute_process(COMMAND ${git} -C ${source_dir} rev-parse HEAD
    OUTPUT_VARIABLE head RESULT_VARIABLE failed ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT failed)
    set(commit ${head})
    execute_process(COMMAND ${git} -C ${source_dir} --no-optional-locks status --porcelain --
      ${source_folders} CMakeLists.txt
      OUTPUT_VARIABLE changes ERROR_QUIET)
    if(changes)
      string(APPEND commit "-dirty")
    endif()
  endif()
endif()

set(content "// Generated at every build by cmake/BuildInfo.cmake: the code and the build, for result files.
#pragma once

namespace memfloor::build_info {

inline constexpr const char* kVersion = \"${version}\";
inline constexpr const char* kGitCommit = \"${commit}\";  // 40 hex digits, \"-dirty\" if changed
inline constexpr const char* kSourceSha256 = \"${source_sha256}\";
inline constexpr const char* kCompiler = \"${compiler}\";
inline constexpr const char* kCompilerFlags = \"${flags}\";
inline constexpr const char* kBuildType = \"${build_type}\";

struct Library {
  const char* name;
  const char* version;
};
inline constexpr Library kLibraries[] = {
    {\"oneDNN\", \"${onednn_version}\"},
    {\"Eigen\", \"${eigen_version}\"},
    {\"nlohmann_json\", \"${json_version}\"},
    {\"Boost\", \"${boost_version}\"},
    {\"benchmark\", \"${benchmark_version}\"},
    {\"OpenSSL\", \"${openssl_version}\"},
};

}  // namespace memfloor::build_info
")
set(old "")
if(EXISTS ${header})
  file(READ ${header} old)
endif()
if(NOT old STREQUAL content)
  file(WRITE ${header} "${content}")
endif()
