// The journal alone: order, restarts, cuts at any byte, damage, disk faults.
#include "server/journal/journal.h"

#include <gmock/gmock.h>

#include "tests/server/faults/disk_faults.h"
#include "tests/server/journal/support.h"

namespace plumbline::server {
namespace {

using test::DiskFault;
using test::SetDiskFault;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class JournalTest : public testing::Test {
 protected:
  ~JournalTest() override { SetDiskFault(DiskFault::kNone); }
  JournalFolder folder_;
  Counters counters_;
};

TEST_F(JournalTest, ReportsInOrderOnceWhatItHolds) {
  auto journal = folder_.Open(&counters_);
  std::vector<uint64_t> reported;
  std::promise<void> over;
  for (uint64_t s = 1; s <= 100; ++s) {
    journal->Append(EntryOf(7, s, "body " + std::to_string(s)), [&](const EntryPrefix& prefix) {
      // If an entry was reported, it is in the files.
      if (prefix.number % 20 == 0) {
        EXPECT_GE(ReadJournal(folder_.path()).numbers.size(), prefix.number);
      }
      reported.push_back(prefix.number);
    });
    if (s == 50) journal->Then([&] { reported.push_back(0); });
  }
  journal->Then([&] { over.set_value(); });
  over.get_future().wait();
  std::vector<uint64_t> expected;
  for (uint64_t s = 1; s <= 100; ++s) {
    expected.push_back(s);
    if (s == 50) expected.push_back(0);
  }
  EXPECT_EQ(reported, expected);
  EXPECT_EQ(journal->committed(), 100u);
  // The number depends on how fast this thread appends.
  EXPECT_LT(counters_.journal_commits, 100u) << "commits are shared";
}

TEST_F(JournalTest, ContinuesAfterItsPredecessor) {
  for (uint64_t round = 0; round < 4; ++round) {
    auto journal = folder_.Open(&counters_);
    for (uint64_t i = 0; i < 3; ++i) {
      EXPECT_EQ(Keep(*journal, 5, round * 3 + i + 1, "x").number, round * 3 + i + 1);
    }
  }
  EXPECT_THAT(ReadJournal(folder_.path()).numbers, SizeIs(12));
  EXPECT_THAT(folder_.Segments(), SizeIs(4));
  const auto scan = ScanJournal(folder_.path(), 1, kManyStreams);
  EXPECT_EQ(scan->last, 12u);
  EXPECT_EQ(scan->streams.streams().at(5).sequence, 12u);
  EXPECT_THAT(scan->lost, IsEmpty());
}

TEST_F(JournalTest, SegmentsAreBoundedAndStartWithTheStreamsTheyNeed) {
  JournalOptions options = folder_.Options();
  options.segments.segment_bytes = 5000;
  v1::Batch declaring;
  declaring.add_series_sets()->set_id(77);
  declaring.mutable_series_sets(0)->add_sites()->set_op("loss");
  const std::string wire = declaring.SerializeAsString();
  {
    auto journal = folder_.Open(&counters_, options);
    JournalEntry first = EntryOf(9, 1, wire);
    first.sets = FactsOf(wire).sets;
    ASSERT_THAT(first.sets, SizeIs(1));
    ASSERT_TRUE(journal->AppendAndWait(std::move(first)).ok());
    for (uint64_t s = 2; s <= 40; ++s) Keep(*journal, 9, s, std::string(1000, 'b'));
  }
  const auto segments = folder_.Segments();
  ASSERT_GT(segments.size(), 5u);
  // The last segment alone has the declarations that the stream made in the first segment.
  for (size_t i = 0; i + 1 < segments.size(); ++i) std::filesystem::remove(segments[i].path);
  const auto scan = ScanJournal(folder_.path(), 1, kManyStreams);
  ASSERT_TRUE(scan.ok());
  EXPECT_EQ(scan->oldest, segments.back().first);
  EXPECT_EQ(scan->last, 40u);
  const auto& stream = scan->streams.streams().at(9);
  EXPECT_EQ(stream.sequence, 40u);
  ASSERT_EQ(stream.sets.size(), 1u);
  v1::Batch known;
  ASSERT_TRUE(known.ParseFromString(stream.sets.at(77)));
  EXPECT_EQ(known.series_sets(0).sites(0).op(), "loss");
  EXPECT_THAT(scan->lost, IsEmpty());
}

// The journal is cut at every byte. Entries that were complete before the cut exist, a restart
// continues after them, and nothing is reported as lost.
TEST_F(JournalTest, ACutAnywhereLosesOnlyWhatFollows) {
  {
    auto journal = folder_.Open(&counters_);
    for (uint64_t s = 1; s <= 4; ++s) Keep(*journal, 3, s, std::string(s * 7, 'a'));
  }
  ASSERT_THAT(folder_.Segments(), SizeIs(1));
  const std::string path = folder_.Segments()[0].path;
  const std::string whole = ReadFile(path);
  size_t most = 0;
  for (size_t size = 0; size <= whole.size(); ++size) {
    for (const Segment& segment : folder_.Segments()) std::filesystem::remove(segment.path);
    WriteFile(path, whole.substr(0, size));
    const size_t before = ReadJournal(folder_.path()).numbers.size();
    ASSERT_GE(before, most) << size;
    most = before;
    {
      auto journal = folder_.Open(&counters_);
      ASSERT_EQ(Keep(*journal, 3, before + 1, "new").number, before + 1) << size;
    }
    const Everything after = ReadJournal(folder_.path());
    ASSERT_THAT(after.lost, IsEmpty()) << size;
    ASSERT_EQ(after.bodies.size(), before + 1) << size;
    ASSERT_EQ(after.bodies.back(), "new");
  }
  EXPECT_EQ(most, 4u);
}

// One byte is damaged. All other entries exist, and the damaged ones are counted with their place.
TEST_F(JournalTest, DamageAnywhereIsALossThatIsCounted) {
  JournalOptions options = folder_.Options();
  options.segments.segment_bytes = 4096;
  {
    auto journal = folder_.Open(&counters_, options);
    Keep(*journal, 3, 1, std::string(10, 'a'));
    Keep(*journal, 3, 2, std::string(20, 'b'));
    Keep(*journal, 3, 3, std::string(5000, 'c'));
    Keep(*journal, 3, 4, "d");
  }
  ASSERT_THAT(folder_.Segments(), SizeIs(2));
  const std::string path = folder_.Segments()[0].path;
  const std::string whole = ReadFile(path);
  for (size_t at = 0; at < whole.size(); at += at < 400 ? 1 : 97) {
    std::string bad = whole;
    bad[at] = static_cast<char>(bad[at] ^ 0x20);
    WriteFile(path, bad);
    const Everything all = ReadJournal(folder_.path());
    uint64_t lost = 0;
    for (const LostEntries& l : all.lost) {
      lost += l.last - l.first + 1;
      EXPECT_THAT(l.where, HasSubstr(path));
    }
    ASSERT_EQ(lost + all.numbers.size(), 4u) << at;
    ASSERT_EQ(all.numbers.back(), 4u) << at;
  }
}

TEST_F(JournalTest, DamageAtTheVeryEndIsNeverTakenForATornTail) {
  {
    auto journal = folder_.Open(&counters_);
    for (uint64_t s = 1; s <= 3; ++s) Keep(*journal, 3, s, "abc");
  }
  const std::string path = folder_.Segments()[0].path;
  std::string bytes = ReadFile(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  WriteFile(path, bytes);
  const auto scan = ScanJournal(folder_.path(), 1, kManyStreams);
  ASSERT_THAT(scan->lost, SizeIs(1));
  EXPECT_EQ(scan->lost[0].first, 3u);
  {
    auto journal = folder_.Open(&counters_);
    EXPECT_EQ(Keep(*journal, 3, 4, "new").number, 4u)
        << "the number of the lost one is not used again";
  }
  const Everything all = ReadJournal(folder_.path());
  EXPECT_THAT(all.numbers, ElementsAre(1, 2, 4));
  ASSERT_THAT(all.lost, SizeIs(1));
  EXPECT_THAT(all.lost[0].where, HasSubstr("byte"));
}

TEST_F(JournalTest, AFullDiskHoldsEverythingBackUntilThereIsSpace) {
  JournalOptions options = folder_.Options();
  std::vector<bool> stalls;
  std::mutex mutex;
  std::condition_variable changed;
  options.on_stall = [&](bool stalled) {
    std::lock_guard lock(mutex);
    stalls.push_back(stalled);
    changed.notify_all();
  };
  auto journal = folder_.Open(&counters_, options);
  Keep(*journal, 3, 1, "before");
  SetDiskFault(DiskFault::kFull);
  std::atomic<bool> reported = false;
  std::promise<void> held;
  journal->Append(EntryOf(3, 2, "during"), [&](const EntryPrefix&) {
    reported = true;
    held.set_value();
  });
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return !stalls.empty(); });
  }
  EXPECT_FALSE(reported);
  EXPECT_THAT(ReadJournal(folder_.path()).bodies, ElementsAre("before"));
  EXPECT_EQ(ReadJournal(folder_.path()).damaged_end, "");
  SetDiskFault(DiskFault::kNone);
  held.get_future().wait();
  EXPECT_GT(counters_.journal_failures, 0u);
  Keep(*journal, 3, 3, "after");
  EXPECT_THAT(stalls, ElementsAre(true, false));
  EXPECT_THAT(ReadJournal(folder_.path()).bodies, ElementsAre("before", "during", "after"));
  EXPECT_THAT(folder_.Segments(), SizeIs(1));
}

