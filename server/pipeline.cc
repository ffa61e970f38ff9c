#include "server/pipeline.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "server/journal/checkpoint_file.h"
#include "server/journal/journal_run_reader.h"

namespace plumbline::server {
namespace {

std::chrono::nanoseconds Seconds(double s) {
  return std::chrono::nanoseconds(static_cast<int64_t>(s * 1e9));
}

JudgeOptions JudgeOptionsOf(const Config& c) {
  JudgeOptions o;
  o.engine.rules = c.rules;
  o.engine.settings = c.settings;
  o.engine.window_steps = c.window_steps;
  o.grace = Seconds(c.grace_seconds);
  o.queue_bytes = static_cast<size_t>(c.queue_bytes);
  o.checkpoint_bytes = static_cast<uint64_t>(c.checkpoint_bytes);
  o.checkpoint_interval = Seconds(c.checkpoint_seconds);
  return o;
}

JournalOptions JournalOptionsOf(const Config& c, const std::string& version) {
  JournalOptions o;
  o.segments.tool_version = version;
  o.segments.sync = c.journal_sync == "commit"     ? SyncPolicy::kCommit
                    : c.journal_sync == "interval" ? SyncPolicy::kInterval
                                                   : SyncPolicy::kNever;
  o.segments.sync_interval = Seconds(c.journal_sync_seconds);
  o.segments.segment_bytes = static_cast<uint64_t>(c.journal_segment_bytes);
  o.segments.compress = c.journal_compress;
  o.commit_delay = Seconds(c.journal_commit_ms / 1000);
  o.commit_bytes = static_cast<size_t>(c.journal_commit_bytes);
  o.unix_ns = [] { return static_cast<int64_t>(UnixNs()); };
  return o;
}

RetentionOptions RetentionOptionsOf(const Config& c) {
  RetentionOptions o;
  o.keep_bytes = static_cast<uint64_t>(c.journal_keep_bytes);
  o.keep = Seconds(c.journal_keep_days * 86400);
  return o;
}

}  // namespace

Pipeline::~Pipeline() { Stop(); }

void Pipeline::Stop() {
  if (journal_ != nullptr) journal_->Stop();
  if (judge_ != nullptr) judge_->Stop();
  if (checkpointer_ != nullptr) checkpointer_->Stop();
}

absl::Status Pipeline::MakeJudge(const JudgeOptions& options) {
  book_ = std::make_unique<IncidentBook>([this] { return judge_->unix_ns(); });
  auto judge = Judge::Create(options, book_.get(), gaps_.get(), counters_);
  if (!judge.ok()) return judge.status();
  judge_ = std::move(*judge);
  return absl::OkStatus();
}

absl::Status Pipeline::Open(const Config& config, const std::string& version) {
  const JudgeOptions options = JudgeOptionsOf(config);
  JournalOptions journal = JournalOptionsOf(config, version);
  Replay replay;
  if (config.data_directory.empty()) {
    spdlog::warn("no --data: nothing is kept; what was acknowledged is lost with this process");
    gaps_ = GapBook::InMemory();
    if (auto s = MakeJudge(options); !s.ok()) return s;
  } else {
    if (auto s = TakeUp(options, config, version, &replay); !s.ok()) return s;
    journal.segments.directory = data_->journal();
  }
  journal.on_stall = [judge = judge_.get()](bool stalled) { judge->Hold(stalled); };
  journal_ = std::make_unique<Journal>(std::move(journal), scan_.last, scan_.streams, counters_);
  judge_->Start(journal_.get(), checkpointer_.get(), std::move(replay));
  return absl::OkStatus();
}

absl::Status Pipeline::TakeUp(const JudgeOptions& options, const Config& config,
                              const std::string& version, Replay* replay) {
  auto data = DataDirectory::Open(config.data_directory);
  if (!data.ok()) return data.status();
  data_ = std::move(*data);
  auto gaps = GapBook::Open(data_->gaps());
  if (!gaps.ok()) return gaps.status();
  gaps_ = std::move(*gaps);
  Checkpoint restored;
  if (auto s = RestoreNewest(options, &restored); !s.ok()) return s;

  auto scan =
      ScanJournal(data_->journal(), restored.entry + 1, static_cast<size_t>(config.max_streams));
  if (!scan.ok()) return scan.status();
  scan_ = std::move(*scan);
  ReportScan();
  replay->directory = data_->journal();
  replay->from = std::max(restored.entry + 1, scan_.oldest);
  replay->to = scan_.last;
  for (StoredEvent& event : scan_.events) {
    if (event.number > restored.event) replay->events.push_back(std::move(event));
  }
  if (replay->from > restored.entry + 1) {
    spdlog::error(
        "journal: entries {} to {} are gone and no checkpoint knows them: rules begin anew",
        restored.entry + 1, replay->from - 1);
  }
  // A number that was used is never used again, even if the host lost what had it.
  scan_.last = std::max({scan_.last, restored.entry, restored.event});

  retention_ =
      std::make_unique<Retention>(data_->journal(), RetentionOptionsOf(config), gaps_.get());
  checkpointer_ = std::make_unique<Checkpointer>(
      data_->checkpoint(), version, counters_,
      [this](uint64_t entry) { retention_->Apply(entry, static_cast<int64_t>(UnixNs())); });
  return absl::OkStatus();
}

// The newest checkpoint that can be read makes the judge; without one it knows nothing.
absl::Status Pipeline::RestoreNewest(const JudgeOptions& options, Checkpoint* restored) {
  auto checkpoints = ListCheckpoints(data_->checkpoint());
  if (!checkpoints.ok()) return checkpoints.status();
  for (const CheckpointName& name : *checkpoints) {
    auto checkpoint = ReadCheckpoint(name.path);
    absl::Status usable = checkpoint.status();
    if (usable.ok()) {
      if (auto s = MakeJudge(options); !s.ok()) return s;
      usable = judge_->Restore(*checkpoint);
    }
    if (usable.ok()) {
      *restored = std::move(*checkpoint);
      spdlog::info("checkpoint at entry {} taken up", restored->entry);
      return absl::OkStatus();
    }
    spdlog::warn("{} is not used: {}", name.path, std::string(usable.message()));
  }
  *restored = Checkpoint();
  return MakeJudge(options);
}

std::unique_ptr<RunReader> Pipeline::MakeReader(const Config& config) {
  if (data_ == nullptr) return nullptr;
  RunReaderOptions options;
  options.directory = data_->journal();
  options.committed = [journal = journal_.get()] { return journal->committed(); };
  options.judged = [judge = judge_.get()] { return judge->judged_entry(); };
  options.window_steps = config.window_steps;
  options.rules = config.rules;
  options.settings = config.settings;
  return MakeRunReader(std::move(options), gaps_.get());
}

void Pipeline::ReportScan() {
  for (const LostEntries& lost : scan_.lost) {
    counters_->journal_lost += lost.last - lost.first + 1;
    spdlog::error("journal: {}; entries {} to {} are lost", lost.where, lost.first, lost.last);
    if (auto s = gaps_->AddLost(lost); !s.ok()) {
      spdlog::error("journal: a gap cannot be noted: {}", std::string(s.message()));
    }
  }
  if (scan_.oldest > 0) {
    spdlog::info("journal: entries {} to {}, {} streams", scan_.oldest, scan_.last,
                 scan_.streams.streams().size());
  }
}

}  // namespace plumbline::server
