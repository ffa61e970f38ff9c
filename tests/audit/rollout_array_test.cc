// Rollout records in one JSON array give what the same records give as lines.
#include <gtest/gtest.h>

#include <string>

#include "audit/readers/rollout/array_lines.h"
#include "tests/audit/dump_builder.h"
#include "tests/audit/rollout_files.h"

namespace plumbline::audit {
namespace {

using namespace testing;  // NOLINT: the builders
using Json = nlohmann::ordered_json;

Json SomeRecords() {
  Json records = Json::array();
  for (int i = 0; i < 40; ++i) {
    records.push_back(Rollout(i / 4, "s" + std::to_string(i), 1 + i % 7, 100 + i));
    records.back()["worker"] = R"(engine [7], {"a\\": ",]"})";
  }
  return records;
}

std::string AsLines(const Json& records) {
  std::string lines;
  for (const Json& record : records) lines += record.dump() + "\n";
  return lines;
}

RolloutRead ReadText(const std::string& text) {
  const TempFolder dir;
  return ReadRollouts({dir.Write("rollouts.json", text)});
}

std::string Evidence(const RolloutRead& read) {
  std::string all;
  for (const auto& sequence : read.sequences()) all += sequence.ShortDebugString() + "\n";
  return all;
}

TEST(RolloutArray, GivesWhatItsLinesGive) {
  const Json records = SomeRecords();
  const RolloutRead lines = ReadText(AsLines(records));
  ASSERT_EQ(lines.inputs[0].records, records.size());
  for (const int indent : {-1, 0, 2}) {
    for (const char* before : {"", "\xEF\xBB\xBF", "\n "}) {
      const RolloutRead array = ReadText(before + records.dump(indent) + "\n");
      EXPECT_EQ(array.problems(), "") << indent;
      EXPECT_EQ(array.inputs[0].records, records.size()) << indent;
      EXPECT_EQ(Evidence(array), Evidence(lines)) << indent;
    }
  }
}

TEST(RolloutArray, BadElementsAreNamedByTheirNumber) {
  Json records = SomeRecords();
  records[2]["rollout_logprobs"] = "none";
  const RolloutRead array = ReadText(records.dump(1));
  EXPECT_NE(array.problems().find("in line 3"), std::string::npos) << array.problems();
  EXPECT_EQ(array.inputs[0].records, records.size() - 1);
}

TEST(RolloutArray, ACutLastElementIsNoError) {
  const std::string whole = SomeRecords().dump();
  for (size_t size = whole.size() / 2; size < whole.size(); size += 37) {
    const RolloutRead array = ReadText(whole.substr(0, size));
    for (const Problem& problem : array.inputs[0].problems) EXPECT_FALSE(problem.error) << size;
    EXPECT_GT(array.inputs[0].records, 10u);
  }
}

TEST(RolloutArray, PiecesOfAnySizeAndOtherText) {
  const auto rewritten = [](std::string text, size_t piece) {
    ArrayLines lines;
    for (size_t at = 0; at < text.size(); at += piece)
      lines.Rewrite(text.data() + at, std::min(piece, text.size() - at));
    return text;
  };
  const std::string array = "[{\"a\": \"],\\\"\"},\n {\"b\": [1,\n2]}]\n";
  for (size_t piece = 1; piece <= array.size(); ++piece)
    EXPECT_EQ(rewritten(array, piece), " {\"a\": \"],\\\"\"}\n  {\"b\": [1, 2]}\n\n");
  const std::string lines = "\n{\"a\": [1,2]}\n{\"b\": \"[\"}\n";
  EXPECT_EQ(rewritten(lines, 5), lines);
  EXPECT_EQ(rewritten("[]\n{\"a\": [1,2]}\n", 3), " \n\n{\"a\": [1,2]}\n");
}

}  // namespace
}  // namespace plumbline::audit