// After a failed fdatasync the kernel may have dropped the bytes and the error: they are written
// again elsewhere, and reported only after that.
TEST_F(JournalTest, AFailedSyncIsWrittenAgainIntoANewSegment) {
  auto journal = folder_.Open(&counters_);
  Keep(*journal, 3, 1, "before");
  const std::string first = folder_.Segments()[0].path;
  const std::string synced = ReadFile(first);
  SetDiskFault(DiskFault::kSync);
  std::promise<void> held;
  std::atomic<bool> reported = false;
  journal->Append(EntryOf(3, 2, "during"), [&](const EntryPrefix&) {
    reported = true;
    held.set_value();
  });
  while (counters_.journal_failures < 3) std::this_thread::yield();
  EXPECT_FALSE(reported);
  SetDiskFault(DiskFault::kNone);
  held.get_future().wait();
  ASSERT_THAT(folder_.Segments(), SizeIs(2));
  EXPECT_EQ(ReadFile(first), synced) << "the file whose sync failed must not change";
  EXPECT_THAT(ReadJournal(folder_.path()).bodies, ElementsAre("before", "during"));
  // Even if the failed bytes are on disk, the later segment counts.
  Keep(*journal, 3, 3, "after");
  journal.reset();
  WriteFile(first, synced + ReadFile(folder_.Segments()[1].path).substr(16));
  EXPECT_THAT(ReadJournal(folder_.path()).bodies, ElementsAre("before", "during", "after"));
}

