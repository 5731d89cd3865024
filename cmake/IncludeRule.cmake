# Which folder may include which (docs: the table in check_includes.py). Checked at every build,
# before anything is compiled; tests/CMakeLists.txt registers the same check as a test.
set(MEMFLOOR_INCLUDE_RULE ${Python3_EXECUTABLE} -B ${CMAKE_SOURCE_DIR}/cmake/check_includes.py
    --root ${CMAKE_SOURCE_DIR})
add_custom_target(memfloor_include_rule ALL COMMAND ${MEMFLOOR_INCLUDE_RULE} --quiet
                  COMMENT "Checking which folder includes which" VERBATIM)
