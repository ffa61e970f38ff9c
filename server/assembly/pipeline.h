// The components after the sockets: the journal, the judge that follows it, and the state that a
// restart restores.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "server/capsules/capsule_keeper.h"
#include "server/incidents/incident_table.h"
#include "server/journal/checkpointer.h"
#include "server/journal/data_directory.h"
#include "server/journal/gap_table.h"
#include "server/journal/journal.h"
#include "server/journal/journal_check.h"
#include "server/journal/journal_run_reader.h"
#include "server/journal/journal_scan.h"
#include "server/journal/retention.h"
#include "server/journal/run_reader.h"
#include "server/journal/segment_packer.h"
#include "server/judge/judge.h"
#include "server/process/confirmed_clock.h"
#include "server/process/counters.h"
#include "server/rebuild/store_rebuild.h"
#include "server/settings/config.h"
#include "server/settings/suppression_file.h"
#include "server/stopping/stop_sender.h"
#include "server/store/store.h"

namespace plumbline::server {

// Thread-safe, except Open, Stop and destruction.
class Pipeline {
 public:
  // `counters` must outlive it.
  explicit Pipeline(Counters* counters) : counters_(counters) {}
  ~Pipeline();

  // Restores the state of an earlier process and continues after it. When this returns, everything
  // that the earlier process acknowledged is known. It is judged in the background. Returns
  // InvalidArgument if the configuration is wrong, FailedPrecondition if another server has the
  // data directory.
  absl::Status Open(const Config& config, const std::string& version);

  // Stops the journal first, then judges the entries that the journal has taken. Returns within a
  // limited time.
  void Stop();

  IncidentTable& incident_table() { return *incident_table_; }
  Store& store() { return *store_; }
  Judge& judge() { return *judge_; }
  Journal& journal() { return *journal_; }
  CapsuleKeeper& capsules() { return *capsules_; }
  StopSender& stops() { return *stops_; }
  // Reads files again that may change while the server runs.
  void Reload() { suppressions_->Reload(); }
  const GapTable& gaps() const { return *gaps_; }
  // null: no checkpoints are made
  const Checkpointer* checkpointer() const { return checkpointer_.get(); }
  // Return the directories; both empty without --data.
  std::string directory() const { return data_ != nullptr ? data_->path() : ""; }
  std::string journal_directory() const { return data_ != nullptr ? data_->journal() : ""; }
  // Returns the path of the alert log; empty: it is in memory.
  std::string alert_log() const { return data_ != nullptr ? data_->alerts() : ""; }
  // Returns the streams of earlier processes, as Open found them.
  const StreamPositions& known_streams() const { return scan_.streams; }
  // Makes a reader; null without --data. It must be destroyed before this.
  std::unique_ptr<RunReader> MakeReader(const Config& config);

 private:
  absl::Status OpenCapsules(const Config& config);
  void MakeStops();
  absl::Status OpenStore(const Config& config, uint64_t newest_entry);
  absl::Status MakeJudge(const Config& config);
  RunReaderOptions ReaderOptions(const Config& config) const;
  OpenRun RetryReader(const Config& config) const;
  absl::Status TakeUp(const Config& config, const std::string& version, Replay* replay);
  absl::Status Scan(const Config& config, uint64_t from);
  bool Usable(const CheckpointName& name) const;
  absl::Status RestoreNewest(const Config& config, const std::vector<CheckpointName>& checkpoints,
                             Checkpoint* restored);
  void ReportScan();
  std::shared_ptr<SegmentEditor> MakeSampleRetention(const Config& config);
  void MakePacker(const Config& config, const std::string& version);
  void MakeCheck();
  void MakeRebuild(const Config& config, const Checkpoint& restored);

  Counters* const counters_;
  bool stopped_ = false;
  std::unique_ptr<DataDirectory> data_;  // released last
  std::unique_ptr<GapTable> gaps_;
  Mutex segments_;  // held by code that removes or replaces segments that are no longer written
  std::unique_ptr<JournalRetention> retention_;
  ConfirmedClock retention_clock_;  // used by the checkpointer's thread
  std::unique_ptr<IncidentTable> incident_table_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<StoreRebuild> rebuild_;  // null: the store is complete
  std::unique_ptr<Checkpointer> checkpointer_;
  std::unique_ptr<CapsuleKeeper> capsules_;
  std::unique_ptr<StopSender> stops_;
  std::unique_ptr<Quarantine> quarantine_;
  std::unique_ptr<Judge> judge_;
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<SegmentPacker> packer_;  // null without --data
  std::unique_ptr<JournalCheck> check_;    // null without --data
  std::unique_ptr<SuppressionFile> suppressions_;
  JournalScan scan_{0};
};

}  // namespace plumbline::server
