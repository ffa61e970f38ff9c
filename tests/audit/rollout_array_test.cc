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

// Returns one object whose members are lists with one value for each record.
Json AsBatch(const Json& records) {
  Json batch;
  for (const auto& [key, value] : records[0].items()) {
    for (const Json& record : records) batch[key].push_back(record[key]);
  }
  return batch;
}

// Returns the records of each step.
Json BySteps(const Json& records) {
  Json steps = Json::array();
  for (size_t i = 0; i < records.size(); i += 4)
    steps.push_back(Json(records.begin() + static_cast<int64_t>(i),
                         records.begin() + static_cast<int64_t>(i + 4)));
  return steps;
}

TEST(RolloutArray, BatchesGiveWhatTheirRowsGive) {
  const Json records = SomeRecords(), steps = BySteps(records);
  Json batches = Json::array();
  for (const Json& step : steps) batches.push_back(AsBatch(step));
  const RolloutRead lines = ReadText(AsLines(records));
  for (const int indent : {-1, 2}) {
    for (const std::string& text : {steps.dump(indent), batches.dump(indent),
                                    AsBatch(records).dump(indent), AsLines(batches)}) {
      const RolloutRead batch = ReadText(text);
      EXPECT_EQ(batch.problems(), "") << text.substr(0, 60);
      EXPECT_EQ(batch.inputs[0].records, records.size()) << text.substr(0, 60);
      EXPECT_EQ(Evidence(batch), Evidence(lines)) << text.substr(0, 60);
    }
  }
}

TEST(RolloutArray, ValuesOfABatchBelongToEachRow) {
  Json records = SomeRecords();
  for (Json& record : records) record["step"] = 7;
  Json batch = AsBatch(records);
  batch["step"] = 7;
  batch["meta"] = {{"note", {1, 2, 3}}};  // belongs to no column
  EXPECT_EQ(Evidence(ReadText(batch.dump())), Evidence(ReadText(AsLines(records))));
}

TEST(RolloutArray, BadRowsOfABatchAreNamed) {
  Json batch = AsBatch(SomeRecords());
  batch["rollout_logprobs"][2].push_back(-1);
  const RolloutRead read = ReadText(batch.dump());
  EXPECT_NE(read.problems().find("in row 3 of line 1"), std::string::npos) << read.problems();
  EXPECT_EQ(read.inputs[0].records, SomeRecords().size() - 1);
}

TEST(RolloutArray, ListsOfOtherLengthsAreNoBatch) {
  for (const char* key : {"tokens", "rollout_logprobs", "step"}) {
    Json batch = AsBatch(SomeRecords());
    batch[key].erase(0);
    const RolloutRead read = ReadText(batch.dump());
    EXPECT_EQ(read.inputs[0].records, 0u) << key;
    EXPECT_NE(read.problems().find("in line 1"), std::string::npos) << read.problems();
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
  const std::string nested = "[[{\"a\": [1]},{\"b\": 2}],\n[{\"c\": [[3]]}]]\n";
  const std::string printed = "{ \n\"a\": [1,\n2]\n}\n{\n\"b\": {}}\n";
  for (size_t piece = 1; piece <= nested.size(); ++piece) {
    EXPECT_EQ(rewritten(nested, piece), "  {\"a\": [1]}\n{\"b\": 2} \n  {\"c\": [[3]]} \n\n");
    EXPECT_EQ(rewritten(printed, piece), "{  \"a\": [1, 2] }\n{ \"b\": {}}\n");
  }
}

}  // namespace
}  // namespace plumbline::audit
