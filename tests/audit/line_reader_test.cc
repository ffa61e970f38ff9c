// Lines from files of any size and compression, with their numbers and bytes.
#include "audit/readers/input/line_reader.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/audit/dump_builder.h"
#include "tests/audit/rollout_files.h"

namespace plumbline::audit {
namespace {

struct Read {
  std::string text;
  uint64_t offset, number;
  bool ended, too_long;
  friend bool operator==(const Read&, const Read&) = default;
};

std::vector<Read> ReadLines(const std::string& bytes, size_t most = LineReader::kMaxLine) {
  const test::TempFolder dir;
  LineReader lines(ByteStream::Open(*InputFile::Open(dir.Write("f", bytes))), most);
  std::vector<Read> all;
  for (Line line; lines.Next(&line);)
    all.push_back({std::string(line.text), line.offset, line.number, line.ended, line.too_long});
  return all;
}

TEST(LineReader, PlacesOfLines) {
  const std::vector<Read> lines = ReadLines("a\n\nbcd\ne");
  EXPECT_EQ(lines, (std::vector<Read>{{"a", 0, 1, true, false},
                                      {"", 2, 2, true, false},
                                      {"bcd", 3, 3, true, false},
                                      {"e", 7, 4, false, false}}));
  EXPECT_TRUE(ReadLines("").empty());
  EXPECT_EQ(ReadLines("\n").size(), 1u);
}

// Lines close to the size of one read, compressed or not.
TEST(LineReader, LongAndShortLines) {
  std::mt19937 random(1);
  for (int round = 0; round < 6; ++round) {
    std::string bytes;
    std::vector<Read> expected;
    for (int i = 0; i < 40; ++i) {
      const size_t length = i % 3 == 0 ? (256u << 10) - 3 + random() % 6 : random() % 5000;
      std::string text(length, static_cast<char>('a' + i % 26));
      expected.push_back({text, bytes.size(), static_cast<uint64_t>(i) + 1, true, false});
      bytes += text + "\n";
    }
    const std::string packed = round % 3 == 0   ? bytes
                               : round % 3 == 1 ? testing::Gzip(bytes)
                                                : testing::Zstd(bytes);
    EXPECT_TRUE(ReadLines(packed) == expected);
  }
}

TEST(LineReader, TooLongLinesAreSkipped) {
  const std::string longer(1000, 'x'), far(2u << 20, 'y');
  const std::vector<Read> lines = ReadLines("a\n" + longer + "\nb\n" + far + "\nc\n" + far, 999);
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[1], (Read{"", 2, 2, true, true}));
  EXPECT_EQ(lines[2], (Read{"b", 1003, 3, true, false}));
  EXPECT_EQ(lines[3], (Read{"", 1005, 4, true, true}));
  EXPECT_EQ(lines[4].text, "c");
  EXPECT_EQ(lines[5].too_long, true);
  EXPECT_EQ(lines[5].ended, false);
  EXPECT_EQ(ReadLines("a\n" + longer + "\n", 1000)[1].text, longer);
}

}  // namespace
}  // namespace plumbline::audit
