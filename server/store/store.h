// The derived store: scalars as tiles, gaps and the history of incidents, in one SQLite file. All
// of it can be told again by the journal, so the file may be deleted.
//
// Judging threads hand over the rows of each closed step; they are copied once and shared from then
// on. Blocks of closed steps go to the writer's own thread through a bounded queue. Queries see
// what is sealed and what is still in memory.
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
  std::string path;  // of the database; empty: in memory alone, which ends with the object
  StoreOrigin origin;
  StoreLimits limits;
  size_t open_bytes = 128u << 20;   // of open blocks; beyond it the largest one is sealed early
  size_t queue_bytes = 256u << 20;  // that wait for the writer; beyond it the judge waits
  std::function<int64_t()> unix_s;  // nullptr: the system's clock
};

// What the journal is to give back to the store: see AddRebuilt.
struct RebuildRange {
  uint64_t after = 0;    // entry that the store holds everything up to
  uint64_t through = 0;  // ... that the judge began with: what it closes later it adds itself
  uint64_t event = 0;    // the last event that the judge began with
  std::map<std::string, uint64_t> ahead;  // runs that it knew beyond `through`, and up to where
  void Persist(Archive& a) {
    a.Version(1);
    a(after, through, event, ahead);
  }
};

class Store {
 public:
  // ResourceExhausted: the file cannot be opened or written. A damaged one is set aside, which
  // Info says.
  static absl::StatusOr<std::unique_ptr<Store>> Open(const StoreOptions& options);
  // Writes what is in memory, unless that fails, and stops.
  virtual ~Store() = default;

  // ---- by the judging threads: of one run by one of them at a time ----

  // As the engine shows it (Engine::SetOnSeries): ascending steps of a (run, attempt, role), and of
  // each rank's late steps. `entry` of the journal closed them, or an event behind it; entries of a
  // run come in ascending order. Steps that the store holds already, of entries that are replayed,
  // are ignored.
  virtual void AddSeries(uint64_t entry, const rules::StepSeries& series) = 0;
  // The run's entry has been judged: queries see it from now on.
  virtual void EndEntry(const std::string& run) = 0;
  // Seals what is open of the run.
  virtual void FinishRun(const std::string& run) = 0;
  // Erases all of the run, but not the history of its incidents. It is over. Does nothing while the
  // store is rebuilt.
  virtual void ForgetRun(const std::string& run) = 0;
  virtual void AddGap(const v1::Gap& gap) = 0;
  // A revision that the store has already keeps its first text.
  virtual void AddRevision(const std::string& fingerprint,
                           const v1::IncidentRevision& revision) = 0;
  // All entries up to this one have been judged, those of every run.
  virtual void Judged(uint64_t entry) = 0;
  // Has all that was added so far written, while nobody judges. The ticket is for WaitFlushed: a
  // checkpoint of the engine may take the place of the entries behind it only when that is done.
  virtual uint64_t Flush() = 0;

  // ---- by one thread that rebuilds, next to those that judge ----

  // Begins to fill in what is missing; the range is kept until EndRebuild, over restarts. Before
  // the first AddSeries.
  virtual void BeginRebuild(const RebuildRange& range) = 0;
  // A range that a former process did not finish.
  virtual std::optional<RebuildRange> unfinished_rebuild() const = 0;
  // Like AddSeries, of an entry that was judged before the process began. The values fill in what
  // the other steps of their attempt lack. Returns how many values were added: none if they are
  // there already.
  virtual uint64_t AddRebuilt(uint64_t entry, const rules::StepSeries& series) = 0;
  virtual void EndRebuild() = 0;

  // ---- by any thread ----

  // The entry that the database holds everything up to, so that a replay may begin behind it. 0: it
  // holds nothing, and what it should hold is told again by a journal from its first entry on.
  virtual uint64_t held_entry() const = 0;
  // False: the flush was not written in time; later it may be. Never, where the database was set
  // aside: then nothing that is written outlives the process.
  virtual bool WaitFlushed(uint64_t ticket, std::chrono::milliseconds time) = 0;

  // NotFound: no such run. InvalidArgument: see QuerySeries.
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
