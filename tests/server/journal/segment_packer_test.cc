// Rewritten segments: the entries that are read from them stay the same.
#include "server/journal/segment_packer.h"

#include <gmock/gmock.h>

#include "server/journal/format_check.h"
#include "server/journal/journal_run_reader.h"
#include "server/journal/retention.h"
#include "tests/server/journal/packed_journal.h"

namespace plumbline::server {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

TEST_F(SegmentPackerTest, EverySegmentButTheNewestIsReadAsBefore) {
  const uint64_t before = JournalBytes(folder_.path());
  const int segments = static_cast<int>(folder_.Segments().size());
  EXPECT_EQ(Pack(), segments - 1);
  auto packed = Packed();
  EXPECT_FALSE(packed.back());
  packed.pop_back();
  EXPECT_THAT(packed, Each(true));
  EXPECT_EQ(Reported(folder_.path()), reported_);
  EXPECT_LT(JournalBytes(folder_.path()), before * 3 / 4);
  // From any number on, as a restart and a retry read.
  for (uint64_t from = 1; from <= 120; from += 7) {
    const auto later = ReadJournal(folder_.path(), from);
    EXPECT_EQ(later.numbers.size(), 121 - from);
    EXPECT_THAT(later.lost, IsEmpty());
  }
  EXPECT_EQ(Pack(), 0) << "once is enough";
}

TEST_F(SegmentPackerTest, WhatIsPackedIsWrittenBackByteForByte) {
  const auto before = Files();
  ASSERT_GT(Pack(), 0);
  EXPECT_NE(Files(), before);
  EXPECT_GT(Pack(false), 0);
  EXPECT_EQ(Files(), before);
}

TEST_F(SegmentPackerTest, ARestartKnowsTheSame) {
  const auto scan_of = [&] {
    auto scan = ScanJournal(folder_.path(), 1, kManyStreams);
    EXPECT_TRUE(scan.ok());
    std::string facts = std::to_string(scan->last) + " " + std::to_string(scan->oldest) + " " +
                        std::to_string(scan->bytes) + " ";
    for (const std::string& frame : scan->streams.Encode(1 << 20)) facts += frame;
    for (const StoredEvent& event : scan->events) facts += event.event.SerializeAsString();
    return facts;
  };
  const std::string before = scan_of();
  ASSERT_GT(Pack(), 0);
  EXPECT_EQ(scan_of(), before);
}

TEST_F(SegmentPackerTest, AStoredRunIsReadTheSame) {
  const auto gaps = GapTable::InMemory();
  RunReaderOptions options;
  options.directory = folder_.path();
  options.committed = options.judged = [] { return uint64_t{120}; };
  const auto stream_of = [&](const std::string& run) {
    std::vector<std::string> stream;
    auto cursor = MakeRunReader(options, gaps.get())->Read(run);
    EXPECT_TRUE(cursor.ok()) << cursor.status();
    stream.push_back((*cursor)->header().SerializeAsString());
    for (v1::ReadRunItem item;;) {
      auto more = (*cursor)->Next(&item);
      EXPECT_TRUE(more.ok()) << more.status();
      if (!more.ok() || !*more) return stream;
      stream.push_back(item.SerializeAsString());
    }
  };
  const auto one = stream_of("one"), two = stream_of("two");
  EXPECT_GT(one.size(), 10u);
  ASSERT_GT(Pack(), 0);
  EXPECT_EQ(stream_of("one"), one);
  EXPECT_EQ(stream_of("two"), two);
}

TEST_F(SegmentPackerTest, OnlyWhatIsSettled) {
  const auto segments = folder_.Segments();
  PackerOptions options = Options();
  options.settled = [&] { return segments[2].first - 2; };
  EXPECT_EQ(SegmentPacker(options, &files_).Round(), 1);
  options.settled = [&] { return segments[2].first - 1; };
  EXPECT_EQ(SegmentPacker(options, &files_).Round(), 1);
  auto packed = Packed();
  packed.resize(3);
  EXPECT_THAT(packed, ElementsAre(true, true, false));
}

TEST_F(SegmentPackerTest, RetentionListsTheSameGaps) {
  const auto segments = folder_.Segments();
  const auto gaps_of = [&] {
    auto gaps = Summarise(folder_.path(), segments[1], segments[2].first - 1, "reason");
    EXPECT_TRUE(gaps.ok());
    return gaps->SerializeAsString();
  };
  const std::string before = gaps_of();
  ASSERT_GT(Pack(), 0);
  EXPECT_EQ(gaps_of(), before);
}

// A version before this one compares the name of the format, and refuses (format_check.h).
TEST_F(SegmentPackerTest, AnOlderVersionSeesAnotherFormat) {
  ASSERT_GT(Pack(), 0);
  EXPECT_TRUE(CheckJournalFormat(folder_.path()).ok());
  auto log = FramedLogReader::Open(folder_.Segments()[0].path, JournalLogOptions());
  ASSERT_TRUE(log.ok());
  FrameType type;
  std::string payload;
  v1::JournalHeader header;
  ASSERT_EQ((*log)->Next(&type, &payload), FramedLogReader::Result::kFrame);
  ASSERT_EQ(type, FrameType::kJournalHeader);
  ASSERT_TRUE(header.ParseFromString(payload));
  EXPECT_EQ(header.schema(), "plumbline.journal-packed/1");
  EXPECT_NE(header.schema(), kJournalSchema);
  EXPECT_EQ(header.created_unix_ns(), 1234567) << "its age is that of what it holds";
}

TEST_F(SegmentPackerTest, TheThreadLooksWhenItIsWokenAndWaitsWhileOthersNeedTheDisk) {
  std::atomic<uint64_t> settled = 0;
  std::atomic<bool> busy = true;
  PackerOptions options = Options();
  options.settled = [&] { return settled.load(); };
  options.busy = [&] { return busy.load(); };
  SegmentPacker packer(options, &files_);
  packer.Start();
  settled = JournalReader::kAll;
  packer.Wake();
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  EXPECT_THAT(Packed(), Each(false));
  busy = false;
  EXPECT_TRUE(test::Eventually([&] {
    const auto packed = Packed();
    return std::count(packed.begin(), packed.end(), true) == static_cast<int>(packed.size()) - 1;
  }));
  packer.Stop();
  EXPECT_EQ(Reported(folder_.path()), reported_);
}

}  // namespace
}  // namespace plumbline::server