TEST_F(JournalTest, StoppingOnADeadDiskReportsNothingAndEnds) {
  auto journal = folder_.Open(&counters_);
  SetDiskFault(DiskFault::kWrite);
  std::atomic<bool> reported = false;
  journal->Append(EntryOf(3, 1, "never"), [&](const EntryPrefix&) { reported = true; });
  std::thread waiting([&] { EXPECT_FALSE(journal->AppendAndWait(EntryOf(3, 2, "never")).ok()); });
  while (counters_.journal_failures == 0) std::this_thread::yield();
  journal->Stop();
  waiting.join();
  EXPECT_FALSE(reported);
}

TEST_F(JournalTest, EveryPolicyKeepsWhatItReports) {
  for (const SyncPolicy sync : {SyncPolicy::kCommit, SyncPolicy::kInterval, SyncPolicy::kNever}) {
    JournalFolder folder;
    JournalOptions options = folder.Options();
    options.segments.sync = sync;
    options.segments.sync_interval = std::chrono::milliseconds(1);
    options.segments.compress = sync == SyncPolicy::kNever;
    auto journal = folder.Open(&counters_, options);
    for (uint64_t s = 1; s <= 20; ++s) Keep(*journal, 3, s, std::string(1000, 'e'));
    EXPECT_THAT(ReadJournal(folder.path()).bodies, SizeIs(20));
  }
}

// A batch larger than the default limit of a framed log must not block all others forever.
TEST_F(JournalTest, TakesWhateverCouldBeReceived) {
  auto journal = folder_.Open(&counters_);
  const std::string big((size_t{64} << 20) + 1, 'b');
  EXPECT_EQ(Keep(*journal, 3, 1, big).number, 1u);
  EXPECT_EQ(Keep(*journal, 3, 2, "next").number, 2u);
  const Everything all = ReadJournal(folder_.path());
  ASSERT_THAT(all.bodies, SizeIs(2));
  EXPECT_TRUE(all.bodies[0] == big);
}

TEST_F(JournalTest, WithoutADirectoryNumbersAndOrderAreTheSame) {
  JournalOptions options = folder_.Options();
  options.segments.directory = "";
  Journal journal(options, 0, StreamPositions(1), &counters_);
  EXPECT_FALSE(journal.durable());
  EXPECT_EQ(Keep(journal, 1, 1, "a").number, 1u);
  EXPECT_EQ(Keep(journal, 1, 2, "b").number, 2u);
  EXPECT_THAT(folder_.Segments(), IsEmpty());
}

}  // namespace
}  // namespace plumbline::server
