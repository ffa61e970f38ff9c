#include "agent/facade/process.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace plumbline::facade {
namespace {

ProcessHooks g_hooks;
pthread_once_t g_once = PTHREAD_ONCE_INIT;
pthread_mutex_t g_load_mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

// A page that the kernel zeroes in a child (getpid() per call would cost a system call, and
// pthread_atfork does not see a bare clone). 1 in the process that opened us.
int* g_alive_page = nullptr;
pid_t g_pid = 0;

void AtForkPrepare() { pthread_mutex_lock(&g_load_mutex); }
void AtForkParent() { pthread_mutex_unlock(&g_load_mutex); }
void AtForkChild() {
  // Does not unlock: glibc compares the owner's thread id, which differs in the child.
  const pthread_mutex_t fresh = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
  memcpy(&g_load_mutex, &fresh, sizeof(fresh));
  if (g_hooks.in_child != nullptr) g_hooks.in_child();
}

int g_exit_status = 0;

void AtExit() {
  if (!InForkedChild() && g_hooks.at_exit != nullptr) g_hooks.at_exit(g_exit_status);
}

void NoteStatus(int status, void* /*unused*/) { g_exit_status = status; }

int* MakeAlivePage() {
  const long page = sysconf(_SC_PAGESIZE);
  const size_t bytes = page > 0 ? static_cast<size_t>(page) : 4096;
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  if (madvise(p, bytes, MADV_WIPEONFORK) != 0) {  // before Linux 4.14
    munmap(p, bytes);
    return nullptr;
  }
  *static_cast<int*>(p) = 1;
  return static_cast<int*>(p);
}

void Watch() {
  g_pid = getpid();
  g_alive_page = MakeAlivePage();
  pthread_atfork(AtForkPrepare, AtForkParent, AtForkChild);
}

}  // namespace

void WatchForks(const ProcessHooks& hooks) {
  if (g_hooks.in_child == nullptr) g_hooks = hooks;
  pthread_once(&g_once, Watch);
}

bool InForkedChild() {
  if (g_alive_page != nullptr) return __atomic_load_n(g_alive_page, __ATOMIC_RELAXED) == 0;
  return g_pid != 0 && getpid() != g_pid;
}

LoadLock::LoadLock() { pthread_mutex_lock(&g_load_mutex); }
LoadLock::~LoadLock() { pthread_mutex_unlock(&g_load_mutex); }

void WatchExit() {
  atexit(AtExit);
  on_exit(NoteStatus, nullptr);  // runs before AtExit, because handlers run in reverse order of
                                 // registration
}

bool DisabledByEnvironment() {
  const char* value = getenv("PLUMBLINE_DISABLE");
  return value != nullptr && *value != '\0' && strcmp(value, "0") != 0;
}

}  // namespace plumbline::facade
