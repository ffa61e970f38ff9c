// The judge with its journal, without sockets: runs that are over are kept up to a limit, a
// forgotten run continues when it returns, and a retry counts nothing twice.
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <memory>
#include <thread>

#include "plumbline/v1/journal.pb.h"
#include "server/assembly/pipeline.h"
#include "server/journal/journal_reader.h"
#include "server/judge/quarantine.h"
#include "tests/support/batches.h"
#include "tests/support/eventually.h"
#include "tests/support/files.h"

namespace plumbline::server {
namespace {

using test::Eventually;
using test::SourceOf;

constexpr uint64_t kSet = 1;

class JudgeAlone : public testing::Test {
 protected:
  void Open() {
    counters_ = std::make_unique<Counters>();
    pipeline_ = std::make_unique<Pipeline>(counters_.get());
    Config config;
    config.data_directory = folder_.File("data");
    config.grace_seconds = 0.05;
    const absl::Status opened = pipeline_->Open(config, "test");
    ASSERT_TRUE(opened.ok()) << opened;
  }
  void Close() { pipeline_.reset(); }

  void Report(JudgeItem::Kind kind, uint64_t stream, const v1::Source& source) {
    JudgeItem item;
    item.kind = kind;
    item.stream_id = stream;
    item.sources = std::make_shared<const std::vector<v1::Source>>(1, source);
    Judge* const judge = &pipeline_->judge();
    const auto shared = std::make_shared<JudgeItem>(std::move(item));
    pipeline_->journal().Then([judge, shared] { judge->Push(std::move(*shared)); });
  }
  void Connect(uint64_t stream, const v1::Source& source) {
    Report(JudgeItem::Kind::kConnected, stream, source);
  }
  void Disconnect(uint64_t stream, const v1::Source& source) {
    Report(JudgeItem::Kind::kDisconnected, stream, source);
  }

  void Deliver(uint64_t stream, uint64_t sequence, v1::Batch batch) {
    batch.set_stream_id(stream);
    batch.set_sequence(sequence);
    JournalEntry entry;
    entry.stream_id = stream;
    entry.sequence = sequence;
    entry.body = WireBytes(batch.SerializeAsString());
    JudgeItem item;
    item.stream_id = stream;
    item.charged_run = batch.sources(0).run();
    item.batch.bytes = batch.ByteSizeLong();
    item.batch.batch = std::make_shared<v1::Batch>(std::move(batch));
    Judge* const judge = &pipeline_->judge();
    judge->Admit(item.charged_run, item.batch.bytes, nullptr);
    const auto shared = std::make_shared<JudgeItem>(std::move(item));
    pipeline_->journal().Append(std::move(entry), [judge, shared](const EntryPrefix& prefix) {
      shared->entry = prefix.number;
      shared->unix_ns = prefix.unix_ns;
      judge->Push(std::move(*shared));
    });
  }

  static v1::Batch RowOf(const v1::Source& source, int64_t step, bool declare) {
    v1::Batch batch = test::BatchOf(source);
    if (declare) {
      v1::SeriesSet& set = *batch.add_series_sets();
      set.set_id(kSet);
      set.add_sites()->set_op("loss");
    }
    v1::SeriesRows& rows = *batch.add_series();
    rows.set_set(kSet);
    rows.add_source(0);
    rows.add_step(step);
    rows.add_value(2);
    test::AddProgress(&batch, step);
    return batch;
  }

  v1::RunInfo Run(const std::string& run) const {
    for (const v1::RunInfo& info : pipeline_->judge().Runs()) {
      if (info.run() == run) return info;
    }
    return {};
  }
  bool ClosesThrough(const std::string& run, int64_t step) {
    return Eventually([&] { return Run(run).closed_step() >= step; });
  }
  uint64_t Stored(const std::string& run) {
    v1::ListSeriesRequest request;
    request.set_run(run);
    v1::ListSeriesResponse response;
    if (!pipeline_->store().ListSeries(request, &response).ok()) return 0;
    uint64_t samples = 0;
    for (const v1::SeriesInfo& info : response.series()) samples += info.samples();
    return samples;
  }

