// Damages the framed log: cut anywhere, any bit flipped, arbitrary bytes. A wrong payload is never
// returned.
#include "base/crc32c.h"
#include "tests/base/framed_log_test_util.h"

namespace plumbline {
namespace {

using Result = FramedLogReader::Result;

bool IsPrefix(const std::vector<std::string>& got, const std::vector<std::string>& whole) {
  return got.size() <= whole.size() && std::equal(got.begin(), got.end(), whole.begin());
}

class DamageTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = folder_.File("log");
    WriteLog(path_, payloads_);
    bytes_ = ReadFile(path_);
    // Ends of whole frames, from the reader's offsets.
    auto reader = FramedLogReader::Open(path_);
    ASSERT_TRUE(reader.ok());
    FrameType type;
    std::string payload;
    do {
      ends_.push_back((*reader)->offset());
    } while ((*reader)->Next(&type, &payload) == Result::kFrame);
    ASSERT_EQ(ends_.size(), payloads_.size() + 1);
  }

  TempFolder folder_;
  std::string path_;
  std::string bytes_;
  std::vector<std::string> payloads_ = SamplePayloads();
  std::vector<uint64_t> ends_;
};

TEST_F(DamageTest, ACutAnywhereIsATornTailOrAnEnd) {
  for (size_t size = 0; size <= bytes_.size(); ++size) {
    WriteFile(path_, bytes_.substr(0, size));
    const Reading reading = ReadLog(path_);
    ASSERT_TRUE(reading.opened.ok()) << reading.opened;
    ASSERT_TRUE(IsPrefix(reading.payloads, payloads_));
    const auto end = std::find(ends_.begin(), ends_.end(), size);
    ASSERT_EQ(reading.end, end != ends_.end() ? Result::kEnd : Result::kTornTail) << size;
    if (end != ends_.end()) {
      ASSERT_EQ(reading.payloads.size(), static_cast<size_t>(end - ends_.begin()));
    } else {
      ASSERT_THAT(reading.error, testing::MatchesRegex("byte [0-9]+: expected .*, found .*"));
    }
  }
}

TEST_F(DamageTest, AFlippedBitAnywhereIsDamageThere) {
  for (size_t at = 0; at < bytes_.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = bytes_;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      WriteFile(path_, bad);
      const Reading reading = ReadLog(path_);
      if (at < 16) {
        ASSERT_FALSE(reading.opened.ok()) << at;
        continue;
      }
      ASSERT_TRUE(IsPrefix(reading.payloads, payloads_)) << at;
      ASSERT_EQ(reading.end, Result::kDamaged) << at;
      // Everything before the damaged frame is kept.
      const auto frame = std::upper_bound(ends_.begin(), ends_.end(), at) - ends_.begin() - 1;
      ASSERT_EQ(reading.payloads.size(), static_cast<size_t>(frame)) << at;
      ASSERT_THAT(reading.error, testing::MatchesRegex("byte [0-9]+: expected .*, found .*"));
    }
  }
}

TEST_F(DamageTest, DamageIsFinal) {
  bytes_[20] = static_cast<char>(bytes_[20] ^ 1);
  WriteFile(path_, bytes_);
  auto reader = FramedLogReader::Open(path_);
  ASSERT_TRUE(reader.ok());
  FrameType type;
  std::string payload;
  EXPECT_EQ((*reader)->Next(&type, &payload), Result::kDamaged);
  EXPECT_EQ((*reader)->Next(&type, &payload), Result::kDamaged);
  EXPECT_EQ((*reader)->offset(), 16u);
}

TEST_F(DamageTest, RandomBytesAfterAValidHeaderNeverBecomeAPayload) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    std::string bad = bytes_.substr(0, 16);
    const size_t size = random() % 4000;
    for (size_t i = 0; i < size; ++i) bad.push_back(static_cast<char>(random()));
    WriteFile(path_, bad);
    const Reading reading = ReadLog(path_);
    ASSERT_TRUE(reading.payloads.empty());
    ASSERT_EQ(reading.end, size == 0   ? Result::kEnd
                           : size < 20 ? Result::kTornTail
                                       : Result::kDamaged);
  }
}

