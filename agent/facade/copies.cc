#include "agent/facade/copies.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

namespace plumbline::facade {
namespace {

constexpr char kFacade[] = "libplumbline.so";
constexpr char kAgent[] = "libplumbline_agent.so";
constexpr size_t kMostCopies = 16;
constexpr size_t kPathBytes = 4096;

bool IsCalled(const char* path, const char* name) {
  const char* slash = strrchr(path, '/');
  return strcmp(slash != nullptr ? slash + 1 : path, name) == 0;
}

struct Copies {
  const char* name;
  size_t count;
  char paths[kMostCopies][kPathBytes];
};

// Used under LoadLock; too large for the stack of a small thread.
Copies g_copies;

int Keep(dl_phdr_info* object, size_t /*size*/, void* /*data*/) {
  if (object->dlpi_name == nullptr || !IsCalled(object->dlpi_name, g_copies.name)) return 0;
  if (g_copies.count == kMostCopies) return 1;
  const int n = snprintf(g_copies.paths[g_copies.count], kPathBytes, "%s", object->dlpi_name);
  if (n > 0 && static_cast<size_t>(n) < kPathBytes) ++g_copies.count;
  return 0;
}

// Finds the libraries of that name in the process; nothing may be opened during the enumeration.
void Find(const char* name) {
  g_copies.name = name;
  g_copies.count = 0;
  dl_iterate_phdr(Keep, nullptr);
}

}  // namespace

bool AgentInProcess(char* path, size_t bytes) {
  Find(kAgent);
  if (g_copies.count == 0) return false;
  return static_cast<size_t>(snprintf(path, bytes, "%s", g_copies.paths[0])) < bytes;
}

void ShareAllocator(const plumbline_allocator_t& allocator) {
  Find(kFacade);
  for (size_t i = 0; i < g_copies.count; ++i) {
    void* copy = dlopen(g_copies.paths[i], RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (copy == nullptr) continue;
    auto* table = static_cast<plumbline_allocator_t*>(dlsym(copy, "plumbline_process_allocator"));
    if (table != nullptr && table->malloc_fn == nullptr) *table = allocator;
    dlclose(copy);
  }
}

}  // namespace plumbline::facade
