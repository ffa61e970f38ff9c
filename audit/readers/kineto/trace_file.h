// Reads one trace file in windows. Its frame is an object with "traceEvents", or only a list of
// events. Reads the process and the events.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "audit/readers/input/byte_stream.h"
#include "audit/readers/input/reader.h"
#include "audit/readers/kineto/keeper.h"

namespace plumbline::audit {

// Not thread-safe. Memory: a window of 1 MiB, and the data of the keeper. The window is larger (at
// most 64 MiB) only if one event is longer.
class TraceFile {
 public:
  // Adds problems to the report, which must outlive the object.
  TraceFile(std::unique_ptr<ByteStream> stream, InputReport* report);

  // Reads some MiB more. Returns false if there is no more. If the file is truncated or damaged,
  // keeps the events before that place.
  bool ReadOn();

  TraceKeeper& keeper() { return keeper_; }
  // Returns the world size, or 0 if the file does not state it.
  int64_t world_size() const { return world_size_; }
  uint64_t bytes_read() const { return stream_->file_bytes_read(); }

  // Returns true if the first bytes (decompressed) are those of a trace: the key "traceEvents" at
  // the top, or a list whose first event has a phase.
  static bool Recognise(std::string_view head);

 private:
  enum class Place { kStart, kMembers, kEvents, kEnd, kDone };

  bool Fill();  // reads more bytes after those in the window; returns false if there are none
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
  bool first_ = true;  // true before the first member or event
  bool bare_ = false;  // the file is a list of events without a frame
  bool saw_events_ = false;
  int64_t world_size_ = 0;
};

}  // namespace plumbline::audit
