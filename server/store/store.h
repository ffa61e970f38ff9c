// The derived store: scalars as tiles, gaps and the history of incidents, in one SQLite file. The
// journal can restore all of it, so the file may be deleted.
//
// Judging threads pass on the rows of each closed step; they are copied once and then shared.
// Blocks of closed steps go through a bounded queue to the writer's thread. Queries see sealed
// tiles and steps in memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/archive.h"
#include "plumbline/v1/query.pb.h"
#include "rules/engine/series.h"
#include "server/store/schema.h"
#include "server/store/store_writer.h"

namespace plumbline::server {

struct StoreOptions {
  std::string path;  // of the database; empty: in memory, which ends with the object
  StoreOrigin origin;
  StoreLimits limits;
  size_t open_bytes = 128u << 20;   // bytes of open blocks; if there are more, the largest block is
                                    // sealed early
  size_t queue_bytes = 256u << 20;  // bytes that wait for the writer; if there are more, the judge
                                    // waits
  std::function<int64_t()> unix_s;  // nullptr: the system's clock
};

// The part of the journal that must be added to the store again: see AddRebuilt.
struct RebuildRange {
  uint64_t after = 0;    // everything up to this entry is in the store
  uint64_t through = 0;  // the judge began after this entry: it adds the steps that it closes later
  uint64_t event = 0;    // the last event that the judge began with
  // runs that the judge knew beyond `through`, with their last entry
  std::map<std::string, uint64_t> ahead;
  void Persist(Archive& a) {
    a.Version(1);
    a(after, through, event, ahead);
  }
};

class Store {
 public:
  // Returns ResourceExhausted if the file cannot be opened or written. A damaged file is renamed,
  // and Info reports it.
  static absl::StatusOr<std::unique_ptr<Store>> Open(const StoreOptions& options);
  // Writes the steps in memory, if possible, and stops.
  virtual ~Store() = default;

  // ---- called by the judging threads; one at a time per run ----

  // Adds the rows of a step as the engine passes them on (Engine::SetOnSeries): steps ascend per
  // (run, attempt, role), and per rank for late steps. The journal's `entry`, or an event after it,
  // closed them; entries of a run ascend. Steps that the store already holds, from replayed
  // entries, are ignored.
  virtual void AddSeries(uint64_t entry, const rules::StepSeries& series) = 0;
  // Ends an entry of the run, which has been judged: queries see its steps from now on.
  virtual void EndEntry(const std::string& run) = 0;
  // Seals the open steps of the run.
  virtual void FinishRun(const std::string& run) = 0;
  // Erases a run that is over, except the history of its incidents. Does nothing while the store is
  // rebuilt.
  virtual void ForgetRun(const std::string& run) = 0;
  virtual void AddGap(const v1::Gap& gap) = 0;
  // Adds a revision. If the store has it already, the first text stays.
  virtual void AddRevision(const std::string& fingerprint,
                           const v1::IncidentRevision& revision) = 0;
  // Reports that all entries of every run up to this one have been judged.
  virtual void Judged(uint64_t entry) = 0;
  // Queues everything added so far for writing, while no run is judged. Returns a ticket for
  // WaitFlushed: only when that is done may a checkpoint of the engine replace the entries before
  // it.
  virtual uint64_t Flush() = 0;

  // ---- called by one rebuilding thread, at the same time as the judging threads ----

  // Begins to fill in missing steps. The range is kept until EndRebuild, across restarts. Call
  // before the first AddSeries.
  virtual void BeginRebuild(const RebuildRange& range) = 0;
  // Returns a range that an earlier process did not finish.
  virtual std::optional<RebuildRange> unfinished_rebuild() const = 0;
  // Does the same as AddSeries for an entry that was judged before the process began. The values
  // only fill gaps in the other steps of their attempt. Returns how many values were added: none if
  // they exist already.
  virtual uint64_t AddRebuilt(uint64_t entry, const rules::StepSeries& series) = 0;
  virtual void EndRebuild() = 0;
  // Returns true from BeginRebuild until the database holds the end of the rebuild. Until then
  // retention must not remove entries: a process that is started meanwhile reads them again.
  virtual bool rebuilding() const = 0;

  // ---- called by any thread ----

  // Returns the entry up to which the database holds everything, so that a replay may begin after
  // it. 0: it holds nothing, and a journal must restore it from its first entry.
  virtual uint64_t held_entry() const = 0;
  // Returns false if the flush was not written in time; it may still be written later. If the
  // database was renamed as damaged, always returns false: then nothing that is written outlives
  // the process.
  virtual bool WaitFlushed(uint64_t ticket, std::chrono::milliseconds time) = 0;

  // Returns NotFound if there is no such run, InvalidArgument as QuerySeries.
  virtual absl::Status QuerySeries(const v1::QuerySeriesRequest& request,
                                   v1::QuerySeriesResponse* response) = 0;
  virtual absl::Status ListSeries(const v1::ListSeriesRequest& request,
                                  v1::ListSeriesResponse* response) = 0;
  virtual absl::StatusOr<std::vector<v1::IncidentRevision>> History(
      const std::string& fingerprint) = 0;
  // Adds gaps, attempts and samples.
  virtual void FillRun(v1::RunInfo* info) = 0;
  virtual v1::StoreInfo Info() = 0;
};

}  // namespace plumbline::server
