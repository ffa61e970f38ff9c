// Reads one trace file in windows: its frame (an object with "traceEvents", or a bare list of
// events), its process, its events.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "audit/readers/input/byte_stream.h"
#include "audit/readers/input/reader.h"
#include "audit/readers/kineto/keeper.h"

namespace plumbline::audit {

// Not thread-safe. Memory: a window of 1 MiB, larger only if one event is longer (at most 64 MiB),
// and what the keeper holds.
class TraceFile {
 public:
  // The report must outlive it; problems go there.
  TraceFile(std::unique_ptr<ByteStream> stream, InputReport* report);

  // Reads some MiB more. Returns false if there is no more. If the file is truncated or damaged,
  // what came before is kept.
  bool ReadOn();

  TraceKeeper& keeper() { return keeper_; }
  int64_t world_size() const { return world_size_; }  // 0: not stated
  uint64_t bytes_read() const { return stream_->file_bytes_read(); }

  // Returns true if the first bytes (decompressed) are those of a trace: the key "traceEvents" at
  // the top, or a list whose first event has a phase.
  static bool Recognise(std::string_view head);

 private:
  enum class Place { kStart, kMembers, kEvents, kEnd, kDone };

  bool Fill();  // reads more bytes after those in the window; false if there are none
  void Failed(const JsonScan& scan, uint64_t at);  // `at`: offset in the stream
  // Each reads one member of the frame or one event, from `begin_` on. Returns false if the window
  // needs more bytes or the file is damaged; `*scan` has the reason.
  bool Start(JsonScan* scan);
  bool Member(JsonScan* scan);
  bool Event(JsonScan* scan);
  bool End(JsonScan* scan);
  void TakeProcess(std::string_view json);
  void Close();

  std::unique_ptr<ByteStream> stream_;
  InputReport* report_;
  TraceKeeper keeper_;
  std::string window_;
  size_t begin_ = 0, end_ = 0;  // the unread part of the window
  uint64_t window_at_ = 0;      // offset of the window's first byte in the stream
  Place place_ = Place::kStart;
  bool first_ = true;  // before the first member or event
  bool bare_ = false;  // a list of events without a frame
  bool saw_events_ = false;
  int64_t world_size_ = 0;
};

}  // namespace plumbline::audit
