# Finds oneDNN (2.6 or newer) and makes the imported target dnnl::dnnl.
#
# We do not use the dnnl-config.cmake of distributions: Debian's asks for OpenCL's development files,
# which nothing here needs. -DONEDNN_ROOT=dir points to another copy: a folder with include/ and lib/,
# such as the unpacked PyPI wheels onednn-devel-cpu-gomp and onednn-cpu-gomp (scripts/setup).
#
# Sets OneDNN_FOUND, OneDNN_VERSION, OneDNN_INCLUDE_DIR, OneDNN_LIBRARY.

set(ONEDNN_ROOT "" CACHE PATH "A folder with oneDNN's include/ and lib/, instead of the system's")

# A changed ONEDNN_ROOT must not leave half of the old answer in the cache.
if(NOT "${ONEDNN_ROOT}" STREQUAL "${MEMFLOOR_ONEDNN_ROOT_USED}")
  unset(OneDNN_INCLUDE_DIR CACHE)
  unset(OneDNN_LIBRARY CACHE)
  set(MEMFLOOR_ONEDNN_ROOT_USED "${ONEDNN_ROOT}" CACHE INTERNAL "The ONEDNN_ROOT last searched")
endif()

if(ONEDNN_ROOT)
  find_path(OneDNN_INCLUDE_DIR oneapi/dnnl/dnnl.hpp HINTS ${ONEDNN_ROOT} PATH_SUFFIXES include
            NO_DEFAULT_PATH)
  find_library(OneDNN_LIBRARY NAMES dnnl libdnnl.so.3 libdnnl.so.2 HINTS ${ONEDNN_ROOT}
               PATH_SUFFIXES lib lib64 NO_DEFAULT_PATH)
else()
  find_path(OneDNN_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
  find_library(OneDNN_LIBRARY NAMES dnnl)
endif()
mark_as_advanced(OneDNN_INCLUDE_DIR OneDNN_LIBRARY)

unset(OneDNN_VERSION)
if(OneDNN_INCLUDE_DIR)
  set(header ${OneDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h)
  if(EXISTS ${header})
    file(STRINGS ${header} lines REGEX "#define DNNL_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
    foreach(part MAJOR MINOR PATCH)
      string(REGEX REPLACE ".*DNNL_VERSION_${part} +([0-9]+).*" "\\1" ${part} "${lines}")
    endforeach()
    set(OneDNN_VERSION ${MAJOR}.${MINOR}.${PATCH})
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OneDNN
  REQUIRED_VARS OneDNN_LIBRARY OneDNN_INCLUDE_DIR VERSION_VAR OneDNN_VERSION
  REASON_FAILURE_MESSAGE "run scripts/setup, or give -DONEDNN_ROOT=a folder with include/ and lib/")

if(OneDNN_FOUND AND NOT TARGET dnnl::dnnl)
  add_library(dnnl::dnnl SHARED IMPORTED)
  set_target_properties(dnnl::dnnl PROPERTIES
    IMPORTED_LOCATION ${OneDNN_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${OneDNN_INCLUDE_DIR})
  # A library outside the system's folders is found again at run time by CMake's build rpath.
endif()
