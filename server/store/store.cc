#include "server/store/store.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "server/process/confirmed_clock.h"
#include "server/process/log.h"
#include "server/store/catalogue.h"
#include "server/store/catalogue_loader.h"
#include "server/store/job_queue.h"
#include "server/store/open_block.h"
#include "server/store/series_query.h"
#include "server/store/span_view.h"
#include "server/store/store_database.h"
#include "server/store/tile_reader.h"

namespace plumbline::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kTakenBytes = 64u << 20;  // of jobs in one transaction
constexpr std::chrono::milliseconds kRetry{500};

class StoreImpl : public Store {
 public:
  explicit StoreImpl(const StoreOptions& options)
      : options_(options),
        unix_s_(options.unix_s ? options.unix_s : [this] { return clock_.Now() / 1'000'000'000; }),
        queue_(options.queue_bytes) {}

  ~StoreImpl() override {
    if (!thread_.joinable()) return;
    Flush();
    queue_.Close();
    thread_.join();
  }

  absl::Status Start() {
    auto database = StoreDatabase::Open(options_.path, options_.origin);
    if (!database.ok()) return database.status();
    database_ = std::move(*database);
    const MutexLock lock(mutex_);
    problem_ = database_->problem();
    held_ = database_->position();
    if (auto s = LoadCatalogue(database_->writer_database(), &catalogue_); !s.ok()) return s;
    bytes_ = database_->Bytes();
    thread_ = std::thread([this] { WriteLoop(); });
    return absl::OkStatus();
  }

  // ---- called by the judging threads ----

  void AddSeries(uint64_t entry, const rules::StepSeries& series) override {
    if (series.rows.empty()) return;
    Building& building = BuildingOf(std::string(series.run));
    Span* span = SpanFor(entry, series, building);
    if (span == nullptr) return;
    std::shared_ptr<ClosedStep>& step = building[span];
    if (step != nullptr && step->step != series.step) Publish(span, std::exchange(step, nullptr));
    if (step == nullptr) {
      step = std::make_shared<ClosedStep>();
      step->step = series.step;
      step->entry = entry;
    }
    AddPart(series, ColumnsFor(span, series.columns), step.get());
  }

  void EndEntry(const std::string& run) override {
    Building ended;
    {
      const MutexLock lock(building_mutex_);
      const auto found = building_.find(run);
      if (found == building_.end()) return;
      ended = std::move(found->second);
      building_.erase(found);
    }
    for (auto& [span, step] : ended) Publish(span, std::move(step));
  }

  void FinishRun(const std::string& run) override {
    EndEntry(run);
    for (Span* span : SpansOf(run)) {
      if (span->rebuilt()) continue;  // belongs to the rebuilding thread
      QueueBlock(span, true);
      span->columns.clear();
    }
  }

  void ForgetRun(const std::string& run) override {
    FinishRun(run);
    uint32_t id = 0;
    {
      const MutexLock lock(mutex_);
      if (rebuilds_) return;
      id = catalogue_.FindRun(run);
      if (id != 0) catalogue_.Forget(run, id);
    }
    if (id != 0) Push(ForgottenRun{id, run}, 0);
  }

  void AddGap(const v1::Gap& gap) override { Push(GapJob{gap}, 0); }

  void AddRevision(const std::string& fingerprint, const v1::IncidentRevision& revision) override {
    Push(RevisionJob{fingerprint, revision}, 0);
  }

  void Judged(uint64_t entry) override { entry_ = entry; }

  uint64_t Flush() override {
    while (const auto run = AnyBuilding()) EndEntry(*run);
    std::vector<Span*> spans;
    {
      const MutexLock lock(mutex_);
      spans = catalogue_.Spans();
    }
    for (Span* span : spans) {
      if (!span->rebuilt()) QueueBlock(span, false);
    }
    // Before the first entry, and while entries are replayed, the store is further than they are.
    Push(PositionJob{std::max<uint64_t>(entry_, held_entry()), ++ticket_}, 0);
    return ticket_;
  }

  // ---- called by the rebuilding thread ----

  void BeginRebuild(const RebuildRange& range) override {
    RebuildRange kept = range;
    Archive writes;
    kept.Persist(writes);
    Push(RebuildJob{writes.Take()}, 0);
    rebuild_ = range;
    const MutexLock lock(mutex_);
    rebuilds_ = true;
  }

  std::optional<RebuildRange> unfinished_rebuild() const override {
    const std::string& bytes = database_->rebuild();
    if (bytes.empty()) return std::nullopt;
    Archive reads(bytes);
    RebuildRange range;
    range.Persist(reads);
    return reads.ok() ? std::optional(range) : std::nullopt;
  }

  uint64_t AddRebuilt(uint64_t entry, const rules::StepSeries& series) override {
    if (series.rows.empty()) return 0;
    Span* span = RebuiltSpanFor(entry, series);
    if (span == nullptr) return 0;
    std::shared_ptr<ClosedStep>& step = rebuilding_[span];
    if (step != nullptr && step->step != series.step) Publish(span, std::exchange(step, nullptr));
    if (step == nullptr) {
      step = std::make_shared<ClosedStep>();
      step->step = series.step;
      step->entry = entry;
    }
    const uint64_t before = step->samples;
    AddPart(series, ColumnsFor(span, series.columns), step.get());
    return step->samples - before;
  }

  void EndRebuild() override {
    for (auto& [span, step] : rebuilding_) {
      Publish(span, std::move(step));
      QueueBlock(span, true);
      span->columns.clear();
    }
    rebuilding_.clear();
    Push(RebuildJob{}, 0);
  }

  bool rebuilding() const override {
    const MutexLock lock(mutex_);
    return rebuilds_;
  }

  // ---- called by any thread ----

  uint64_t held_entry() const override {
    const MutexLock lock(mutex_);
    return held_;
  }

  bool WaitFlushed(uint64_t ticket, std::chrono::milliseconds time) override {
    MutexLock lock(mutex_);
    written_.WaitFor(lock, time,
                     [&]() PLUMB_REQUIRES(mutex_) { return flushed_ >= ticket || set_aside_; });
    return flushed_ >= ticket;
  }

  absl::Status QuerySeries(const v1::QuerySeriesRequest& request,
                           v1::QuerySeriesResponse* response) override {
    const auto start = Clock::now();
    RunView view;
    if (auto s = View(request.run(), request.series(), &view); !s.ok()) return s;
    std::vector<int64_t> damaged;
    absl::Status status = database_->Read([&](TileReader* reader) {
      return server::QuerySeries(request, view, reader, response, &damaged);
    });
    for (const int64_t tile : damaged) queue_.Push(DamagedTileJob{tile}, 0);
    if (status.code() == absl::StatusCode::kDataLoss)
      queue_.Push(NameRows{}, 0);  // wakes the writer
    response->set_server_ns(static_cast<uint64_t>((Clock::now() - start).count()));
    return status;
  }

  absl::Status ListSeries(const v1::ListSeriesRequest& request,
                          v1::ListSeriesResponse* response) override {
    RunView view;
    if (auto s = View(request.run(), request.series(), &view); !s.ok()) return s;
    return database_->Read(
        [&](TileReader* reader) { return server::ListSeries(view, reader, response); });
  }

  absl::StatusOr<std::vector<v1::IncidentRevision>> History(
      const std::string& fingerprint) override {
    absl::StatusOr<std::vector<v1::IncidentRevision>> history;
    const absl::Status status = database_->Read([&](TileReader* reader) {
      history = reader->History(fingerprint);
      return history.status();
    });
    return status.ok() ? std::move(history) : absl::StatusOr<decltype(history)::value_type>(status);
  }

  void FillRun(v1::RunInfo* info) override {
    database_
        ->Read([&](TileReader* reader) {
          auto gaps = reader->Gaps(info->run());
          if (!gaps.ok()) return gaps.status();
          for (v1::Gap& gap : *gaps) *info->add_gaps() = std::move(gap);
          return absl::OkStatus();
        })
        .IgnoreError();  // Info reports the problem of the database
    const MutexLock lock(mutex_);
    AddAttempts(catalogue_, info);
  }

  v1::StoreInfo Info() override {
    v1::StoreInfo info;
    const MutexLock lock(mutex_);
    info.set_path(options_.path);
    info.set_problem(problem_);
    info.set_samples(samples_);
    info.set_tiles(tiles_);
    info.set_bytes(bytes_);
    info.set_entry(held_);
    info.set_longest_seal_wait_ns(longest_wait_.count());
    info.set_dropped_tiles(dropped_tiles_);
    return info;
  }

 private:
  using Building = std::map<Span*, std::shared_ptr<ClosedStep>>;

  // Returns the run's steps under construction. The reference is valid until the run's entry ends.
  Building& BuildingOf(const std::string& run) {
    const MutexLock lock(building_mutex_);
    return building_[run];
  }

  std::optional<std::string> AnyBuilding() const {
    const MutexLock lock(building_mutex_);
    return building_.empty() ? std::nullopt : std::optional(building_.begin()->first);
  }

  Span* FindSpan(uint32_t run, const rules::StepSeries& series) PLUMB_REQUIRES(mutex_) {
    if (!series.late) return catalogue_.Find(run, series.attempt, series.role);
    return catalogue_.FindLate(run, series.attempt, series.role, series.rows[0].rank);
  }

  Span* AddSpan(uint32_t run, const rules::StepSeries& series) PLUMB_REQUIRES(mutex_) {
    if (!series.late) return catalogue_.Add(run, series.attempt, series.role);
    return catalogue_.AddLate(run, series.attempt, series.role, series.rows[0].rank);
  }

  // Returns nullptr if the store has this step already, or no space for another span of late steps.
  Span* SpanFor(uint64_t entry, const rules::StepSeries& series, const Building& building) {
    const MutexLock lock(mutex_);
    const uint32_t run = catalogue_.Run(series.run);
    Span* span = FindSpan(run, series);
    if (span != nullptr && span->sealed &&
        std::pair(entry, series.step) <= std::pair(span->sealed_entry, span->sealed_step)) {
      return nullptr;
    }
    if (span == nullptr) return AddSpan(run, series);
    const auto built = building.find(span);
    const int64_t newest = built != building.end() && built->second != nullptr
                               ? built->second->step - 1
                               : span->last_step;
    // If a step is repeated under the same attempt, the run started again, or it was forgotten.
    const bool anew = !span->empty() && series.step <= newest;
    if (!anew) return span;
    return series.late ? AddSpan(run, series)
                       : catalogue_.Add(run, series.attempt, series.role, series.resumed);
  }

  // Returns nullptr if the store has this step already, or no space for another such span.
  Span* RebuiltSpanFor(uint64_t entry, const rules::StepSeries& series) {
    const MutexLock lock(mutex_);
    const uint32_t run = catalogue_.Run(series.run);
    const auto sealed = [&](const Span* span) {
      return span != nullptr && span->sealed &&
             std::pair(entry, series.step) <= std::pair(span->sealed_entry, span->sealed_step);
    };
    // The store may hold only a part of the last entry.
    if (entry <= rebuild_.after && sealed(FindSpan(run, series))) return nullptr;
    const uint32_t rank = RebuiltRank(series.late, series.rows[0].rank);
    Span* span = catalogue_.FindLate(run, series.attempt, series.role, rank);
    if (sealed(span)) return nullptr;  // sealed by an earlier process
    const auto built = span == nullptr ? rebuilding_.end() : rebuilding_.find(span);
    const int64_t newest = built != rebuilding_.end() && built->second != nullptr
                               ? built->second->step - 1
                           : span != nullptr ? span->last_step
                                             : 0;
    const bool anew = span != nullptr && !span->empty() && series.step <= newest;
    return span == nullptr || anew ? catalogue_.AddLate(run, series.attempt, series.role, rank)
                                   : span;
  }

  std::shared_ptr<const StoredColumns> ColumnsFor(
      Span* span, const std::shared_ptr<const rules::SeriesColumns>& names) {
    const auto known = span->columns.find(names.get());
    if (known != span->columns.end()) return known->second;
    auto columns = std::make_shared<StoredColumns>();
    columns->names = names;
    const MutexLock lock(mutex_);
    for (const v1::Site& site : names->sites)
      columns->series.push_back(catalogue_.Series(span->run, span->role, site));
    return span->columns[names.get()] = std::move(columns);
  }

  std::vector<Span*> SpansOf(const std::string& run) {
    const MutexLock lock(mutex_);
    return catalogue_.SpansOf(catalogue_.FindRun(run));
  }

  void Publish(Span* span, std::shared_ptr<ClosedStep> built) {
    if (built == nullptr) return;
    const ClosedStepPtr step = std::move(built);
    Span* full = nullptr;
    {
      const MutexLock lock(mutex_);
      if (span->empty()) span->first_step = step->step;
      span->last_step = step->step;
      span->samples += step->samples;
      samples_ += step->samples;
      if (span->block_steps == 0) span->block_steps = BlockSteps(*step);
      span->steps.push_back(step);
      span->block_bytes += step->bytes;
      open_bytes_ += step->bytes;
      if (span->steps.size() - span->queued >= span->block_steps) {
        full = span;
      } else if (open_bytes_ >= options_.open_bytes) {
        full = span->rebuilt() ? span : Largest();
      }
    }
    if (full != nullptr) QueueBlock(full, true);
  }

  Span* Largest() const PLUMB_REQUIRES(mutex_) {
    const std::vector<Span*> spans = catalogue_.Spans();
    const auto weight = [](const Span* span) { return span->rebuilt() ? 0 : span->block_bytes; };
    return *std::max_element(spans.begin(), spans.end(),
                             [&](const Span* a, const Span* b) { return weight(a) < weight(b); });
  }

  // Passes the open block on: complete, or the part that is not written yet.
  void QueueBlock(Span* span, bool whole) {
    std::optional<BlockJob> job;
    size_t bytes = 0;
    {
      const MutexLock lock(mutex_);
      bytes = span->block_bytes;
      job = TakeBlock(span, whole);
      if (!job) return;
      if (whole) open_bytes_ -= bytes;
    }
    Push(std::move(*job), bytes, span->run);
  }

  // Queues fresh names first, because later jobs of any thread use them.
  void Push(StoreJob job, size_t bytes, uint32_t run = 0) {
    {
      const MutexLock order(names_order_);
      NameRows names;
      {
        const MutexLock lock(mutex_);
        names = catalogue_.TakeFresh();
      }
      if (!names.runs.empty() || !names.series.empty()) queue_.Push(std::move(names), 0);
    }
    const std::chrono::nanoseconds waited = queue_.Push(std::move(job), bytes, run);
    const MutexLock lock(mutex_);
    longest_wait_ = std::max(longest_wait_, waited);
  }

  absl::Status View(const std::string& run, const std::string& glob, RunView* view) {
    const MutexLock lock(mutex_);
    return ViewRun(catalogue_, run, glob, view);
  }

  // ---- called by the writer's thread ----

  void WriteLoop() {
    for (;;) {
      const std::vector<StoreJob> jobs = queue_.Take(kTakenBytes);
      if (jobs.empty()) return;
      if (!WriteUntilDone(jobs)) return;
      Written(jobs);
      queue_.Done();
    }
  }

  // Retries while the disk is full. Returns false if the store is closed meanwhile; the journal
  // restores unwritten data.
  bool WriteUntilDone(const std::vector<StoreJob>& jobs) {
    for (bool stated = false;; stated = true) {
      const absl::Status status = database_->Write(jobs, options_.limits, unix_s_());
      if (status.ok()) {
        if (stated) LogInfo("{}: writing works again", options_.path);
        return true;
      }
      if (!stated) LogError("the store cannot be written: {}", std::string(status.message()));
      Problem(std::string(status.message()));
      if (status.code() == absl::StatusCode::kDataLoss) {
        database_->SetAside();
        if (database_->Write({AllNames()}, {}, unix_s_()).ok()) continue;
      }
      if (queue_.WaitClosed(kRetry)) return false;
    }
  }

  void Problem(std::string problem) {
    const MutexLock lock(mutex_);
    problem_ = std::move(problem);
  }

  void Written(const std::vector<StoreJob>& jobs) {
    const uint64_t bytes = database_->Bytes(), tiles = database_->tiles();
    const MutexLock lock(mutex_);
    for (const StoreJob& job : jobs) {
      if (const auto* block = std::get_if<BlockJob>(&job)) {
        const SpanRow& row = block->span;
        // Null: its run was forgotten.
        Span* const span = catalogue_.Find(row.run, row.attempt, row.role, row.generation);
        if (span != nullptr) BlockWritten(*block, span);
      } else if (const auto* rebuild = std::get_if<RebuildJob>(&job)) {
        rebuilds_ = !rebuild->range.empty();
      } else if (const auto* position = std::get_if<PositionJob>(&job)) {
        // Data that will be gone at the next start does not count as held.
        set_aside_ = database_->set_aside();
        if (set_aside_) continue;
        held_ = std::max(held_, position->entry);
        flushed_ = position->ticket;
      }
    }
    problem_ = database_->problem();
    tiles_ = tiles;
    dropped_tiles_ = database_->dropped_tiles();
    bytes_ = bytes;
    written_.NotifyAll();
  }

  // Returns all names, for a new database.
  NameRows AllNames() {
    const MutexLock lock(mutex_);
    return catalogue_.Names();
  }

  const StoreOptions options_;
  ConfirmedClock clock_;  // used by the writing thread
  const std::function<int64_t()> unix_s_;
  std::unique_ptr<StoreDatabase> database_;
  JobQueue queue_;

  std::atomic<uint64_t> entry_{0};
  // Used by the thread that flushes: one at a time.
  uint64_t ticket_ = 0;

  // Guards only the map. The steps that a run's entry closes, span by span, belong to its judging
  // thread, and so do the `columns` of the run's spans.
  mutable Mutex building_mutex_;
  std::map<std::string, Building> building_ PLUMB_GUARDED_BY(building_mutex_);
  // Used by the rebuilding thread.
  RebuildRange rebuild_;
  Building rebuilding_;
  Mutex names_order_;  // held while fresh names are taken and queued

  mutable Mutex mutex_;  // guards what follows
  CondVar written_;
  Catalogue catalogue_ PLUMB_GUARDED_BY(mutex_);
  bool rebuilds_ PLUMB_GUARDED_BY(mutex_) = false;
  uint64_t held_ PLUMB_GUARDED_BY(mutex_) = 0;
  uint64_t flushed_ PLUMB_GUARDED_BY(mutex_) = 0;  // ticket
  bool set_aside_ PLUMB_GUARDED_BY(mutex_) = false;
  std::string problem_ PLUMB_GUARDED_BY(mutex_);
  size_t open_bytes_ PLUMB_GUARDED_BY(mutex_) = 0;  // of steps that are in no block yet
  uint64_t samples_ PLUMB_GUARDED_BY(mutex_) = 0;
  uint64_t tiles_ PLUMB_GUARDED_BY(mutex_) = 0;
  uint64_t bytes_ PLUMB_GUARDED_BY(mutex_) = 0;
  uint64_t dropped_tiles_ PLUMB_GUARDED_BY(mutex_) = 0;
  std::chrono::nanoseconds longest_wait_ PLUMB_GUARDED_BY(mutex_){0};

  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> Store::Open(const StoreOptions& options) {
  auto store = std::make_unique<StoreImpl>(options);
  if (auto s = store->Start(); !s.ok()) return s;
  return std::unique_ptr<Store>(std::move(store));
}

}  // namespace plumbline::server
