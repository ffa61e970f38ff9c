// A thread that has time.
#pragma once

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace plumbline::server {

// The calling thread takes the processor and the disk only when nobody else wants them. Not
// SCHED_IDLE: a thread that gets nothing at all may hold a lock of the allocator meanwhile.
inline void GiveWay() {
  constexpr int kProcess = 1, kIdleClass = 3 << 13;  // of linux/ioprio.h
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 19);
  (void)syscall(SYS_ioprio_set, kProcess, 0, kIdleClass);
}

}  // namespace plumbline::server
