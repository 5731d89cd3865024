// A memfloor command in a process of its own: whatever becomes of it, a crash, a kill or too little
// memory, costs nothing but itself.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace memfloor {

/// Starts this very program, whatever lies at its path by now. The child is in a process group of
/// its own, so that the terminal's Ctrl-C reaches it only through send(); it is killed when this
/// process ends, however that ends, and is what the system kills first when memory runs out.
class ChildProcess {
 public:
  /// The file name under which the child finds `input`.
  static const char* const kInput;

  /// `arguments` without the program's name. Standard output is discarded. Throws Error where there
  /// is no process to be had.
  ChildProcess(const std::vector<std::string>& arguments, const std::string& input);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  /// Kills it, if it still runs, and waits.
  ~ChildProcess();

  /// Becomes readable when the child says something or ends.
  int descriptor() const { return errors_; }
  /// Takes what it has written to standard error, without waiting. False once it has ended.
  bool read();
  void send(int signal) const;

  /// Its last finished line on standard error; empty: none yet.
  std::string last_line() const;
  /// Nothing: it succeeded. Else why it did not, one sentence. Only after read() returned false.
  std::optional<std::string> failure() const;

 private:
  void close_and_wait();

  pid_t process_ = -1;  // -1: waited for
  int errors_ = -1;     // read end of its standard error
  int status_ = 0;      // as waitpid() has it
  std::string said_;    // the end of what it wrote there
};

}  // namespace memfloor
