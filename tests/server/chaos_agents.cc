#include "tests/server/chaos_agents.h"

#include <algorithm>

#include "analysis/processes/quarantine_verdict.h"
#include "rules/engine/close_events.h"
#include "rules/engine/engine.h"
#include "rules/engine/report.h"
#include "server/journal/journal_reader.h"
#include "server/journal/journal_scan.h"

namespace plumbline::test {
namespace {

constexpr uint64_t kWindow = 24;  // fewer than the batches that may wait for one gap in the server

// Returns a step in columns. Only the first step declares them.
v1::Batch SeriesStep(const v1::Source& source, int64_t step, bool declares) {
  v1::Batch batch = ScalarStep(source, step);
  if (declares) {
    v1::SeriesSet& set = *batch.add_series_sets();
    set.set_id(17);
    set.add_sites()->set_op("loss2");
    set.add_sites()->set_op("grad_norm");
  }
  v1::SeriesRows& rows = *batch.add_series();
  rows.set_set(17);
  rows.add_source(0);
  rows.add_step(step);
  rows.add_value(1.0 / static_cast<double>(step + 1));
  rows.add_value(2.0);
  return batch;
}

// A field that only a newer build knows.
void AddUnknown(google::protobuf::Message* message) {
  message->GetReflection()->MutableUnknownFields(message)->AddLengthDelimited(900)->assign("news");
}

// Changes the step to that of a newer agent: extra fields everywhere, and new messages.
void MakeNewer(v1::Batch* batch) {
  AddUnknown(batch);
  for (v1::Evidence& e : *batch->mutable_evidence()) AddUnknown(&e);
  for (v1::Source& s : *batch->mutable_sources()) AddUnknown(&s);
  for (v1::Progress& p : *batch->mutable_progress()) AddUnknown(&p);
}

void TakeChange(const rules::Report::Change& change, Findings* findings) {
  if (change.finding == nullptr) return;
  const v1::Finding& finding = *change.finding;
  (*findings)[finding.fingerprint()] = {static_cast<int>(finding.level()),
                                        finding.measured().value(), change.count};
}

}  // namespace

ChaosAgent::ChaosAgent(uint64_t stream_id, const v1::Source& source, int64_t steps, unsigned seed,
                       Age age)
    : stream_id_(stream_id), source_(source), age_(age), random_(seed) {
  bool declared = false;
  for (int64_t step = 0; step < steps; ++step) {
    switch (random_() % 4) {
      case 0:
        batches_.push_back(LeakingStep(source, step));
        break;
      case 1:
        if (age_ == Age::kOldest) {
          batches_.push_back(ScalarStep(source, step));
          break;
        }
        batches_.push_back(SeriesStep(source, step, !std::exchange(declared, true)));
        break;
      default:
        batches_.push_back(ScalarStep(source, step, static_cast<double>(random_() % 100)));
    }
  }
  batches_.push_back(Goodbye(source, steps - 1));
  for (size_t i = 0; i < batches_.size(); ++i) {
    batches_[i].set_stream_id(stream_id);
    batches_[i].set_sequence(i + 1);
    if (age_ == Age::kNewer) MakeNewer(&batches_[i]);
  }
}

void ChaosAgent::Send(uint64_t sequence) {
  v1::AgentMessage message;
  *message.mutable_batch() = batch(sequence);
  if (age_ != Age::kOldest) message.mutable_backlog()->set_unsent_batches(size() - sequence);
  if (age_ == Age::kNewer) {
    AddUnknown(&message);
    v1::AgentMessage unheard_of;  // even its kind is unknown
    AddUnknown(&unheard_of);
    stream_->SendRaw(unheard_of);
  }
  stream_->SendRaw(message);
}

void ChaosAgent::Connect(const Plumbd& server) {
  stream_ = std::make_unique<AgentStream>(server, stream_id_, std::vector<v1::Source>{source_},
                                          acknowledged_ + 1);
  uint64_t held = 0;
  if (!stream_->Welcomed(&held)) return;
  if (held < acknowledged_) {
    broken_promise_ = "stream " + std::to_string(stream_id_) + ": acknowledged up to " +
                      std::to_string(acknowledged_) + ", but only " + std::to_string(held) +
                      " is held";
  }
  acknowledged_ = std::max(acknowledged_, held);
  sent_ = acknowledged_;
}

void ChaosAgent::NoteAcknowledged() {
  if (stream_ != nullptr) acknowledged_ = std::max(acknowledged_, stream_->acknowledged());
}

void ChaosAgent::Act(const Plumbd& server) {
  NoteAcknowledged();
  if (done()) return;
  if (stream_ == nullptr || stream_->over()) Connect(server);
  std::vector<uint64_t> now;
  while (sent_ < batches_.size() && sent_ < acknowledged_ + kWindow && now.size() < 6) {
    now.push_back(++sent_);
  }
  if (random_() % 4 == 0) std::shuffle(now.begin(), now.end(), random_);
  if (random_() % 3 == 0) now.push_back(1 + random_() % std::max<uint64_t>(sent_, 1));
  for (const uint64_t sequence : now) Send(sequence);
}

void ChaosAgent::Break() {
  NoteAcknowledged();
  stream_.reset();
}

Findings FindingsOfJournal(const std::string& directory) {
  Findings findings;
  std::map<std::string, rules::Report> reports;
  rules::EngineConfig config;
  config.hosted = true;
  auto engine = rules::Engine::Create(config, [&](const v1::Verdict& verdict) {
    TakeChange(reports[verdict.site().run()].Add(verdict), &findings);
  });
  // Reads events first: they are written after the batches that follow them in judged order.
  auto reader = server::JournalReader::Open(directory, 1);
  std::vector<v1::JournalEvent> events;
  std::vector<v1::Batch> batches;
  std::vector<uint64_t> numbers;
  server::StoredEntry entry;
  using Result = server::JournalReader::Result;
  for (Result result; (result = (*reader)->Next(&entry)) != Result::kEnd;) {
    if (result != Result::kEntry) continue;
    if (entry.type == FrameType::kJournalEvent) {
      events.emplace_back().ParseFromString(std::string(entry.body()));
    } else if (entry.type == FrameType::kJournalBatch) {
      batches.emplace_back().ParseFromString(std::string(entry.body()));
      numbers.push_back(entry.prefix.number);
    }
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const auto& a, const auto& b) { return a.after() < b.after(); });
  size_t next = 0;
  const auto report_until = [&](uint64_t number) {
    for (; next < events.size() && events[next].after() < number; ++next) {
      const v1::JudgeEvent& event = events[next].event();
      rules::ApplyCloses(event, "", engine->get());
      if (const auto opened = analysis::QuarantineOpened(event))
        TakeChange(reports[opened->site().run()].Add(*opened), &findings);
    }
  };
  for (size_t i = 0; i < batches.size(); ++i) {
    report_until(numbers[i]);
    (void)(*engine)->Add(std::move(batches[i]));
  }
  report_until(~uint64_t{0});
  return findings;
}

