#include "server/rebuild/store_rebuild.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rules/engine/close_events.h"
#include "server/journal/journal_reader.h"
#include "server/journal/stream_positions.h"
#include "server/process/log.h"
#include "server/process/thread_priority.h"
#include "server/stream/batch_checks.h"

namespace plumbline::server {
namespace {

using Clock = std::chrono::steady_clock;

// Uses at most half of a processor.
constexpr std::chrono::milliseconds kWorkTime{20}, kRestTime{20};
constexpr char kCheapRule[] = "meta/data-loss";  // an engine has at least one

constexpr char kLostValues[] =
    "store-rebuilt: the store was lost or replaced by an older copy, and the journal no longer "
    "holds these steps";

}  // namespace

void StoreRebuild::Start() {
  thread_ = std::thread([this] {
    LowerThreadPriority();
    Run();
  });
}

void StoreRebuild::Stop() {
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
  }
  wake_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

// Returns false if it must stop.
bool StoreRebuild::GoOn() {
  MutexLock lock(mutex_);
  const auto stopped = [this]() PLUMB_REQUIRES(mutex_) { return stopped_; };
  while (!stopped_ && (Clock::now() >= rest_at_ || options_.busy())) {
    if (wake_.WaitFor(lock, kRestTime, stopped)) return false;
    rest_at_ = Clock::now() + kWorkTime;
  }
  return !stopped_;
}

void StoreRebuild::Run() {
  ReportGaps();
  rules::EngineConfig config = options_.engine;
  config.rules = {kCheapRule};
  config.settings.clear();
  config.suppressions.clear();
  config.hosted = true;
  auto engine = rules::Engine::Create(config, [](const v1::Verdict&) {});
  if (!engine.ok()) {
    LogError("the store is not rebuilt: {}", std::string(engine.status().message()));
    store_->EndRebuild();
    return;
  }
  (*engine)->SetOnSeries([this](const rules::StepSeries& series) {
    if (next_ < options_.range.after) return;  // the store holds it
    values_ += store_->AddRebuilt(next_, series);
  });
  LogInfo(
      "the store contains entries up to {}, the judge begins after {}: the entries between them "
      "are read again",
      options_.range.after, options_.range.through);
  std::vector<StoredEvent> events;
  if (!ReadEvents(&events) || !ReadBatches(events, engine->get())) return;
  store_->EndRebuild();
  LogInfo("the store is rebuilt: {} values restored", values_);
}

// Returns false if stopped. Events are written after the batches that follow them in judged order.
bool StoreRebuild::ReadEvents(std::vector<StoredEvent>* events) {
  auto reader = JournalReader::Open(options_.directory, 1, options_.range.event);
  if (!reader.ok()) {
    LogError("the store is not rebuilt: {}", std::string(reader.status().message()));
    return false;
  }
  StoredEntry entry;
  while (GoOn()) {
    const JournalReader::Result result = (*reader)->Next(&entry);
    if (result == JournalReader::Result::kEnd) {
      InJudgedOrder(events);
      return true;
    }
    if (result != JournalReader::Result::kEntry || entry.type != FrameType::kJournalEvent) continue;
    StoredEvent stored{entry.prefix.number, entry.prefix.unix_ns, {}};
    const std::string_view body = entry.body();
    if (stored.event.ParseFromArray(body.data(), static_cast<int>(body.size())))
      events->push_back(std::move(stored));
  }
  return false;
}

bool StoreRebuild::ReadBatches(const std::vector<StoredEvent>& events, rules::Engine* engine) {
  uint64_t last = options_.range.through;
  for (const auto& [run, ahead] : options_.range.ahead) last = std::max(last, ahead);
  auto reader = JournalReader::Open(options_.directory, 1, last);
  if (!reader.ok()) return false;
  size_t next = 0;
  const auto apply_until = [&](uint64_t entry) {
    for (; next < events.size() && events[next].event.after() < entry; ++next)
      rules::ApplyCloses(events[next].event.event(), "", engine);
  };
  StoredEntry entry;
  while (GoOn()) {
    const JournalReader::Result result = (*reader)->Next(&entry);
    if (result == JournalReader::Result::kEnd) {
      apply_until(JournalReader::kAll);
      return true;
    }
    if (result == JournalReader::Result::kStreams) DeclareStreams(entry.payload, engine);
    if (result != JournalReader::Result::kEntry || entry.type != FrameType::kJournalBatch) continue;
    apply_until(entry.prefix.number);
    next_ = entry.prefix.number;
    Take(entry, engine);
  }
  return false;
}

void StoreRebuild::Take(const StoredEntry& entry, rules::Engine* engine) {
  auto batch = std::make_shared<v1::Batch>();
  const std::string_view body = entry.body();
  if (!batch->ParseFromArray(body.data(), static_cast<int>(body.size()))) return;
  if (!CheckKept(*batch).ok()) return;
  batch->set_sequence(entry.prefix.sequence);
  // The judge had judged some runs further than the others. The runs of one batch are judged
  // together.
  const auto known = [&](const v1::Source& source) {
    const auto ahead = options_.range.ahead.find(source.run());
    return ahead != options_.range.ahead.end() && entry.prefix.number <= ahead->second;
  };
  const auto& sources = batch->sources();
  const bool skipped =
      std::any_of(sources.begin(), sources.end(),
                  [this](const v1::Source& source) { return options_.skipped(source.run()); });
  const bool later = entry.prefix.number > options_.range.through &&
                     !std::any_of(sources.begin(), sources.end(), known);
  if (skipped || later) {
    (void)engine->DeclareSets(*batch);
    return;
  }
  // As in the judge: refused evidence is lost, but its progress counts.
  if (!engine->Add(batch).ok()) (void)engine->AddRefused(*batch);
}

void StoreRebuild::DeclareStreams(std::string_view payload, rules::Engine* engine) {
  StreamPositions streams(~size_t{0});
  streams.Add(payload);
  for (const auto& [id, stream] : streams.streams()) {
    v1::Batch declared;
    declared.set_stream_id(id);
    for (const auto& [set, record] : stream.sets) declared.MergeFromString(record);
    declared.clear_sources();
    if (!declared.series_sets().empty()) (void)engine->DeclareSets(declared);
  }
}

// Reports entries that retention removed from the journal and that the store does not hold.
void StoreRebuild::ReportGaps() {
  for (v1::Gap& gap : gaps_->TakenAfter(options_.range.after)) {
    gap.set_reason(kLostValues);
    store_->AddGap(gap);
  }
}

}  // namespace plumbline::server
