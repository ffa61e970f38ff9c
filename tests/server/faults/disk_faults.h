// Simulates disk faults. Linked into a test, the calls below replace libc's. The same file as a
// shared object does so in a real plumbd by LD_PRELOAD (then PLUMB_FAULT_FILE names a file whose
// content is the fault: "full", "sync", "write", "fork" (the process cannot be copied) or nothing,
// and a number of seconds that the clock is off).
#pragma once

namespace plumbline::test {

enum class DiskFault {
  kNone,
  kFull,   // writes end with ENOSPC, half of their bytes written
  kSync,   // fdatasync and fsync end with EIO
  kWrite,  // writes end with EIO
};

// Sets the fault of this process. Thread-safe.
void SetDiskFault(DiskFault fault);

// Makes the `nth` call from now on (of those below, and rename; 1: the next) end this process with
// kDiedAtCall; a write first writes half of its bytes. 0: no call does this. Not for several
// threads.
inline constexpr int kDiedAtCall = 77;
void DieAtCall(int nth);

}  // namespace plumbline::test
