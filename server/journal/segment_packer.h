// Writes segments again in a third of their bytes once nobody writes to them any more
// (docs/decisions/0028), beside everything else and after everything else.
//
// The new file stands beside the old one until it is whole and synced, and then takes its name: a
// crash leaves one of both. A segment of which something is missing or damaged stays as it is.
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

// Changes entries of segments that are written again.
class SegmentEditor {
 public:
  virtual ~SegmentEditor() = default;
  // Is the segment to be changed? `next`: the segment after it.
  virtual bool Due(const Segment& segment, const Segment& next) = 0;
  // Before the segment's entries.
  virtual void Begin() = 0;
  // RewriteOptions::edit.
  virtual bool Edit(FrameType type, std::string_view payload, std::string* instead) = 0;
  // The segment was replaced, or (false) must stay as it is: it is not due again.
  virtual void Done(const Segment& segment, bool replaced) = 0;
};

struct PackerOptions {
  std::string directory;  // of the journal
  std::string tool_version;
  bool pack = true;  // false: what is packed is written back as it was
  // Segments that end at or before this entry: a restart does not need what they say.
  std::function<uint64_t()> settled;
  std::function<bool()> busy = [] { return false; };          // others need the disk: it waits
  std::chrono::nanoseconds period = std::chrono::minutes(1);  // it looks unasked
  // What changes as segments are written again; null: nothing. On the packer's thread.
  std::shared_ptr<SegmentEditor> editor;
};

// Thread-safe but for construction and destruction.
class SegmentPacker {
 public:
  // `files` is held while a segment is replaced: who removes segments holds it, too. It must
  // outlive the packer. What a former process did not finish is removed.
  SegmentPacker(PackerOptions options, Mutex* files);
  ~SegmentPacker();

  // From now on by itself, on a thread of the lowest priority.
  void Start();
  void Stop();
  // Settled() may have moved: it looks soon.
  void Wake();

  // One round on the calling thread: segments written again. Not after Start.
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
  std::set<uint64_t> done_;         // segments that are as they should be, or must stay as they are
  Clock::time_point not_before_{};  // of the next try, when the disk did not take the last one
  Mutex mutex_;
  CondVar wake_;
  bool woken_ PLUMB_GUARDED_BY(mutex_) = true;
  std::atomic<bool> stopped_{false};
  std::thread thread_;
};

}  // namespace plumbline::server
