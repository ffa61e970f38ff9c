#include "server/assembly/pipeline.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "server/journal/checkpoint_file.h"
#include "server/journal/format_check.h"
#include "server/journal/lost_end.h"
#include "server/journal/segments.h"
#include "server/process/health.h"
#include "server/process/log.h"
#include "server/process/memory_limit.h"
#include "server/process/stop_times.h"
#include "server/samples/sample_retention.h"
#include "server/settings/redact_key.h"

namespace plumbline::server {
namespace {

// Limit of the open steps of one run; beyond it the oldest ones close, live and in a replay.
constexpr uint64_t kRunBytes = uint64_t{1} << 30;

// Without --data only the newest scalars are kept, in memory.
constexpr uint64_t kStoreBytesInMemory = 256u << 20;

// A longer commit waits for the disk, so less urgent work must wait.
constexpr std::chrono::milliseconds kSlowCommit{20};

uint64_t OpenBytesOf(const Config& c) {
  return c.open_bytes > 0 ? static_cast<uint64_t>(c.open_bytes) : MemoryLimit() / 4;
}

JudgeOptions JudgeOptionsOf(const Config& c) {
  JudgeOptions o;
  o.engine.rules = c.rules;
  o.engine.settings = c.settings;
  o.engine.window_steps = c.window_steps;
  o.engine.run_bytes = kRunBytes;
  o.grace = NanosecondsOf(c.grace_seconds);
  o.hang = NanosecondsOf(c.hang_seconds);
  o.between_steps = NanosecondsOf(c.between_steps_seconds);
  o.queue_bytes = static_cast<size_t>(c.queue_bytes);
  o.max_streams = static_cast<size_t>(c.max_streams);
  o.max_runs = static_cast<size_t>(c.max_runs);
  o.open_bytes = OpenBytesOf(c);
  o.checkpoint_bytes = static_cast<uint64_t>(c.checkpoint_bytes);
  o.checkpoint_interval = NanosecondsOf(c.checkpoint_seconds);
  return o;
}

JournalOptions JournalOptionsOf(const Config& c, const std::string& version) {
  JournalOptions o;
  o.segments.tool_version = version;
  o.segments.sync = c.journal_sync == "commit"     ? SyncPolicy::kCommit
                    : c.journal_sync == "interval" ? SyncPolicy::kInterval
                                                   : SyncPolicy::kNever;
  o.segments.sync_interval = NanosecondsOf(c.journal_sync_seconds);
  o.segments.segment_bytes = static_cast<uint64_t>(c.journal_segment_bytes);
  o.segments.compress = c.journal_compress;
  if (c.journal_keep_sample_days > 0) o.segments.segment_age = std::chrono::hours(24);
  o.commit_delay = NanosecondsOf(c.journal_commit_ms / 1000);
  o.commit_bytes = static_cast<size_t>(c.journal_commit_bytes);
  o.unix_ns = [] { return static_cast<int64_t>(UnixNs()); };
  return o;
}

CapsuleOptions CapsuleOptionsOf(const Config& c) {
  CapsuleOptions o;
  o.level = c.capsule_take == "off"       ? v1::LEVEL_UNSPECIFIED
            : c.capsule_take == "note"    ? v1::LEVEL_NOTE
            : c.capsule_take == "warning" ? v1::LEVEL_WARNING
                                          : v1::LEVEL_ERROR;
  o.rank_bytes = static_cast<uint64_t>(c.capsule_rank_bytes);
  o.bytes = static_cast<uint64_t>(c.capsule_bytes);
  o.ranks = static_cast<uint32_t>(c.capsule_ranks);
  o.per_run = static_cast<uint32_t>(c.capsule_per_run);
  o.dense_steps = c.capsule_dense_steps;
  o.grace = NanosecondsOf(c.grace_seconds);
  return o;
}

// Returns the limit of the journal. Without a limit, a full disk would end acknowledgements. The
// present journal counts as free space, otherwise each start would halve the limit.
uint64_t KeepBytesOf(int64_t configured, const std::string& directory) {
  if (configured >= 0) return static_cast<uint64_t>(configured);
  constexpr uint64_t kMost = uint64_t{50} << 30;
  DiskSpace space;
  if (!SpaceOf(directory, &space)) return kMost;
  const uint64_t keep = std::min(kMost, (space.free + JournalBytes(directory)) / 2);
  LogInfo("journal: its newest {:.1f} GiB are kept, {} (journal.keep_bytes sets another limit)",
          static_cast<double>(keep) / (1 << 30),
          keep == kMost ? "less than half of the free disk space" : "half of the free disk space");
  return keep;
}

JournalRetentionOptions RetentionOptionsOf(const Config& c, const std::string& directory) {
  JournalRetentionOptions o;
  o.keep_bytes = KeepBytesOf(c.journal_keep_bytes, directory);
  o.keep = NanosecondsOf(c.journal_keep_days * 86400);
  return o;
}

StoreOptions StoreOptionsOf(const Config& c, const DataDirectory* data, uint64_t newest_entry) {
  StoreOptions o;
  o.limits.max_bytes = static_cast<uint64_t>(c.store_bytes);
  o.limits.max_age_s = static_cast<int64_t>(c.store_days * 86400);
  if (data == nullptr) {
    o.limits.max_bytes = std::min(o.limits.max_bytes, kStoreBytesInMemory);
    return o;
  }
  o.path = data->store();
  o.origin.journal_id = data->journal_id();
  o.origin.newest_entry = newest_entry;
  return o;
}

}  // namespace

Pipeline::~Pipeline() { Stop(); }

void Pipeline::Stop() {
  StopTimes times;
  if (suppressions_ != nullptr) suppressions_->Stop();
  if (packer_ != nullptr) packer_->Stop();
  if (check_ != nullptr) check_->Stop();
  if (rebuild_ != nullptr) rebuild_->Stop();
  if (capsules_ != nullptr) capsules_->Stop();
  times.Note("background work");
  if (judge_ != nullptr) judge_->StopDeciding();
  times.Note("decisions");
  if (journal_ != nullptr) journal_->Stop();
  times.Note("journal");
  if (judge_ != nullptr) judge_->Stop();
  times.Note("judge");
  if (checkpointer_ != nullptr) checkpointer_->Stop();
  times.Note("checkpoint");
  if (!std::exchange(stopped_, true)) LogDebug("stopped: {}", times.text());
}

absl::Status Pipeline::OpenStore(const Config& config, uint64_t newest_entry) {
  auto store = Store::Open(StoreOptionsOf(config, data_.get(), newest_entry));
  if (!store.ok()) return store.status();
  store_ = std::move(*store);
  return absl::OkStatus();
}

absl::Status Pipeline::OpenCapsules(const Config& config) {
  CapsuleOptions options = CapsuleOptionsOf(config);
  if (data_ != nullptr) options.directory = data_->capsules();
  auto redactor = RedactorOf(config);
  if (!redactor.ok()) return redactor.status();
  options.redactor = *std::move(redactor);
  capsules_ = std::make_unique<CapsuleKeeper>(
      std::move(options), [this](const std::string& run) { return judge_->Known(run); }, counters_);
  judge_->SetOnFinding(
      [keeper = capsules_.get()](const v1::Finding& finding) { keeper->OnFinding(finding); });
  return capsules_->Start();
}

// Makes the component that ends trainings which requested it in their hello.
void Pipeline::MakeStops() {
  stops_ = std::make_unique<StopSender>(incident_table_.get(), counters_,
                                        [judge = judge_.get()](v1::IncidentUpdate update) {
                                          v1::JudgeEvent event;
                                          *event.mutable_incident() = std::move(update);
                                          judge->Decide(std::move(event), nullptr);
                                        });
  judge_->SetOnFound([stops = stops_.get()](const v1::Finding& merged, const v1::FindingSite& now) {
    stops->OnFound(merged, now);
  });
}

// Makes an empty judge and incident table.
absl::Status Pipeline::MakeJudge(const Config& config) {
  incident_table_ = std::make_unique<IncidentTable>([this] { return judge_->unix_ns(); });
  if (data_ != nullptr) incident_table_->SetIdentity(data_->journal_id());
  incident_table_->SetQuietSteps(config.quiet_steps);
  incident_table_->SetOnRevision(
      [this](const std::string& fingerprint, const v1::IncidentRevision& r) {
        store_->AddRevision(fingerprint, r);
      });
  JudgeOptions options = JudgeOptionsOf(config);
  options.store = store_.get();
  options.quarantine = quarantine_.get();
  if (data_ != nullptr) options.open_run = RetryReader(config);
  auto judge = Judge::Create(options, incident_table_.get(), gaps_.get(), counters_);
  if (!judge.ok()) return judge.status();
  judge_ = std::move(*judge);
  return absl::OkStatus();
}

absl::Status Pipeline::Open(const Config& config, const std::string& version) {
  JournalOptions journal = JournalOptionsOf(config, version);
  LogInfo("open steps of all runs may use {:.1f} GiB of memory{}",
          static_cast<double>(OpenBytesOf(config)) / (1 << 30),
          config.open_bytes > 0 ? "" : ", a quarter of the memory (limits.open_bytes)");
  Replay replay;
  if (config.data_directory.empty()) {
    LogWarning(
        "no --data: nothing is stored on disk; acknowledged evidence is lost when this process "
        "ends");
    gaps_ = GapTable::InMemory();
    quarantine_ = std::make_unique<Quarantine>("", [] { return static_cast<int64_t>(UnixNs()); });
    if (auto s = OpenStore(config, 0); !s.ok()) return s;
    if (auto s = MakeJudge(config); !s.ok()) return s;
  } else {
    if (auto s = TakeUp(config, version, &replay); !s.ok()) return s;
    journal.segments.directory = data_->journal();
  }
  journal.on_stall = [judge = judge_.get()](bool stalled) { judge->Hold(stalled); };
  journal_ = std::make_unique<Journal>(std::move(journal), scan_.last, scan_.streams, counters_);
  if (auto s = OpenCapsules(config); !s.ok()) return s;
  MakeStops();
  if (auto s = judge_->Start(journal_.get(), checkpointer_.get(), std::move(replay)); !s.ok()) {
    return s;
  }
  if (packer_ != nullptr) packer_->Start();
  if (check_ != nullptr) check_->Start();
  if (rebuild_ != nullptr) rebuild_->Start();
  // The set has a place in the journal, because it marks findings that are judged after it.
  suppressions_ = std::make_unique<SuppressionFile>(
      config.suppressions_file, [judge = judge_.get()](v1::SuppressionSet set) {
        v1::JudgeEvent event;
        *event.mutable_suppressions() = std::move(set);
        judge->Decide(std::move(event), nullptr);
      });
  return suppressions_->Start();
}

absl::Status Pipeline::TakeUp(const Config& config, const std::string& version, Replay* replay) {
  auto data = DataDirectory::Open(config.data_directory);
  if (!data.ok()) return data.status();
  data_ = std::move(*data);
  if (auto s = CheckJournalFormat(data_->journal()); !s.ok()) return s;
  auto gaps = GapTable::Open(data_->gaps());
  if (!gaps.ok()) return gaps.status();
  gaps_ = std::move(*gaps);
  gaps_->SetOnLost([counters = counters_](const LostEntries& lost) {
    counters->journal_lost += lost.last - lost.first + 1;
    LogError("journal: {}; entries {} to {} are lost", lost.where, lost.first, lost.last);
  });
  quarantine_ =
      std::make_unique<Quarantine>(data_->path(), [] { return static_cast<int64_t>(UnixNs()); });
  quarantine_->NoteCrashes();
  auto checkpoints = ListCheckpoints(data_->checkpoint());
  if (!checkpoints.ok()) return checkpoints.status();

  const uint64_t first = checkpoints->empty() ? 1 : checkpoints->back().entry + 1;
  if (auto s = Scan(config, first); !s.ok()) return s;
  const uint64_t was_held = NewestEntryOf(*checkpoints);
  if (auto s = OpenStore(config, std::max(scan_.last, was_held)); !s.ok()) return s;
  Checkpoint restored;
  if (auto s = RestoreNewest(config, *checkpoints, &restored); !s.ok()) return s;
  if (restored.entry + 1 < first) {  // no checkpoint was usable
    if (auto s = Scan(config, 1); !s.ok()) return s;
  }
  if (was_held > scan_.last) {
    AddLostEnd(data_->journal(), *checkpoints, restored, static_cast<size_t>(config.max_streams),
               &scan_);
  }
  ReportScan();
  judge_->DeclareSets(scan_.streams);

  replay->directory = data_->journal();
  replay->from = std::max(restored.entry + 1, scan_.oldest);
  replay->to = scan_.last;
  for (StoredEvent& event : scan_.events) {
    if (event.number > restored.event) replay->events.push_back(std::move(event));
  }
  if (replay->from > restored.entry + 1) {
    LogError(
        "journal: entries {} to {} are missing and no checkpoint includes them: rules start from "
        "the beginning",
        restored.entry + 1, replay->from - 1);
  }
  retention_ = std::make_unique<JournalRetention>(
      data_->journal(), RetentionOptionsOf(config, data_->journal()), gaps_.get());
  MakeRebuild(config, restored);
  MakePacker(config, version);
  if (replay->from > scan_.oldest) MakeCheck();  // otherwise the scan has read the whole journal
  checkpointer_ = std::make_unique<Checkpointer>(
      data_->checkpoint(), version, counters_, [this](uint64_t entry) {
        const MutexLock lock(segments_);
        retention_->Apply(store_->rebuilding() ? 0 : entry, retention_clock_.Now());
        packer_->Wake();
      });
  checkpointer_->Found(restored.entry, restored.unix_ns);
  return absl::OkStatus();
}

absl::Status Pipeline::Scan(const Config& config, uint64_t from) {
  auto scan = ScanJournal(data_->journal(), from, static_cast<size_t>(config.max_streams));
  if (!scan.ok()) return scan.status();
  scan_ = std::move(*scan);
  return absl::OkStatus();
}

// A store that was renamed as damaged must be filled again. As long as the journal reaches back to
// the beginning, no checkpoint may skip entries. But if the journal has lost entries, only the
// checkpoint has their effect.
bool Pipeline::Usable(const CheckpointName& name) const {
  return store_->held_entry() >= name.entry || scan_.oldest > 1 || NewestEntryOf(name) > scan_.last;
}

// Restores the judge from the newest readable checkpoint. If there is none, the judge stays empty.
absl::Status Pipeline::RestoreNewest(const Config& config,
                                     const std::vector<CheckpointName>& checkpoints,
                                     Checkpoint* restored) {
  for (const CheckpointName& name : checkpoints) {
    if (!Usable(name)) {
      LogWarning("{} is not used: the store is at entry {}", name.path, store_->held_entry());
      continue;
    }
    auto checkpoint = ReadCheckpoint(name.path);
    absl::Status usable = checkpoint.status();
    if (usable.ok()) {
      if (auto s = MakeJudge(config); !s.ok()) return s;
      usable = judge_->Restore(*checkpoint);
    }
    if (usable.ok()) {
      *restored = std::move(*checkpoint);
      LogInfo("checkpoint at entry {} loaded", restored->entry);
      return absl::OkStatus();
    }
    LogWarning("{} is not used: {}", name.path, std::string(usable.message()));
  }
  *restored = Checkpoint();
  return MakeJudge(config);
}

// Rebuilds steps that were closed before the checkpoint and are missing in the store. Continues an
// unfinished rebuild.
void Pipeline::MakeRebuild(const Config& config, const Checkpoint& restored) {
  RebuildRange range;
  if (const auto unfinished = store_->unfinished_rebuild()) {
    range = *unfinished;
  } else if (restored.entry > store_->held_entry()) {
    range = {store_->held_entry(), restored.entry, restored.event, Judge::AheadOf(restored)};
  } else {
    return;
  }
  store_->BeginRebuild(range);
  StoreRebuildOptions o;
  o.directory = data_->journal();
  o.range = std::move(range);
  o.engine = JudgeOptionsOf(config).engine;
  o.busy = [this] { return judge_->catching_up() || journal_->writing_for() > kSlowCommit; };
  o.skipped = [quarantine = quarantine_.get()](const std::string& run) {
    return quarantine->Holds(run);
  };
  rebuild_ = std::make_unique<StoreRebuild>(std::move(o), gaps_.get(), store_.get());
}

void Pipeline::MakePacker(const Config& config, const std::string& version) {
  PackerOptions o;
  o.directory = data_->journal();
  o.tool_version = version;
  o.pack = config.journal_pack;
  o.settled = [this] { return checkpointer_->last_entry(); };
  o.busy = [this] { return judge_->catching_up() || journal_->writing_for() > kSlowCommit; };
  if (config.journal_keep_sample_days > 0) o.editor = MakeSampleRetention(config);
  packer_ = std::make_unique<SegmentPacker>(std::move(o), &segments_);
}

std::shared_ptr<SegmentEditor> Pipeline::MakeSampleRetention(const Config& config) {
  SampleRetentionOptions o;
  o.keep = NanosecondsOf(config.journal_keep_sample_days * 86400);
  o.unix_ns = [] { return static_cast<int64_t>(UnixNs()); };
  o.needed = [this] {
    NeededSamples needed;
    const v1::IncidentBookState book = incident_table_->Checkpoint();
    for (const v1::IncidentState& state : book.incidents()) {
      if (state.incident().has_finding()) needed.Add(state.incident().finding());
      for (const v1::IncidentMember& member : state.members()) needed.Add(member.finding());
    }
    return needed;
  };
  return std::make_shared<SampleRetention>(std::move(o), counters_);
}

// Checks to the end of the journal, because a loss that begins before the checkpoint and ends after
// it is a single loss.
void Pipeline::MakeCheck() {
  JournalCheckOptions o;
  o.directory = data_->journal();
  o.last = scan_.last;
  o.busy = [this] { return judge_->catching_up() || journal_->writing_for() > kSlowCommit; };
  check_ = std::make_unique<JournalCheck>(std::move(o), gaps_.get());
}

RunReaderOptions Pipeline::ReaderOptions(const Config& config) const {
  RunReaderOptions options;
  options.directory = data_->journal();
  options.committed = [journal = journal_.get()] { return journal->committed(); };
  options.judged = [judge = judge_.get()] { return judge->judged_entry(); };
  options.window_steps = config.window_steps;
  options.run_bytes = kRunBytes;
  options.rules = config.rules;
  options.settings = config.settings;
  return options;
}

std::unique_ptr<RunReader> Pipeline::MakeReader(const Config& config) {
  if (data_ == nullptr) return nullptr;
  return MakeRunReader(ReaderOptions(config), gaps_.get());
}

// The returned function is called long after Open, once there is a journal.
OpenRun Pipeline::RetryReader(const Config& config) const {
  return [this, config](const std::string& run, uint64_t newest) -> absl::StatusOr<RunItems> {
    RunReaderOptions options = ReaderOptions(config);
    options.committed = [newest] { return newest; };
    auto cursor = MakeRunReader(std::move(options), gaps_.get())->Read(run);
    if (!cursor.ok()) return cursor.status();
    return RunItems([cursor = std::shared_ptr<RunCursor>(std::move(*cursor))](
                        v1::ReadRunItem* item) { return cursor->Next(item); });
  };
}

// Retention records the entries that it removes. So if entries before the oldest one are missing
// without a record, another program removed them. Entries before the checkpoint are checked later
// (journal_check.h).
void Pipeline::ReportScan() {
  std::vector<LostEntries> all = scan_.lost;
  if (scan_.oldest > 1) {
    for (LostEntries& lost : gaps_->NotTaken(scan_.oldest - 1)) {
      lost.where = absl::StrCat(SegmentPath(data_->journal(), lost.first), ": it is missing");
      all.push_back(std::move(lost));
    }
  }
  for (const LostEntries& lost : all) {
    if (auto s = gaps_->AddLost(lost); !s.ok()) {
      LogError("journal: a gap cannot be recorded: {}", std::string(s.message()));
    }
  }
  if (scan_.oldest > 0) {
    LogInfo("journal: entries {} to {}, {} streams", scan_.oldest, scan_.last,
            scan_.streams.streams().size());
  }
}

}  // namespace plumbline::server
