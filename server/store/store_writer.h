// Writes jobs of the store into its database, each batch of them in one transaction.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "plumbline/v1/query.pb.h"
#include "server/store/catalogue.h"
#include "server/store/database.h"
#include "server/store/tile.h"

namespace plumbline::server {

// The span's row after the job.
struct SpanRow {
  uint32_t id = 0, run = 0, attempt = 0, generation = 0;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  int64_t first_step = 0, last_step = 0;
  uint64_t samples = 0;
  uint64_t sealed_entry = 0;
  int64_t sealed_step = 0;
};

// A block of closed steps. If whole, it replaces its short tiles. Otherwise only the steps from
// `fresh_from` on are written, as separate short tiles.
struct BlockJob {
  SpanRow span;
  std::vector<ClosedStepPtr> steps;
  size_t fresh_from = 0;  // earlier steps are in short tiles already
  bool whole = true;
};
struct PositionJob {
  uint64_t entry = 0;
  uint64_t ticket = 0;  // of the flush
};
struct GapJob {
  v1::Gap gap;
};
struct RevisionJob {
  std::string fingerprint;
  v1::IncidentRevision revision;
};
// All rows of a run are removed.
struct ForgottenRun {
  uint32_t run = 0;
  std::string name;
};
// Removes a damaged tile and adds a gap.
struct DamagedTileJob {
  int64_t tile = 0;
};
// The range that is being rebuilt; empty: the rebuild has ended.
struct RebuildJob {
  std::string range;
};
using StoreJob = std::variant<NameRows, BlockJob, PositionJob, GapJob, RevisionJob, DamagedTileJob,
                              ForgottenRun, RebuildJob>;

struct StoreLimits {
  uint64_t max_bytes = 0;  // of the database; 0: no limit
  int64_t max_age_s = 0;   // of a tile since it was sealed; 0: no limit
};

// Not thread-safe. After an error no part of the batch is in the database, and the caller may try
// again.
class StoreWriter {
 public:
  static absl::StatusOr<std::unique_ptr<StoreWriter>> Create(Database* database);

  absl::Status Write(const std::vector<StoreJob>& jobs, int64_t unix_s);
  // Removes the oldest tiles until the limits hold, and adds gaps for them. Adds their number to
  // *dropped.
  absl::Status Retain(const StoreLimits& limits, int64_t unix_s, uint64_t* dropped);
  absl::StatusOr<uint64_t> Bytes() const;    // in use
  uint64_t tiles() const { return tiles_; }  // written by this object

 private:
  explicit StoreWriter(Database* database) : database_(database) {}

  absl::Status TakeUpBlocks();

  absl::Status Put(const NameRows& rows);
  absl::Status Put(const BlockJob& job);
  absl::Status Put(const PositionJob& job);
  absl::Status Put(const GapJob& job);
  absl::Status Put(const RevisionJob& job);
  absl::Status Put(const DamagedTileJob& job);
  absl::Status Put(const ForgottenRun& job);
  absl::Status Put(const RebuildJob& job);
  absl::Status PutTile(const BlockJob& job, int64_t first_step, const BuiltTile& built);
  absl::Status PutSpan(const SpanRow& span);
  absl::Status DropTiles(int64_t last_id, const std::string& reason);
  absl::StatusOr<int64_t> OldestToGo(const StoreLimits& limits, int64_t unix_s, uint64_t* count);

  Database* const database_;
  Statement insert_tile_, drop_short_, extent_, span_, run_, series_, position_, gap_, revision_;
  TileEncoder encoder_;
  std::string bytes_;
  int64_t unix_s_ = 0;
  uint64_t tiles_ = 0;
  bool blocks_taken_up_ = false;
};

}  // namespace plumbline::server
