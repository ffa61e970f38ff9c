// Makes plumbd die, or run out of memory, while it judges a run: by LD_PRELOAD. PLUMB_JUDGE_FAULT
// names a file whose content is the fault: "die RUN" (like a kill for lack of memory), "crash RUN"
// (SIGSEGV), "memory RUN" (each allocation fails), or anything else for none.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>

#include "server/judge/judging_mark.h"

namespace plumbline::test {
namespace {

std::atomic<const server::JudgingMarkPage*> page_of_process{nullptr};

bool EndsIn(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// Records the mapping of the file that marks the judged runs.
void NoteMapping(void* address, int fd, int flags) {
  if (address == MAP_FAILED || fd < 0 || (flags & MAP_SHARED) == 0) return;
  char link[32], path[4096];
  int at = 0;
  for (const char c : std::string_view("/proc/self/fd/")) link[at++] = c;
  char digits[12];
  int count = 0;
  do digits[count++] = static_cast<char>('0' + fd % 10);
  while ((fd /= 10) > 0);
  while (count > 0) link[at++] = digits[--count];
  link[at] = '\0';
  const ssize_t n = readlink(link, path, sizeof(path));
  if (n > 0 && EndsIn({path, static_cast<size_t>(n)}, "/judging"))
    page_of_process = static_cast<const server::JudgingMarkPage*>(address);
}

void* Map(void* address, size_t size, int protection, int flags, int fd, off_t offset) {
  auto* mapped =
      reinterpret_cast<void*>(syscall(SYS_mmap, address, size, protection, flags, fd, offset));
  NoteMapping(mapped, fd, flags);
  return mapped;
}

// Returns the run that this thread judges; null if there is none.
const server::JudgingMarkPage::Place* PlaceOfThread() {
  const server::JudgingMarkPage* page = page_of_process;
  if (page == nullptr) return nullptr;
  uint32_t thread = 0;
  for (const auto& place : page->places) {
    if (place.busy != 1) continue;
    if (thread == 0) thread = static_cast<uint32_t>(syscall(SYS_gettid));
    if (place.thread == thread) return &place;
  }
  return nullptr;
}

void FailIfRequested() {
  const server::JudgingMarkPage::Place* page = PlaceOfThread();
  if (page == nullptr) return;
  const char* path = getenv("PLUMB_JUDGE_FAULT");
  if (path == nullptr) return;
  const auto fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC));
  if (fd < 0) return;
  char text[256] = {};
  const long n = syscall(SYS_read, fd, text, sizeof(text) - 1);
  syscall(SYS_close, fd);
  const std::string_view fault(text, n > 0 ? static_cast<size_t>(n) : 0);
  const std::string_view run(page->run, page->length);
  const size_t space = fault.find(' ');
  if (space == std::string_view::npos || fault.substr(space + 1) != run) return;
  if (fault.substr(0, space) == "die") kill(getpid(), SIGKILL);
  if (fault.substr(0, space) == "crash") raise(SIGSEGV);
  if (fault.substr(0, space) == "memory") throw std::bad_alloc();
}

}  // namespace
}  // namespace plumbline::test

#pragma GCC visibility push(default)
void* operator new(size_t size) {
  plumbline::test::FailIfRequested();
  static auto* const next = reinterpret_cast<void* (*)(size_t)>(dlsym(RTLD_NEXT, "_Znwm"));
  return next(size);
}
extern "C" {
void* mmap(void* address, size_t size, int protection, int flags, int fd, off_t offset) noexcept {
  return plumbline::test::Map(address, size, protection, flags, fd, offset);
}
void* mmap64(void* address, size_t size, int protection, int flags, int fd,
             off64_t offset) noexcept {
  return plumbline::test::Map(address, size, protection, flags, fd, offset);
}
}  // extern "C"
#pragma GCC visibility pop
