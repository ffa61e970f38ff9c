// The end of the process: the trainer's report, and a goodbye at SIGTERM.
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "agent/facade/error.h"
#include "agent/facade/process.h"
#include "agent/facade/run.h"
#include "agent/facade/sized.h"

namespace plumbline::facade {
namespace {

constexpr uint32_t kSigtermTimeoutMs = 3000;  // of the 10 to 30 s that schedulers allow

pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;
bool g_watching = false;  // guarded by the mutex
sem_t g_terminated;

void OnSigterm(int signal);

// Restores the default action; returns false if the trainer has installed its own handler.
bool BackToDefault() {
  struct sigaction now;
  if (sigaction(SIGTERM, nullptr, &now) != 0 || now.sa_handler != OnSigterm) return false;
  struct sigaction by_default;
  memset(&by_default, 0, sizeof(by_default));
  by_default.sa_handler = SIG_DFL;
  sigaction(SIGTERM, &by_default, nullptr);
  return true;
}

// Async-signal-safe. In a forked child no thread waits: applies the signal's default action at
// once.
void OnSigterm(int signal) {
  const int saved = errno;
  if (!InForkedChild()) {
    sem_post(&g_terminated);
  } else if (BackToDefault()) {
    raise(signal);  // delivered when this handler returns
  }
  errno = saved;
}

// Runs on its own thread: the trainer's threads may be blocked, for example in a collective.
void* SendGoodbye(void* /*unused*/) {
  while (sem_wait(&g_terminated) != 0) {
  }
  plumbline_ending_t ending = PLUMBLINE_ENDING_INIT;
  ending.how = PLUMBLINE_ENDING_SIGNAL;
  ending.type = "SIGTERM";
  ending.code = SIGTERM;
  CloseAllRuns(&ending, kSigtermTimeoutMs);
  BackToDefault();
  kill(getpid(), SIGTERM);
  return nullptr;
}

// Our threads block all signals.
bool StartWaiting() {
  if (sem_init(&g_terminated, 0, 0) != 0) return false;
  sigset_t all, before;
  sigfillset(&all);
  if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return false;
  pthread_attr_t attributes;
  pthread_t thread;
  bool started = pthread_attr_init(&attributes) == 0;
  if (started) {
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    started = pthread_create(&thread, &attributes, SendGoodbye, nullptr) == 0;
    pthread_attr_destroy(&attributes);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

}  // namespace
}  // namespace plumbline::facade

using namespace plumbline::facade;

extern "C" {

plumbline_status_t plumbline_note_ending(plumbline_run_t* handle, const plumbline_ending_t* given) {
  ErrnoKeeper keeper;
  if (handle == nullptr) return Fail(PLUMBLINE_INVALID_ARGUMENT, "note_ending: run is NULL");
  if (InForkedChild()) return PLUMBLINE_DISABLED;
  plumbline_ending_t ending = PLUMBLINE_ENDING_INIT;
  if (given != nullptr && !CopySized("note_ending: ending", given, &ending)) {
    return PLUMBLINE_INVALID_ARGUMENT;
  }
  if (ending.how < 0 || ending.how > PLUMBLINE_ENDING_UNWINDING) {
    return Fail(PLUMBLINE_INVALID_ARGUMENT,
                "note_ending: how is %d; expected one of PLUMBLINE_ENDING_*, or 0 with a thread",
                ending.how);
  }
  return NoteEnding(FromHandle(handle), given != nullptr ? &ending : nullptr);
}

plumbline_status_t plumbline_watch_sigterm(void) {
  ErrnoKeeper keeper;
  if (InForkedChild() || DisabledByEnvironment()) return PLUMBLINE_DISABLED;
  WatchProcess();
  MutexLock lock(&g_mutex);
  struct sigaction now;
  if (sigaction(SIGTERM, nullptr, &now) != 0) {
    return Fail(PLUMBLINE_INTERNAL, "watch_sigterm: %s", strerror(errno));
  }
  const bool info = (now.sa_flags & SA_SIGINFO) != 0;
  if (!info && now.sa_handler == OnSigterm) return PLUMBLINE_OK;
  if (info || now.sa_handler != SIG_DFL) {
    return Fail(PLUMBLINE_FAILED_PRECONDITION,
                "watch_sigterm: SIGTERM has a handler, or is ignored; expected its default action");
  }
  if (!g_watching && !(g_watching = StartWaiting())) {
    return Fail(PLUMBLINE_RESOURCE_EXHAUSTED,
                "watch_sigterm: the system could not create a thread");
  }
  struct sigaction ours;
  memset(&ours, 0, sizeof(ours));
  ours.sa_handler = OnSigterm;
  ours.sa_flags = SA_RESTART;  // so that the trainer's calls are not interrupted
  sigemptyset(&ours.sa_mask);
  sigaction(SIGTERM, &ours, nullptr);
  return PLUMBLINE_OK;
}

}  // extern "C"
