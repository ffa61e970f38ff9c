// A journal of random entries in several segments, to be packed.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "server/journal/segment_packer.h"
#include "server/journal/segment_rewrite.h"
#include "tests/server/faults/disk_faults.h"
#include "tests/server/journal/packed_support.h"
#include "tests/server/journal/support.h"

namespace plumbline::server {

// Returns everything that a reader returns, as text to compare.
inline std::vector<std::string> Reported(const std::string& directory, uint64_t from = 1) {
  std::vector<std::string> reported;
  auto reader = JournalReader::Open(directory, from);
  EXPECT_TRUE(reader.ok()) << reader.status();
  StoredEntry entry;
  for (;;) {
    switch ((*reader)->Next(&entry)) {
      case JournalReader::Result::kEnd:
        return reported;
      case JournalReader::Result::kLost:
        reported.push_back("lost " + std::to_string((*reader)->lost().first) + " to " +
                           std::to_string((*reader)->lost().last));
        break;
      case JournalReader::Result::kStreams:
        reported.push_back("streams " + entry.payload);
        break;
      case JournalReader::Result::kEntry:
        reported.push_back(std::to_string(static_cast<int>(entry.type)) + " " + entry.payload);
        break;
    }
  }
}

class SegmentPackerTest : public testing::Test {
 protected:
  void SetUp() override {
    JournalOptions options = folder_.Options();
    options.segments.segment_bytes = 30000;
    options.segments.tool_version = "1.2.3";
    auto journal = folder_.Open(&counters_, options);
    EntryMaker maker(7);
    for (int i = 0; i < 120; ++i) {
      auto [type, payload] = maker.Entry();
      EntryPrefix prefix;
      EntryPrefix::Decode(payload, &prefix);
      JournalEntry entry = EntryOf(prefix.stream_id, prefix.sequence, "");
      entry.type = type;
      entry.body = WireBytes(std::string_view(payload).substr(EntryPrefix::kSize));
      if (type == FrameType::kJournalBatch) entry.sets = SetOf(maker.number());
      ASSERT_TRUE(journal->AppendAndWait(std::move(entry)).ok());
    }
    journal.reset();
    ASSERT_GT(folder_.Segments().size(), 4u);
    reported_ = Reported(folder_.path());
  }
  void TearDown() override { test::SetDiskFault(test::DiskFault::kNone); }

  static std::vector<SetRecord> SetOf(uint64_t id) {
    v1::Batch batch;
    batch.add_series_sets()->set_id(id);
    return {{id, batch.SerializeAsString()}};
  }

  PackerOptions Options(bool pack = true) const {
    PackerOptions options;
    options.directory = folder_.path();
    options.tool_version = "1.2.3";
    options.pack = pack;
    options.settled = [] { return JournalReader::kAll; };
    return options;
  }
  int Pack(bool pack = true) { return SegmentPacker(Options(pack), &files_).Round(); }

  std::vector<bool> Packed() const {
    std::vector<bool> packed;
    for (const Segment& segment : folder_.Segments()) {
      auto is = IsPacked(segment);
      packed.push_back(is.ok() && *is);
    }
    return packed;
  }
  std::map<std::string, std::string> Files() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      files[entry.path().filename()] = ReadFile(entry.path());
    }
    return files;
  }
  void FlipByte(const std::string& path, double where) {
    std::string bytes = ReadFile(path);
    bytes[static_cast<size_t>(where * static_cast<double>(bytes.size()))] ^= 0x10;
    WriteFile(path, bytes);
  }

  Counters counters_;
  JournalFolder folder_;
  Mutex files_;
  std::vector<std::string> reported_;
};

}  // namespace plumbline::server