TEST_F(DamageTest, SplicedAndShuffledPiecesNeverGiveAnUnknownPayload) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    std::string bad = bytes_;
    for (int n = 0; n < 3; ++n) {
      const size_t from = random() % bad.size();
      const size_t to = 16 + random() % (bad.size() - 16);
      const std::string piece = bad.substr(from, random() % 100);
      if (random() % 2 == 0) {
        bad.insert(to, piece);
      } else {
        bad.replace(to, piece.size(), piece);
      }
    }
    WriteFile(path_, bad);
    for (const std::string& p : ReadLog(path_).payloads) {
      ASSERT_NE(std::find(payloads_.begin(), payloads_.end(), p), payloads_.end());
    }
  }
}

// A frame with valid checksums and false content: the work of an attacker, not of a disk.
std::string Frame(uint32_t stored, uint32_t size, uint8_t codec, const std::string& payload) {
  std::string f(20, '\0');
  const uint32_t payload_crc = Crc32c(payload.data(), payload.size());
  std::memcpy(f.data(), &stored, 4);
  std::memcpy(f.data() + 4, &size, 4);
  f[8] = 2;
  f[9] = static_cast<char>(codec);
  std::memcpy(f.data() + 12, &payload_crc, 4);
  const uint32_t crc = Crc32c(f.data(), 16);
  std::memcpy(f.data() + 16, &crc, 4);
  return f + payload;
}

TEST_F(DamageTest, LyingLengthsAreDamageBeforeAnythingIsAllocated) {
  const std::string head = bytes_.substr(0, 16);
  const auto end_of = [&](const std::string& frame) {
    WriteFile(path_, head + frame);
    const Reading reading = ReadLog(path_);
    EXPECT_TRUE(reading.payloads.empty());
    return reading.end;
  };
  EXPECT_EQ(end_of(Frame(0xffffffffu, 0xffffffffu, 0, "abc")), Result::kDamaged);
  EXPECT_EQ(end_of(Frame(3, 0xf0000000u, 1, "abc")), Result::kDamaged);
  EXPECT_EQ(end_of(Frame(3, 4, 0, "abc")), Result::kDamaged);
  EXPECT_EQ(end_of(Frame(3, 3, 7, "abc")), Result::kDamaged);
  EXPECT_EQ(end_of(Frame(3, 500, 1, "abc")), Result::kDamaged);

  // A real zstd frame with a wrong size, and with bytes after it.
  const std::string frame = bytes_.substr(ends_[3], ends_[4] - ends_[3]);
  const std::string packed = frame.substr(20);
  const auto stored = static_cast<uint32_t>(packed.size());
  EXPECT_EQ(end_of(Frame(stored, 602, 1, packed)), Result::kDamaged);
  EXPECT_EQ(end_of(Frame(stored, 604, 1, packed)), Result::kDamaged);
  EXPECT_EQ(end_of(Frame(stored + 1, 603, 1, packed + "x")), Result::kDamaged);
  WriteFile(path_, head + Frame(stored, 603, 1, packed));
  EXPECT_EQ(ReadLog(path_).payloads, std::vector<std::string>{payloads_[3]});
}

TEST_F(DamageTest, ReadingResumesAfterTheDamagedFrame) {
  for (size_t at = 16; at < bytes_.size(); ++at) {
    std::string bad = bytes_;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    WriteFile(path_, bad);
    const size_t damaged =
        static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), at) - ends_.begin() - 1);
    std::vector<std::string> expected = payloads_;
    expected.erase(expected.begin() + static_cast<std::ptrdiff_t>(damaged));
    auto reader = FramedLogReader::Open(path_);
    ASSERT_TRUE(reader.ok());
    EXPECT_FALSE((*reader)->Resume()) << "nothing is damaged yet";
    std::vector<std::string> got;
    FrameType type;
    std::string payload;
    for (;;) {
      const Result result = (*reader)->Next(&type, &payload);
      if (result == Result::kFrame) {
        got.push_back(payload);
      } else if (result != Result::kDamaged || !(*reader)->Resume()) {
        break;
      }
    }
    ASSERT_EQ(got, expected) << "byte " << at;
  }
}

TEST_F(DamageTest, AnotherVersionIsNamed) {
  bytes_[8] = 9;
  const uint32_t crc = Crc32c(bytes_.data(), 12);
  std::memcpy(bytes_.data() + 12, &crc, 4);
  WriteFile(path_, bytes_);
  EXPECT_THAT(std::string(FramedLogReader::Open(path_).status().message()),
              testing::HasSubstr("byte 8: expected version 1, found 9"));
}

}  // namespace
}  // namespace plumbline
