#include "agent/facade/loader.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "agent/facade/copies.h"
#include "agent/facade/error.h"
#include "agent/facade/process.h"

extern "C" {
plumbline_allocator_t plumbline_process_allocator;
}

namespace plumbline::facade {
namespace {

constexpr char kLibrary[] = "libplumbline_agent.so";
constexpr size_t kPathBytes = 4096;

enum class State { kNotTried, kReady, kUnavailable };

// Written under LoadLock, read after an acquire load of g_state.
State g_state = State::kNotTried;
const plumbline_agent_table_t* g_table = nullptr;
plumbline_error_t g_reason;

State LoadState() {
  State state;
  __atomic_load(&g_state, &state, __ATOMIC_ACQUIRE);
  return state;
}
void StoreState(State s) { __atomic_store(&g_state, &s, __ATOMIC_RELEASE); }

template <typename F>
void Find(void* program, const char* name, F* slot) {
  *slot = reinterpret_cast<F>(dlsym(program, name));
}

// Uses the main program's scope, not ours: the façade itself may have been opened with deep
// binding.
bool FillProcessAllocator() {
  void* program = dlopen(nullptr, RTLD_LAZY);
  if (program == nullptr) return false;
  plumbline_allocator_t a;
  Find(program, "malloc", &a.malloc_fn);
  Find(program, "free", &a.free_fn);
  Find(program, "calloc", &a.calloc_fn);
  Find(program, "realloc", &a.realloc_fn);
  Find(program, "memalign", &a.memalign_fn);
  Find(program, "posix_memalign", &a.posix_memalign_fn);
  Find(program, "aligned_alloc", &a.aligned_alloc_fn);
  Find(program, "valloc", &a.valloc_fn);
  Find(program, "pvalloc", &a.pvalloc_fn);
  Find(program, "malloc_usable_size", &a.malloc_usable_size_fn);
  const bool complete = a.malloc_fn && a.free_fn && a.calloc_fn && a.realloc_fn && a.memalign_fn &&
                        a.posix_memalign_fn && a.aligned_alloc_fn && a.valloc_fn && a.pvalloc_fn &&
                        a.malloc_usable_size_fn;
  if (complete) plumbline_process_allocator = a;
  return complete;
}

// Address and thread sanitizers abort the process on RTLD_DEEPBIND.
const char* SanitizerInProcess() {
  struct {
    const char* symbol;
    const char* name;
  } constexpr kRuntimes[] = {{"__asan_init", "AddressSanitizer"},
                             {"__tsan_init", "ThreadSanitizer"},
                             {"__msan_init", "MemorySanitizer"},
                             {"__hwasan_init", "HWAddressSanitizer"}};
  for (const auto& runtime : kRuntimes) {
    if (dlsym(RTLD_DEFAULT, runtime.symbol) != nullptr) return runtime.name;
  }
  return nullptr;
}

// Sets `out` to `path` with its last component replaced by the agent's; returns false if it does
// not fit.
bool Sibling(const char* path, char* out) {
  const char* slash = strrchr(path, '/');
  const int prefix = slash != nullptr ? static_cast<int>(slash - path + 1) : 0;
  const int n = snprintf(out, kPathBytes, "%.*s%s", prefix, path, kLibrary);
  return n > 0 && static_cast<size_t>(n) < kPathBytes;
}

void* Open(const char* path) {
  return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND | RTLD_NODELETE);
}

void Reason(const char* text) { snprintf(g_reason.text, sizeof(g_reason.text), "%s", text); }

void Reason(const char* what, const char* detail) {
  snprintf(g_reason.text, sizeof(g_reason.text), "%s: %s", what, detail != nullptr ? detail : "?");
}

// Opens the agent next to libplumbline.so, or next to the target of a symbolic link to it.
void* OpenNextTo() {
  Dl_info self;
  char path[kPathBytes];
  if (dladdr(&plumbline_process_allocator, &self) == 0 || self.dli_fname == nullptr ||
      !Sibling(self.dli_fname, path)) {
    Reason("the folder of libplumbline.so is not known, so libplumbline_agent.so was not found");
    return nullptr;
  }
  if (void* handle = Open(path)) return handle;
  Reason("the agent library cannot be loaded", dlerror());
  char real[kPathBytes];
  if (realpath(self.dli_fname, real) != nullptr && strcmp(real, self.dli_fname) != 0 &&
      Sibling(real, path)) {
    return Open(path);
  }
  return nullptr;
}

// Opens the agent of another copy that is already loaded; else the one that the environment names;
// else ours.
void* OpenAgent() {
  char path[kPathBytes];
  if (AgentInProcess(path, sizeof(path))) return Open(path);
  const char* chosen = secure_getenv("PLUMBLINE_AGENT_LIBRARY");
  if (chosen == nullptr || *chosen == '\0') return OpenNextTo();
  void* handle = Open(chosen);
  if (handle == nullptr) Reason("PLUMBLINE_AGENT_LIBRARY cannot be loaded", dlerror());
  return handle;
}

// Returns true if the table has this façade's ABI; otherwise g_reason states what was found.
bool Acceptable(const plumbline_agent_table_t* table) {
  if (table->version == PLUMBLINE_AGENT_TABLE_VERSION &&
      table->size >= PLUMBLINE_AGENT_TABLE_LEAST) {
    return true;
  }
  snprintf(g_reason.text, sizeof(g_reason.text),
           "the agent library has table version %u of %u bytes; expected version %u of at least "
           "%zu bytes: libplumbline.so and the libplumbline_agent.so in the process are from "
           "different builds",
           table->version, table->size, PLUMBLINE_AGENT_TABLE_VERSION, PLUMBLINE_AGENT_TABLE_LEAST);
  return false;
}

// The order matters: the allocator of the agent's libraries must be set before they are opened.
bool Load() {
  if (const char* sanitizer = SanitizerInProcess()) {
    snprintf(g_reason.text, sizeof(g_reason.text),
             "the process runs under %s, which prevents opening the agent library; link the agent "
             "and call plumbline_link_agent",
             sanitizer);
    return false;
  }
  if (!FillProcessAllocator()) {
    Reason("the process's allocator was not found (malloc, ..., malloc_usable_size)");
    return false;
  }
  ShareAllocator(plumbline_process_allocator);
  void* handle = OpenAgent();
  if (handle == nullptr) return false;
  const auto* table =
      static_cast<const plumbline_agent_table_t*>(dlsym(handle, PLUMBLINE_AGENT_TABLE_SYMBOL));
  if (table == nullptr) {
    Reason("the agent library has no " PLUMBLINE_AGENT_TABLE_SYMBOL, dlerror());
    return false;
  }
  if (!Acceptable(table)) return false;
  g_table = table;
  return true;
}

void LoadOnce() {
  LoadLock lock;
  if (LoadState() != State::kNotTried) return;
  if (Load()) {
    WatchExit();
    StoreState(State::kReady);
    return;
  }
  StoreState(State::kUnavailable);
  Warn("%s. Nothing is observed; the trainer continues.", g_reason.text);
}

}  // namespace

const plumbline_agent_table_t* Agent() {
  if (LoadState() == State::kNotTried) LoadOnce();
  if (LoadState() == State::kReady) return g_table;
  *ThreadError() = g_reason;
  return nullptr;
}

}  // namespace plumbline::facade

extern "C" plumbline_status_t plumbline_link_agent(const plumbline_agent_table_t* table) {
  using namespace plumbline::facade;
  if (table == nullptr) return Fail(PLUMBLINE_INVALID_ARGUMENT, "link_agent: table is NULL");
  LoadLock lock;
  if (LoadState() != State::kNotTried) {
    return Fail(PLUMBLINE_FAILED_PRECONDITION, "link_agent: an agent is already in use");
  }
  if (!Acceptable(table)) return Fail(PLUMBLINE_INVALID_ARGUMENT, "%s", g_reason.text);
  g_table = table;
  WatchExit();
  StoreState(State::kReady);
  return PLUMBLINE_OK;
}
