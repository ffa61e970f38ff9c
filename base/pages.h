// Memory of large buffers, requested from the kernel at once.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "base/parallel.h"

namespace plumbline {

// Backs the whole pages of [data, data + bytes) with memory, by several threads if that is faster:
// half the cost of a fault at the first touch of each page. The contents do not change. A hint:
// does nothing on kernels without it (before Linux 5.14).
inline void PopulatePages(void* data, uint64_t bytes) {
#if defined(MADV_POPULATE_WRITE)
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t first = (reinterpret_cast<uintptr_t>(data) + page - 1) / page;
  const uintptr_t last = (reinterpret_cast<uintptr_t>(data) + bytes) / page;
  if (last <= first) return;
  const auto pages = static_cast<int64_t>(last - first);
  ParallelParts(pages, ThreadsFor(bytes), [&](int, int64_t from, int64_t to) {
    void* start = reinterpret_cast<void*>((first + static_cast<uintptr_t>(from)) * page);
    (void)madvise(start, static_cast<size_t>(to - from) * page, MADV_POPULATE_WRITE);
  });
#endif
}

}  // namespace plumbline
