// The batches of one stream on disk, from before they are sent until a server has acknowledged
// them. Appended batches survive the death of the process. They may not survive a crash of the
// host: nothing is synced, so that the trainer's disk need not wait.
//
// Segments are framed logs (base/framed_log.h) named by their first sequence: a v1::SpoolHeader,
// then v1::Batch frames without gaps. A segment is deleted when all its batches are acknowledged.
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
  uint64_t bytes = 1ull << 30;  // limit on disk, for one process
  std::string tool_version;     // for the headers
};

// Not thread-safe: the outbox that owns it guards it.
class Spool {
 public:
  // Creates a spool below `dir`, which is created if needed. Errors name the path.
  static absl::StatusOr<std::unique_ptr<Spool>> Create(const std::string& dir,
                                                       const v1::Source& source, uint64_t stream_id,
                                                       SpoolOptions options);
  // Opens a spool that a dead process left at `path`. Returns FailedPrecondition if its process is
  // alive or another one delivers it, NotFound if it is empty (it is removed).
  static absl::StatusOr<std::unique_ptr<Spool>> Adopt(const std::string& path,
                                                      SpoolOptions options);
  // Releases the lock. Deletes the directory if everything in it is acknowledged.
  ~Spool();

  // Appends a batch; sequences must rise. Returns ResourceExhausted at the limit. Other errors come
  // from the disk; after such an error, tries no write for one second. A failed batch is not left
  // half written.
  absl::Status Append(uint64_t sequence, const SealedBatch& batch);
  // Returns true if three quarters are used. The last quarter is for summaries, so raw rows of
  // `bytes` must be dropped.
  bool Crowded(uint64_t bytes) const;
  // Returns why the last Append failed: "spool-full" or "spool-write".
  const char* refusal() const { return refusal_; }

  // Lets Next continue at the first batch with at least this sequence.
  void SeekTo(uint64_t sequence) { next_ = sequence; }
  struct Read {
    enum class Kind { kBatch, kLost, kEnd } kind = Kind::kEnd;
    uint64_t sequence = 0;  // number of the batch, or of the first batch that cannot be read
    uint64_t through = 0;   // number of the last batch that cannot be read
    uint64_t items = 0;     // items of evidence in the batches that cannot be read; a lower bound
    SealedBatch batch;
  };
  Read Next();

  // Removes everything up to `through`, which the server holds.
  void Acknowledge(uint64_t through);

  uint64_t last_sequence() const { return last_; }  // 0: nothing was appended
  uint64_t first_sequence() const {
    return segments_.empty() ? last_ + 1 : segments_.front().first;
  }
  // Returns the sets declared in the appended batches, and before them.
  const google::protobuf::RepeatedPtrField<v1::SeriesSet>& series_sets() const {
    return header_.series_sets();
  }
  // Returns true if an adopted spool has damage after its last batch; its extent is unknown.
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

  // of the last segment; null: the next batch begins a new one
  std::unique_ptr<FramedLogWriter> log_;
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
