// The run record of one process: a framed log of batches, written as they are sealed.
//
// DIR/<role>-r<rank, 5 digits>-a<attempt>.plr: first a v1::RecordHeader, then v1::Batch frames,
// numbered from 1 under a stream id of the record. Appended data survive the death of the process.
// Used by the drain thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/core/sites/series_registry.h"
#include "base/framed_log.h"
#include "transport/batch_edit.h"

namespace plumbline::agent {

// Returns the path, "DIR/trainer-r00003-a0.plr".
std::string RecordPath(const std::string& dir, v1::Role role, uint32_t rank, uint32_t attempt);

// Returns the attempt under which only this process writes into `dir`. It is `wanted`, or, if that
// file exists already (a repeated run in the same directory, or a second process of one rank), one
// more than the highest existing attempt of that rank. Creates the directory and the empty file.
// Errors name the path.
absl::StatusOr<uint32_t> ClaimAttempt(const std::string& dir, v1::Role role, uint32_t rank,
                                      uint32_t wanted);

class RecordSink {
 public:
  // Writes the header into the file that ClaimAttempt created. Errors name the path and the
  // system's reason. `redacted_key`: identifies the key of hashed ids; 0: ids are raw.
  static absl::StatusOr<std::unique_ptr<RecordSink>> Open(const std::string& dir,
                                                          const v1::Source& source,
                                                          uint64_t stream_id,
                                                          uint64_t redacted_key = 0);

  // Appends one batch. If the disk refuses, the batch's evidence is counted as lost
  // ("record-write"), and the count goes into the next batch that can be written. The file is
  // opened again before that, at most once per second.
  void Append(const transport::SealedBatch& batch, uint64_t now_ns);

  // Sets the lists of series that batches may name; without it, losses of series have no names.
  void NameSeries(std::shared_ptr<const SeriesRegistry> names) { names_ = std::move(names); }

  const std::string& path() const { return path_; }
  // Returns OK, or why the last append failed.
  const absl::Status& status() const { return status_; }
  // Returns OK, or the reason why evidence, now or earlier, could not be written and is missing in
  // the record. One reason is that another process removed or cut the file.
  absl::Status loss() const;

 private:
  RecordSink(std::string path, uint64_t stream_id, std::unique_ptr<FramedLogWriter> log)
      : path_(std::move(path)), stream_id_(stream_id), log_(std::move(log)) {}
  absl::Status Write(const transport::SealedBatch& batch);
  absl::Status Reopen(uint64_t now_ns);
  transport::SeriesSets Names() const;
  void Keep(const transport::SealedBatch& batch);

  const std::string path_;
  const uint64_t stream_id_;
  std::unique_ptr<FramedLogWriter> log_;
  std::shared_ptr<const SeriesRegistry> names_;
  uint64_t sequence_ = 0;
  transport::SealedBatch owed_;  // losses to report, of batches that could not be written; body
                                 // nullptr: none
  uint64_t retry_ns_ = 0;
  absl::Status status_, loss_;
};

}  // namespace plumbline::agent
