#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "audit/commands/commands.h"
#include "audit/render/text_util.h"
#include "command_line/usage.h"

namespace plumbline::audit {
namespace {

bool WriteAll(std::FILE* file, const std::string& text) {
  return std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
}

// Writes in place to a path that is a device, a pipe or a link ("/dev/stdout"): a rename would
// replace it.
bool WriteInPlace(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr) return false;
  const bool written = WriteAll(file, text);
  return std::fclose(file) == 0 && written;
}

bool WriteAndRename(const std::string& path, const std::string& text) {
  const std::string adjacent = path + ".tmp" + std::to_string(getpid());
  if (WriteInPlace(adjacent, text) && std::rename(adjacent.c_str(), path.c_str()) == 0) return true;
  const int error = errno;
  std::remove(adjacent.c_str());
  errno = error;
  return false;
}

bool IsPlain(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return errno == ENOENT;
  return S_ISREG(info.st_mode);
}

}  // namespace

int Fail(const std::string& message) {
  std::fprintf(stderr, "plumb: %s\n", Printable(message).c_str());
  return kExitError;
}

bool OutputsAreOne() {
  struct stat output {
  }, errors{};
  return fstat(STDOUT_FILENO, &output) == 0 && fstat(STDERR_FILENO, &errors) == 0 &&
         output.st_dev == errors.st_dev && output.st_ino == errors.st_ino;
}

bool WriteOutput(const std::string& path, const std::string& text) {
  const bool written = path.empty()    ? WriteAll(stdout, text)
                       : IsPlain(path) ? WriteAndRename(path, text)
                                       : WriteInPlace(path, text);
  // If the reader closed the pipe (plumb audit X | head -1), the status is that of the report.
  if (!written && path.empty() && errno == EPIPE) return true;
  if (!written) {
    Fail((path.empty() ? std::string("standard output") : path) +
         ": expected to write the output, found: " + std::strerror(errno));
  }
  return written;
}

void AddReportOptions(CLI::App* command, const std::vector<std::string>& formats,
                      std::string* format, std::string* output) {
  command->add_option("--format", *format, "Output format")
      ->check(OneOf(formats))
      ->capture_default_str();
  command->add_option("--output", *output, "Write the report to FILE instead of standard output")
      ->type_name("FILE");
}

}  // namespace plumbline::audit
