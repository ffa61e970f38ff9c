// Packs segments into a third of their bytes once they are no longer written (docs/decisions/0028),
// in the background at the lowest priority.
//
// The new file gets another name until it is complete and synced, and then replaces the old one, so
// that after a crash one of the two files exists. A segment with missing or damaged entries stays
// unchanged.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/status.h"
#include "base/framed_log.h"
#include "base/mutex.h"
#include "server/journal/segments.h"

namespace plumbline::server {

// Changes entries of segments while they are rewritten.
class SegmentEditor {
 public:
  virtual ~SegmentEditor() = default;
  // Returns true if the segment must be changed. `next` is the segment after it.
  virtual bool Due(const Segment& segment, const Segment& next) = 0;
  // Called before the segment's entries.
  virtual void Begin() = 0;
  // Changes an entry, as RewriteOptions::edit.
  virtual bool Edit(FrameType type, std::string_view payload, std::string* instead) = 0;
  // Called when the segment was replaced, or (false) cannot be changed: it is not due again.
  virtual void Done(const Segment& segment, bool replaced) = 0;
};

struct PackerOptions {
  std::string directory;  // of the journal
  std::string tool_version;
  bool pack = true;  // false: packed segments are unpacked
  // Returns the entry up to which a restart needs no segments. Only segments that end there are
  // packed.
  std::function<uint64_t()> settled;
  // while it returns true, other work needs the disk, and the packer waits
  std::function<bool()> busy = [] { return false; };
  std::chrono::nanoseconds period = std::chrono::minutes(1);  // between two checks
  // Changes entries of rewritten segments; null: none. Called on the packer's thread.
  std::shared_ptr<SegmentEditor> editor;
};

// Thread-safe, except construction and destruction.
class SegmentPacker {
 public:
  // `files` is held while a segment is replaced. Code that removes segments must hold it, too. It
  // must outlive the packer. The constructor removes unfinished files of an earlier process.
  SegmentPacker(PackerOptions options, Mutex* files);
  ~SegmentPacker();

  // Starts the thread, at the lowest priority.
  void Start();
  void Stop();
  // Makes the packer check soon, because settled() may have changed.
  void Wake();

  // Runs one round on the calling thread. Returns the number of segments rewritten. Must not be
  // called after Start.
  int Round();

 private:
  using Clock = std::chrono::steady_clock;

  void Loop();
  bool Due(const Segment& segment);
  bool WriteAgain(const Segment& segment, uint64_t last_entry, bool edit);
  absl::Status Replace(const Segment& segment, uint64_t size, bool edit);
  bool WaitWhileBusy();
  bool Wait(std::chrono::nanoseconds time);

  const PackerOptions options_;
  Mutex* const files_;
  std::set<uint64_t> done_;         // segments that are done, or must stay unchanged
  Clock::time_point not_before_{};  // time of the next try after the disk refused the last one
  Mutex mutex_;
  CondVar wake_;
  bool woken_ PLUMB_GUARDED_BY(mutex_) = true;
  std::atomic<bool> stopped_{false};
  std::thread thread_;
};

}  // namespace plumbline::server
