# Flags shared by every target, and memfloor_library(): one static library for one top-level folder.
include(CheckCXXCompilerFlag)

set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g")

add_library(memfloor_options INTERFACE)
target_include_directories(memfloor_options INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)
# -Wno-psabi: wide vectors never cross a library border here.
# -Wno-maybe-uninitialized: GCC 12 warns about its own AVX-512 headers.
target_compile_options(memfloor_options INTERFACE -Wall -Wextra -Wno-psabi -Wno-maybe-uninitialized)
# Loops over floats are written to be vectorised; errno and traps of libm would forbid it. Neither
# flag changes a result's bits.
target_compile_options(memfloor_options INTERFACE -fno-math-errno -fno-trapping-math)
if(MEMFLOOR_NATIVE)
  foreach(flag -march=native -mprefer-vector-width=512)  # the second is for x86 only
    string(MAKE_C_IDENTIFIER "MEMFLOOR_HAS${flag}" has_flag)
    check_cxx_compiler_flag(${flag} ${has_flag})
    if(${has_flag})
      target_compile_options(memfloor_options INTERFACE ${flag})
    endif()
  endforeach()
endif()
if(MEMFLOOR_WERROR)
  target_compile_options(memfloor_options INTERFACE -Werror)
endif()
if(MEMFLOOR_SANITIZE)
  set(sanitizers -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
    -g1)  # lines for their reports; whole debug information is half of the objects
  target_compile_options(memfloor_options INTERFACE ${sanitizers})
  target_link_options(memfloor_options INTERFACE ${sanitizers})
  target_compile_definitions(memfloor_options INTERFACE MEMFLOOR_SANITIZE=1)
endif()

function(memfloor_library folder)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.cc)
  list(FILTER sources EXCLUDE REGEX "/suite/main\\.cc$")
  if(NOT sources)  # a folder may hold headers only
    set(empty_source ${CMAKE_BINARY_DIR}/generated/empty_${folder}.cc)
    file(GENERATE OUTPUT ${empty_source} CONTENT "// ${folder}/ has no sources.\n")
    set(sources ${empty_source})
  endif()
  add_library(memfloor_${folder} STATIC ${sources})
  target_link_libraries(memfloor_${folder} PRIVATE memfloor_options)
  foreach(dependency ${ARG_DEPENDS})
    target_link_libraries(memfloor_${folder} PUBLIC memfloor_${dependency})
  endforeach()
  add_dependencies(memfloor_${folder} memfloor_include_rule)
endfunction()