Findings FindingsOfBatches(const std::vector<v1::Batch>& batches, const std::string& run) {
  Findings findings;
  rules::Report report;
  rules::EngineConfig config;
  config.hosted = true;
  auto engine = rules::Engine::Create(
      config, [&](const v1::Verdict& verdict) { TakeChange(report.Add(verdict), &findings); });
  for (const v1::Batch& batch : batches) (void)(*engine)->Add(batch);
  (*engine)->FinishRun(run);
  return findings;
}

Findings FindingsOf(const Plumbd& server, const std::string& run) {
  Findings findings;
  for (const v1::IncidentStatus& status : server.Statuses(run)) {
    for (const v1::IncidentSite& site : status.sites()) {
      const v1::Finding finding = server.Finding(site.fingerprint());
      findings[site.fingerprint()] = {static_cast<int>(site.level()), finding.measured().value(),
                                      site.count()};
    }
  }
  return findings;
}

std::map<uint64_t, std::map<uint64_t, std::vector<std::string>>> BatchesOfJournal(
    const std::string& directory) {
  std::map<uint64_t, std::map<uint64_t, std::vector<std::string>>> all;
  auto reader = server::JournalReader::Open(directory, 1);
  server::StoredEntry entry;
  using Result = server::JournalReader::Result;
  for (Result result; (result = (*reader)->Next(&entry)) != Result::kEnd;) {
    if (result == Result::kEntry && entry.type == FrameType::kJournalBatch) {
      all[entry.prefix.stream_id][entry.prefix.sequence].emplace_back(entry.body());
    }
  }
  return all;
}

}  // namespace plumbline::test
