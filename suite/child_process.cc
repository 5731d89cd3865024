#include "suite/child_process.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace memfloor {
namespace {

constexpr std::size_t kKeptBytes = 16384;  // of what a child says
constexpr int kInputDescriptor = 3;

[[noreturn]] void fail(const char* what) {
  throw Error(concat("cannot start a process of the suite (", what, "): ", std::strerror(errno),
                     "; end other programs, or raise the system's limits"));
}

// Closed by exec(), and above the numbers that the child gives them.
int moved_up(int descriptor) {
  const int moved = fcntl(descriptor, F_DUPFD_CLOEXEC, kInputDescriptor + 1);
  close(descriptor);
  return moved;
}

int file_in_memory(const std::string& text) {
  const int file = moved_up(memfd_create("memfloor spec", MFD_CLOEXEC));
  if (file < 0) fail("memfd_create");
  if (write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    close(file);
    fail("write");
  }
  lseek(file, 0, SEEK_SET);
  return file;
}

// Between fork() and exec() only calls that are safe there: another thread may hold any lock.
[[noreturn]] void become(char* const* arguments, int input, int errors, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // it ended before the line above
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (const int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC); score >= 0) {
    [[maybe_unused]] const ssize_t ignored = write(score, "1000", 4);
    close(score);
  }
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (dup2(nothing, STDIN_FILENO) >= 0 && dup2(nothing, STDOUT_FILENO) >= 0 &&
      dup2(errors, STDERR_FILENO) >= 0 && dup2(input, kInputDescriptor) >= 0)
    execv("/proc/self/exe", arguments);
  _exit(127);
}

}  // namespace

const char* const ChildProcess::kInput = "/proc/self/fd/3";
static_assert(kInputDescriptor == 3, "as in kInput");

ChildProcess::ChildProcess(const std::vector<std::string>& arguments, const std::string& input) {
  std::vector<std::string> words{"memfloor"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);

  const int file = file_in_memory(input);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    close(file);
    fail("pipe");
  }
  errors_ = moved_up(ends[0]);
  const int theirs = moved_up(ends[1]);
  const pid_t parent = getpid();
  process_ = fork();
  if (process_ == 0) become(pointers.data(), file, theirs, parent);
  const int error = errno;
  close(theirs);
  close(file);
  if (process_ < 0) {
    close(errors_);
    errno = error;
    fail("fork");
  }
  fcntl(errors_, F_SETFL, O_NONBLOCK);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept { *this = std::move(other); }

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(process_, other.process_);
  std::swap(errors_, other.errors_);
  std::swap(status_, other.status_);
  std::swap(said_, other.said_);
  return *this;
}

ChildProcess::~ChildProcess() {
  send(SIGKILL);
  close_and_wait();
}

void ChildProcess::close_and_wait() {
  if (errors_ >= 0) close(std::exchange(errors_, -1));
  while (process_ > 0 && waitpid(process_, &status_, 0) < 0 && errno == EINTR) {
  }
  process_ = -1;
}

bool ChildProcess::read() {
  char piece[4096];
  while (true) {
    const ssize_t bytes = ::read(errors_, piece, sizeof piece);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && errno == EAGAIN) return true;
    if (bytes <= 0) break;  // its end of the pipe is closed: it has ended
    said_.append(piece, static_cast<std::size_t>(bytes));
    if (said_.size() > 2 * kKeptBytes) said_.erase(0, said_.size() - kKeptBytes);
  }
  close_and_wait();
  return false;
}

void ChildProcess::send(int signal) const {
  if (process_ > 0) kill(process_, signal);
}

std::string ChildProcess::last_line() const {
  const std::size_t end = said_.rfind('\n');
  if (end == std::string::npos || end == 0) return {};
  const std::size_t before = said_.rfind('\n', end - 1);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  return said_.substr(begin, end - begin);
}

std::optional<std::string> ChildProcess::failure() const {
  if (WIFEXITED(status_) && WEXITSTATUS(status_) == 0) return std::nullopt;
  // A refusal is its last sentence; what a crashed library says has no such beginning.
  constexpr std::string_view kOurs = "memfloor: ";
  const std::string last = last_line();
  if (last.starts_with(kOurs)) return last.substr(kOurs.size());
  const std::string also = last.empty() ? "" : concat("; its last words: ", last);
  if (!WIFSIGNALED(status_))
    return concat("it ended with status ", WEXITSTATUS(status_), " and no reason", also);
  const int signal = WTERMSIG(status_);
  return concat("it was ended by signal ", signal, " (", strsignal(signal), ")",
                signal == SIGKILL ? ", as the system does when memory runs out" : "", also);
}

}  // namespace memfloor
