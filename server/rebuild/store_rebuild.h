// Fills the store with the values that it lacks and the journal still has.
//
// The judge begins with a checkpoint of the engine, and does not close the steps before that
// checkpoint again. If the store holds less (its file was deleted, damaged, or replaced by an older
// copy), this thread reads those entries again, closes their steps with an engine that judges
// nothing, and passes them to the store. Entries that the journal no longer has become gaps of the
// store, by run.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "rules/engine/engine.h"
#include "server/journal/gap_table.h"
#include "server/journal/journal_scan.h"
#include "server/store/store.h"

namespace plumbline::server {

struct StoreRebuildOptions {
  std::string directory;  // of the journal
  RebuildRange range;
  rules::EngineConfig engine;  // the judge's configuration; its rules are not run
  std::function<bool()> busy;  // while it returns true, more urgent work runs, and the rebuild
                               // waits
  // returns true for quarantined runs, which no engine reads
  std::function<bool(const std::string& run)> skipped;
};

// Thread-safe.
class StoreRebuild {
 public:
  // `gaps` and `store` must outlive it.
  StoreRebuild(StoreRebuildOptions options, const GapTable* gaps, Store* store)
      : options_(std::move(options)), gaps_(gaps), store_(store), next_(options_.range.after + 1) {}
  ~StoreRebuild() { Stop(); }

  void Start();
  void Stop();  // may be called at any point; the next start begins again

 private:
  bool GoOn();
  void Run();
  bool ReadEvents(std::vector<StoredEvent>* events);
  bool ReadBatches(const std::vector<StoredEvent>& events, rules::Engine* engine);
  void Take(const StoredEntry& entry, rules::Engine* engine);
  void DeclareStreams(std::string_view payload, rules::Engine* engine);
  void ReportGaps();

  const StoreRebuildOptions options_;
  const GapTable* const gaps_;
  Store* const store_;
  uint64_t next_;  // entry that is being read
  uint64_t values_ = 0;
  std::chrono::steady_clock::time_point rest_at_;
  Mutex mutex_;
  CondVar wake_;
  bool stopped_ PLUMB_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace plumbline::server