  // Returns true once the run was over and then forgotten, according to the journal.
  bool Forgets(const std::string& run) {
    return Eventually([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      int overs = 0;
      auto reader = JournalReader::Open(folder_.File("data") + "/journal", 1);
      StoredEntry entry;
      for (JournalReader::Result result;
           reader.ok() && (result = (*reader)->Next(&entry)) != JournalReader::Result::kEnd;) {
        v1::JournalEvent event;
        if (result == JournalReader::Result::kEntry && entry.type == FrameType::kJournalEvent &&
            event.ParseFromString(std::string(entry.body())) &&
            event.event().run_finished().run() == run)
          ++overs;
      }
      return overs >= 2;
    });
  }
  // Expects `steps` steps, with `absent` absent values.
  void ExpectShown(const std::string& run, int steps, int absent) {
    v1::QuerySeriesRequest request;
    request.set_run(run);
    v1::QuerySeriesResponse response;
    ASSERT_TRUE(pipeline_->store().QuerySeries(request, &response).ok());
    ASSERT_EQ(response.series_size(), 1);
    const v1::SeriesColumns& shown = response.series(0);
    EXPECT_EQ(shown.step_size(), steps) << shown.ShortDebugString();
    int bits = 0;
    for (const char byte : shown.absent()) bits += std::popcount(static_cast<uint8_t>(byte));
    EXPECT_EQ(bits, absent) << shown.ShortDebugString();
  }

  test::TempFolder folder_;
  std::unique_ptr<Counters> counters_;
  std::unique_ptr<Pipeline> pipeline_;
};

// Two ranks each, which leave without a goodbye.
TEST_F(JudgeAlone, ARunThatWasForgottenGoesOnWithoutTheRankThatDoesNotComeBack) {
  constexpr int kRuns = 72;  // 64 are kept
  Open();
  const auto name = [](int run) { return "run-" + std::to_string(run); };
  const auto stream = [](int run, uint32_t rank) {
    return static_cast<uint64_t>(run) * 2 + rank + 1;
  };
  for (int run = 0; run < kRuns; ++run) {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const v1::Source source = SourceOf(name(run), rank, 2);
      Connect(stream(run, rank), source);
      Deliver(stream(run, rank), 1, RowOf(source, 0, true));
      Disconnect(stream(run, rank), source);
    }
  }
  ASSERT_TRUE(ClosesThrough(name(kRuns - 1), 0));
  ASSERT_TRUE(Forgets(name(0)));
  for (const int run : {0, kRuns - 1}) {  // forgotten, and kept
    const v1::Source source = SourceOf(name(run), 0, 2);
    Connect(stream(run, 0), source);
    for (int64_t step = 1; step <= 5; ++step)
      Deliver(stream(run, 0), static_cast<uint64_t>(step) + 1, RowOf(source, step, false));
    EXPECT_TRUE(ClosesThrough(name(run), 5)) << name(run) << Run(name(run)).ShortDebugString();
    EXPECT_TRUE(Eventually([&] { return Stored(name(run)) == 7; })) << Stored(name(run));
    EXPECT_EQ(Run(name(run)).lost(), 0u);
    EXPECT_EQ(Run(name(run)).late(), 0u);
  }
  EXPECT_EQ(counters_->engine_refused, 0u);
}

// The ranks were away at different steps and return there. The newer part adds to the older one.
TEST_F(JudgeAlone, ARunThatWasForgottenShowsWhatEachRankHadBefore) {
  constexpr int kRuns = 66;  // 64 are kept
  Open();
  const auto name = [](int run) { return "run-" + std::to_string(run); };
  const auto stream = [](int run, uint32_t rank) {
    return static_cast<uint64_t>(run) * 2 + rank + 1;
  };
  const auto source = [&](int run, uint32_t rank) { return SourceOf(name(run), rank, 2); };
  for (int run = 0; run < kRuns; ++run) {
    for (uint32_t rank = 0; rank < 2; ++rank) Connect(stream(run, rank), source(run, rank));
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const int64_t last = run > 0 ? 0 : rank == 0 ? 10 : 5;
      for (int64_t step = 0; step <= last; ++step)
        Deliver(stream(run, rank), static_cast<uint64_t>(step) + 1,
                RowOf(source(run, rank), step, step == 0));
      Disconnect(stream(run, rank), source(run, rank));
    }
  }
  ASSERT_TRUE(ClosesThrough(name(kRuns - 1), 0));
  ASSERT_TRUE(Forgets(name(0)));
  for (uint32_t rank = 0; rank < 2; ++rank) Connect(stream(0, rank), source(0, rank));
  for (int64_t step = 6; step <= 20; ++step)
    Deliver(stream(0, 1), static_cast<uint64_t>(step) + 1, RowOf(source(0, 1), step, false));
  for (int64_t step = 11; step <= 20; ++step)
    Deliver(stream(0, 0), static_cast<uint64_t>(step) + 1, RowOf(source(0, 0), step, false));
  ASSERT_TRUE(Eventually([&] { return Stored(name(0)) == 42; })) << Stored(name(0));
  ExpectShown(name(0), 21, 0);
  Close();
  Open();
  ExpectShown(name(0), 21, 0);
}

