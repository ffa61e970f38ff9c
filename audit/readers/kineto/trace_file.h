// One trace file, read in windows: its frame (an object with "traceEvents", or a bare list of
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

// Not thread-safe. Memory: a window of 1 MiB, more only where one event is longer (64 MiB at most),
// and what the keeper keeps.
class TraceFile {
 public:
  // The report outlives it; problems go there.
  TraceFile(std::unique_ptr<ByteStream> stream, InputReport* report);

  // Reads on, some MiB; false: there is no more. A file that breaks off, or is damaged, keeps what
  // came before.
  bool ReadOn();

  TraceKeeper& keeper() { return keeper_; }
  int64_t world_size() const { return world_size_; }  // 0: not said
  uint64_t bytes_read() const { return stream_->file_bytes_read(); }

  // Whether the first bytes (decompressed) are a trace's: the key "traceEvents" at the top, or a
  // list whose first event has a phase.
  static bool Recognise(std::string_view head);

 private:
  enum class Place { kStart, kMembers, kEvents, kEnd, kDone };

  bool Fill();  // more bytes behind those at hand; false: there are none
  void Failed(const JsonScan& scan, uint64_t at);  // `at`: where, in the stream
  // One member of the frame, one event: each from `begin_` on. False: the window lacks bytes, or
  // the file is damaged; `*scan` says which.
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
  size_t begin_ = 0, end_ = 0;  // what is not read yet, in the window
  uint64_t window_at_ = 0;      // of the window's first byte, in the stream
  Place place_ = Place::kStart;
  bool first_ = true;  // of the members or events
  bool bare_ = false;  // a list of events without a frame
  bool saw_events_ = false;
  int64_t world_size_ = 0;
};

}  // namespace plumbline::audit
