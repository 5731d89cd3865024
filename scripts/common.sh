# Shared by the shell scripts of this folder: source it after setting `root`. Not a command.
# shellcheck shell=bash disable=SC2154

onednn_from_pypi="$root/build-deps/onednn"  # where scripts/setup unpacks it, if it must

fail() {
  echo "${0##*/}: $*" >&2
  exit 1
}

# Prints the comment block at the top of the calling script, which is its help.
print_help() {
  sed -n '2,/^[^#]/{/^#/{s/^# \{0,1\}//;p;};}' "$0"
}

jobs() {
  nproc 2>/dev/null || echo 2
}

# build_preset PRESET BUILD_DIR [CMAKE ARGUMENTS...]: configures and builds one preset.
build_preset() {
  local preset=$1 build_dir=$2
  shift 2
  local arguments=()
  if [ ! -e "$build_dir/CMakeCache.txt" ] && [ -z "${CMAKE_GENERATOR:-}" ] &&
    command -v ninja >/dev/null; then
    arguments+=(-G Ninja)
  fi
  if [ -e "$onednn_from_pypi/include" ]; then
    arguments+=("-DONEDNN_ROOT=$onednn_from_pypi")
  elif grep -qs "^ONEDNN_ROOT:PATH=$onednn_from_pypi\$" "$build_dir/CMakeCache.txt"; then
    arguments+=(-DONEDNN_ROOT=)  # it was there and is gone: back to the system's
  fi
  mkdir -p "$build_dir"
  command -v cmake >/dev/null || fail "cmake is missing; run scripts/setup first."
  if ! (cd "$root" && cmake --preset "$preset" "${arguments[@]}" "$@") \
    >"$build_dir/configure.log" 2>&1; then
    cat "$build_dir/configure.log" >&2
    fail "cmake could not configure the preset '$preset' (its output is above);" \
      "if something is missing, run scripts/setup."
  fi
  cmake --build "$build_dir" --parallel "$(jobs)" ||
    fail "the build of the preset '$preset' failed; the first error is above."
}
