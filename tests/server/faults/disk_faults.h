// A disk that refuses. Linked into a test, the calls below stand before libc's; the same file as a
// shared object does it to a real plumbd by LD_PRELOAD (then PLUMB_FAULT_FILE names a file whose
// content is the fault: "full", "sync", "write" or nothing, and a number of seconds that the clock
// is off).
#pragma once

namespace plumbline::test {

enum class DiskFault {
  kNone,
  kFull,   // writes end with ENOSPC, half of their bytes written
  kSync,   // fdatasync and fsync end with EIO
  kWrite,  // writes end with EIO
};

// Of this process. Thread-safe.
void SetDiskFault(DiskFault fault);

// The `nth` call from now on (of those below, and rename; 1: the next) ends this process at once
// with kDiedAtCall instead, a write after half of its bytes. 0: none does. Not for threads.
inline constexpr int kDiedAtCall = 77;
void DieAtCall(int nth);

}  // namespace plumbline::test