// A rank that sends a hello and leaves sends no evidence: the rules' state of the run stays.
TEST_F(JudgeAlone, AHelloAloneDoesNotMakeARunForgotten) {
  Open();
  const v1::Source source = SourceOf("run", 0, 2), other = SourceOf("run", 1, 2);
  Connect(1, source);
  Connect(2, other);
  Deliver(1, 1, RowOf(source, 0, true));
  Deliver(2, 1, RowOf(other, 0, true));
  for (int64_t step = 1; step <= 9; ++step)
    Deliver(2, static_cast<uint64_t>(step) + 1, RowOf(other, step, false));
  Disconnect(1, source);
  Disconnect(2, other);
  ASSERT_TRUE(ClosesThrough("run", 9));
  for (int i = 0; i < 3; ++i) {
    Connect(1, source);
    Disconnect(1, source);
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
  }
  Connect(1, source);
  for (int64_t step = 1; step <= 9; ++step)
    Deliver(1, static_cast<uint64_t>(step) + 1, RowOf(source, step, false));
  EXPECT_TRUE(Eventually([&] { return Stored("run") == 20; })) << Stored("run");
  // All evidence is shown, because the run did not start again.
  v1::QuerySeriesRequest request;
  request.set_run("run");
  v1::QuerySeriesResponse response;
  ASSERT_TRUE(pipeline_->store().QuerySeries(request, &response).ok());
  ASSERT_EQ(response.series_size(), 1);
  EXPECT_EQ(response.series(0).step_size(), 10);
  EXPECT_TRUE(response.series(0).absent().empty()) << response.series(0).ShortDebugString();
}

// The same across a restart: a forgotten run stays forgotten.
TEST_F(JudgeAlone, AForgottenRunIsKnownAsSuchAfterARestart) {
  constexpr int kRuns = 66;
  Open();
  const auto name = [](int run) { return "run-" + std::to_string(run); };
  for (int run = 0; run < kRuns; ++run) {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const v1::Source source = SourceOf(name(run), rank, 2);
      const uint64_t stream = static_cast<uint64_t>(run) * 2 + rank + 1;
      Connect(stream, source);
      Deliver(stream, 1, RowOf(source, 0, true));
      Disconnect(stream, source);
    }
  }
  ASSERT_TRUE(ClosesThrough(name(kRuns - 1), 0));
  ASSERT_TRUE(Forgets(name(0)));
  Close();
  Open();
  const v1::Source source = SourceOf(name(0), 0, 2);
  Connect(1, source);
  Deliver(1, 2, RowOf(source, 1, false));
  EXPECT_TRUE(ClosesThrough(name(0), 1)) << Run(name(0)).ShortDebugString();
}

