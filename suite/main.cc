#include <csignal>
#include <iostream>

#include "core/error.h"
#include "suite/command_line.h"

int main(int count, char** values) {
  // A file too long for `ulimit -f` is then a failed write with its sentence, like a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return memfloor::run_command(memfloor::parse_command_line({values + 1, values + count}));
  } catch (const memfloor::InputError& error) {
    std::cerr << "memfloor: " << error.what() << std::endl;
    return 2;
  } catch (const std::bad_alloc&) {
    std::cerr << "memfloor: the machine has not enough memory for this run; choose a leaner spec "
                 "(memfloor predict shows what one needs)"
              << std::endl;
  } catch (const std::exception& error) {
    std::cerr << "memfloor: " << error.what() << std::endl;
  }
  return 1;
}
