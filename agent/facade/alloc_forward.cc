// Compiled into libplumbline_agent.so, never into the façade: the malloc functions that every
// library loaded with the agent binds to, forwarded to the process's allocator (see agent_table.h).
//
// If the agent was not opened by the façade (the table is empty), libc's own allocator is used, so
// that the agent library also works then.
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "agent/agent_table.h"

// glibc's allocator under names that no library replaces.
extern "C" {
void* __libc_malloc(size_t);
void __libc_free(void*);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void* __libc_valloc(size_t);
void* __libc_pvalloc(size_t);
}

namespace {

bool IsPowerOfTwo(size_t n) { return n != 0 && (n & (n - 1)) == 0; }

}  // namespace

extern "C" {

PLUMBLINE_API void* malloc(size_t n) {
  return plumbline_process_allocator.malloc_fn != nullptr ? plumbline_process_allocator.malloc_fn(n)
                                                          : __libc_malloc(n);
}

PLUMBLINE_API void free(void* p) {
  if (plumbline_process_allocator.free_fn != nullptr) {
    plumbline_process_allocator.free_fn(p);
  } else {
    __libc_free(p);
  }
}

PLUMBLINE_API void* calloc(size_t count, size_t size) {
  return plumbline_process_allocator.calloc_fn != nullptr
             ? plumbline_process_allocator.calloc_fn(count, size)
             : __libc_calloc(count, size);
}

PLUMBLINE_API void* realloc(void* p, size_t n) {
  return plumbline_process_allocator.realloc_fn != nullptr
             ? plumbline_process_allocator.realloc_fn(p, n)
             : __libc_realloc(p, n);
}

PLUMBLINE_API void* memalign(size_t alignment, size_t n) {
  return plumbline_process_allocator.memalign_fn != nullptr
             ? plumbline_process_allocator.memalign_fn(alignment, n)
             : __libc_memalign(alignment, n);
}

PLUMBLINE_API int posix_memalign(void** out, size_t alignment, size_t n) {
  if (plumbline_process_allocator.posix_memalign_fn != nullptr)
    return plumbline_process_allocator.posix_memalign_fn(out, alignment, n);
  if (alignment % sizeof(void*) != 0 || !IsPowerOfTwo(alignment)) return EINVAL;
  void* p = __libc_memalign(alignment, n);
  if (p == nullptr) return ENOMEM;
  *out = p;
  return 0;
}

PLUMBLINE_API void* aligned_alloc(size_t alignment, size_t n) {
  return plumbline_process_allocator.aligned_alloc_fn != nullptr
             ? plumbline_process_allocator.aligned_alloc_fn(alignment, n)
             : __libc_memalign(alignment, n);
}

PLUMBLINE_API void* valloc(size_t n) {
  return plumbline_process_allocator.valloc_fn != nullptr ? plumbline_process_allocator.valloc_fn(n)
                                                          : __libc_valloc(n);
}

PLUMBLINE_API void* pvalloc(size_t n) {
  return plumbline_process_allocator.pvalloc_fn != nullptr
             ? plumbline_process_allocator.pvalloc_fn(n)
             : __libc_pvalloc(n);
}

// libc has no second name for this function. 0 is a correct answer: it means that no extra space is
// known.
PLUMBLINE_API size_t malloc_usable_size(void* p) {
  return plumbline_process_allocator.malloc_usable_size_fn != nullptr
             ? plumbline_process_allocator.malloc_usable_size_fn(p)
             : 0;
}

}  // extern "C"