// The sets of a stream that the stream table has forgotten are removed when all its batches are
// judged, and no other sets are: a batch that does not declare them again is refused, and counted.
TEST_F(JudgeAlone, SetsGoWithTheStreamThatTheTableForgets) {
  constexpr uint64_t kKnown = 1, kForgotten = 2;
  Open();
  pipeline_->judge().SetKnownStreams([](uint64_t stream) { return stream == kKnown; });
  const v1::Source known = SourceOf("known"), forgotten = SourceOf("forgotten");
  Connect(kKnown, known);
  Connect(kForgotten, forgotten);
  Deliver(kKnown, 1, RowOf(known, 0, true));
  Deliver(kForgotten, 1, RowOf(forgotten, 0, true));
  int64_t step = 0;
  ASSERT_TRUE(Eventually([&] {  // two checks, 5 s apart
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    ++step;
    Deliver(kForgotten, static_cast<uint64_t>(step) + 1, RowOf(forgotten, step, false));
    return counters_->engine_refused > 0;
  }));
  EXPECT_TRUE(Eventually([&] { return Run("forgotten").lost() == counters_->engine_refused; }));
  Deliver(kKnown, 2, RowOf(known, 1, false));
  EXPECT_TRUE(ClosesThrough("known", 1));
  EXPECT_EQ(Run("known").lost(), 0u);
  const uint64_t stored = Stored("forgotten");
  Deliver(kForgotten, static_cast<uint64_t>(step) + 2, RowOf(forgotten, step + 1, true));
  EXPECT_TRUE(Eventually([&] { return Stored("forgotten") == stored + 1; }));
  pipeline_->judge().SetKnownStreams(nullptr);
}

// Refused once live and once by the retry: counted once.
TEST_F(JudgeAlone, ARetryCountsWhatTheEngineRefusesOnce) {
  const v1::Source source = SourceOf("run", 0, 1);
  Open();
  Connect(1, source);
  Deliver(1, 1, RowOf(source, 0, true));
  v1::Batch refused = RowOf(source, 1, false);
  refused.mutable_series(0)->set_set(99);  // never declared
  Deliver(1, 2, refused);
  for (int64_t step = 2; step < 6; ++step)
    Deliver(1, static_cast<uint64_t>(step) + 1, RowOf(source, step, false));
  ASSERT_TRUE(ClosesThrough("run", 5));
  ASSERT_EQ(Run("run").lost(), 1u);
  ASSERT_EQ(counters_->engine_refused, 1u);
  Close();
  {
    Quarantine quarantine(folder_.File("data"), [] { return int64_t{7}; });
    quarantine.Failed("run", "a test");
    ASSERT_TRUE(quarantine.Holds("run"));
  }
  Open();
  ASSERT_TRUE(pipeline_->judge().quarantine().Holds("run"));
  ASSERT_EQ(Run("run").lost(), 1u);
  std::atomic<bool> done{false};
  absl::Status status;
  pipeline_->judge().UpdateRun("run", v1::UpdateRunRequest::ACTION_RETRY, "tester",
                               [&](const absl::Status& s) {
                                 status = s;
                                 done = true;
                               });
  ASSERT_TRUE(Eventually([&] { return done.load(); }));
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(Run("run").lost(), 1u) << Run("run").ShortDebugString();
  EXPECT_EQ(counters_->engine_refused, 0u);  // of this process
  EXPECT_EQ(Stored("run"), 5u);
}

}  // namespace
}  // namespace plumbline::server
