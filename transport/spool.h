// The batches of one stream on disk, from before they are sent until a server has acknowledged
// them. What was appended survives the death of the process (not of the host: nothing is synced, a
// trainer's disk is not made to wait for us).
//
// Segments are framed logs (base/framed_log.h) named by their first sequence: a v1::SpoolHeader,
// then v1::Batch frames without gaps. A segment is deleted when all in it is acknowledged.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/framed_log.h"
#include "plumbline/v1/spool.pb.h"
#include "transport/batch_edit.h"
#include "transport/spool_directory.h"

namespace plumbline::transport {

struct SpoolOptions {
  uint64_t bytes = 1ull << 30;  // of one process, on disk
  std::string tool_version;     // for the headers
};

// Not thread-safe: the outbox that owns it guards it.
class Spool {
 public:
  // A new spool below `dir`, which is made if need be. Errors name the path.
  static absl::StatusOr<std::unique_ptr<Spool>> Create(const std::string& dir,
                                                       const v1::Source& source, uint64_t stream_id,
                                                       SpoolOptions options);
  // One that a dead process left at `path`. FailedPrecondition: its process lives, or another
  // delivers it. NotFound: nothing is in it (it is removed).
  static absl::StatusOr<std::unique_ptr<Spool>> Adopt(const std::string& path,
                                                      SpoolOptions options);
  // Gives the lock back. Deletes the directory when all in it is acknowledged.
  ~Spool();

  // Puts a batch behind the others; sequences rise. ResourceExhausted at the bound; other errors
  // are the disk's, and it is not tried again for a second. Nothing is half written.
  absl::Status Append(uint64_t sequence, const SealedBatch& batch);
  // Three quarters are used: the rest is for summaries, and raw rows of `bytes` are not welcome.
  bool Crowded(uint64_t bytes) const;
  // What stood against the last Append: "spool-full" or "spool-write".
  const char* refusal() const { return refusal_; }

  // What Next returns next: the first not before `sequence`.
  void SeekTo(uint64_t sequence) { next_ = sequence; }
  struct Read {
    enum class Kind { kBatch, kLost, kEnd } kind = Kind::kEnd;
    uint64_t sequence = 0;  // of the batch, or the first that cannot be read
    uint64_t through = 0;   // the last that cannot be read
    uint64_t items = 0;     // evidence in those; at least
    SealedBatch batch;
  };
  Read Next();

  // Everything up to `through` is the server's.
  void Acknowledge(uint64_t through);

  uint64_t last_sequence() const { return last_; }  // 0: nothing was ever appended
  uint64_t first_sequence() const {
    return segments_.empty() ? last_ + 1 : segments_.front().first;
  }
  // Said in what was appended, and before it.
  const google::protobuf::RepeatedPtrField<v1::SeriesSet>& series_sets() const {
    return header_.series_sets();
  }
  // Something behind the last batch of an adopted spool is damaged: how much nobody can say.
  bool damaged_end() const { return damaged_end_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t stream_id() const { return header_.stream_id(); }
  const v1::Source& source() const { return header_.source(); }
  const std::string& path() const { return path_; }

 private:
  struct Segment {
    std::string path;
    uint64_t first = 0;
    uint64_t last = 0;  // first - 1: none yet
    uint64_t items = 0;
    uint64_t items_before = 0;
    uint64_t bytes = 0;
  };

  Spool(std::string path, SpoolOptions options, std::unique_ptr<SpoolLock> lock)
      : path_(std::move(path)), options_(std::move(options)), lock_(std::move(lock)) {}
  absl::Status StartSegment(uint64_t first);
  absl::Status Write(uint64_t sequence, const SealedBatch& batch);
  absl::Status ReadHeaders();
  void ScanLastSegment();
  const Segment* SegmentOf(uint64_t sequence) const;
  bool OpenReader(const Segment& segment);
  Read Lost(const Segment& segment);
  void RemoveFront();
  uint64_t segment_bytes() const;

  const std::string path_;
  const SpoolOptions options_;
  std::unique_ptr<SpoolLock> lock_;
  v1::SpoolHeader header_;
  std::deque<Segment> segments_;
  uint64_t bytes_ = 0;  // of all segments
  uint64_t last_ = 0;
  uint64_t acknowledged_ = 0;
  bool damaged_end_ = false;

  std::unique_ptr<FramedLogWriter> log_;  // of the last segment; null: the next begins a new one
  const char* refusal_ = "spool-full";
  absl::Status failed_;
  uint64_t retry_ns_ = 0;

  uint64_t next_ = 1;
  std::unique_ptr<FramedLogReader> reader_;
  uint64_t reading_ = 0;     // first sequence of the segment of reader_
  uint64_t reader_at_ = 0;   // sequence of its next frame
  uint64_t items_read_ = 0;  // in that segment
};

}  // namespace plumbline::transport
