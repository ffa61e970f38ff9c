// Rollout records of other programs: the exports of prime-rl and NeMo-RL by content, others by a
// mapping file.
#include "audit/readers/rollout/column_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <random>

#include "tests/audit/dump_builder.h"
#include "tests/audit/plumb_process.h"
#include "tests/audit/rollout_files.h"

namespace plumbline::audit {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using namespace testing;  // NOLINT: the builders
using Json = nlohmann::ordered_json;

std::string Data(const std::string& name) {
  return std::string(PLUMBLINE_SOURCE_DIR) + "/tests/audit/data/rollouts/" + name;
}
std::string MapFile(const std::string& name) {
  return std::string(PLUMBLINE_SOURCE_DIR) + "/audit/maps/" + name + ".toml";
}

std::vector<Json> Records(const std::string& path) {
  std::ifstream file(path);
  std::vector<Json> records;
  for (std::string line; std::getline(file, line);) records.push_back(Json::parse(line));
  return records;
}

RolloutRead ReadMapped(const std::string& map_path, const std::string& path) {
  const auto map = ReadColumnMap(map_path);
  EXPECT_TRUE(map.ok()) << map.status();
  if (!map.ok()) return {};
  const RolloutReader reader = MappedRollouts(*map);
  return ReadRollouts({path}, &reader);
}

std::vector<double> Slice(const Json& list, size_t begin, size_t end) {
  std::vector<double> out;
  for (size_t i = begin; i < end; ++i)
    out.push_back(list[i].is_boolean() ? list[i].get<bool>() : list[i].get<double>());
  return out;
}

std::vector<double> MaskOf(const v1::LogprobsSequence& s) {
  return std::vector<double>(s.mask().begin(), s.mask().end());
}

TEST(ForeignRollouts, PrimeRlTokenExports) {
  const RolloutRead read = ReadRollouts({Data("rank_0.jsonl")});
  EXPECT_EQ(read.problems(), "");
  EXPECT_EQ(read.inputs[0].format, "prime-rl");
  const std::vector<Json> records = Records(Data("rank_0.jsonl"));
  ASSERT_THAT(read.sequences(), SizeIs(3));
  EXPECT_THAT(read.steps(), ElementsAre(12, 12, 12));
  for (size_t i = 0; i < 3; ++i) {
    const v1::LogprobsSequence s = read.sequences()[i];
    const Json& r = records[i];
    EXPECT_EQ(s.id(), Data("rank_0.jsonl:") + std::to_string(i + 1));
    EXPECT_EQ(Elements(s.tokens()), Slice(r["token_ids"], 0, 8));
    EXPECT_EQ(Elements(s.positions()), Slice(r["position_ids"], 0, 8));
    EXPECT_EQ(MaskOf(s), Slice(r["loss_mask"], 0, 8));
    EXPECT_EQ(Elements(s.rollout().logprobs()), Slice(r["inference_logprobs"], 0, 8));
    EXPECT_EQ(Elements(s.train().logprobs()), Slice(r["trainer_logprobs"], 0, 8));
    EXPECT_EQ(Elements(s.train().entropy()), Slice(r["entropy"], 0, 8));
    EXPECT_FALSE(s.train().has_decimals());
  }
}

TEST(ForeignRollouts, NemoRlTrainData) {
  const RolloutRead read = ReadRollouts({Data("train_data_step31.jsonl")});
  EXPECT_EQ(read.problems(), "");
  EXPECT_EQ(read.inputs[0].format, "nemo-rl");
  const std::vector<Json> records = Records(Data("train_data_step31.jsonl"));
  ASSERT_THAT(read.sequences(), SizeIs(3));
  EXPECT_THAT(read.steps(), ElementsAre(31, 31, 31));
  for (size_t i = 0; i < 3; ++i) {
    const v1::LogprobsSequence s = read.sequences()[i];
    const Json& r = records[i];
    const size_t length = r["input_lengths"][0].get<size_t>();  // padding and entry 0 are omitted
    EXPECT_EQ(s.length(), length - 1);
    EXPECT_EQ(s.first_position(), 1);
    EXPECT_EQ(Elements(s.tokens()), Slice(r["token_ids"][0], 1, length));
    EXPECT_EQ(MaskOf(s), Slice(r["token_loss_mask"][0], 1, length));
    EXPECT_EQ(Elements(s.rollout().logprobs()), Slice(r["generation_logprobs"][0], 1, length));
    EXPECT_EQ(Elements(s.train().logprobs()), Slice(r["prev_logprobs"][0], 1, length));
    EXPECT_EQ(Elements(s.advantages()), Slice(r["advantages"][0], 1, length));
  }
}

// Without lists of one, without tokens, with one advantage for all: older and changed loggers.
TEST(ForeignRollouts, NemoRlOfOtherShapes) {
  const TempFolder dir;
  const std::string path = dir.Write(
      "exp_001/train_data_step5.jsonl",
      R"({"rewards": [1], "advantages": 0.5, "generation_logprobs": [0, -1, -2], )"
      R"("prev_logprobs": [0, -1.5, -2], "token_loss_mask": [0, 1, 1], "input_lengths": 3})"
      "\n");
  const RolloutRead read = ReadRollouts({path});
  EXPECT_EQ(read.problems(), "");
  ASSERT_THAT(read.sequences(), SizeIs(1));
  EXPECT_THAT(Elements(read.sequences()[0].advantages()), ElementsAre(0.5, 0.5));
  EXPECT_FALSE(read.sequences()[0].has_tokens());
  const RolloutRead two = ReadRollouts({dir.Write(
      "train_data_step6.jsonl",
      R"({"generation_logprobs": [[0, -1], [0, -2]], "prev_logprobs": [[0, -1]], "token_loss_mask": [[0, 1]]})")});
  EXPECT_THAT(two.problems(), HasSubstr("expected one element in generation_logprobs in line 1"));
}

TEST(ForeignRollouts, VerlByItsMap) {
  const RolloutRead read = ReadMapped(MapFile("verl"), Data("verl.jsonl"));
  EXPECT_EQ(read.problems(), "");
  const std::vector<Json> records = Records(Data("verl.jsonl"));
  ASSERT_THAT(read.sequences(), SizeIs(4));
  EXPECT_THAT(read.steps(), ElementsAre(7, 7, 8, 8));
  for (size_t i = 0; i < 4; ++i) {
    const v1::LogprobsSequence s = read.sequences()[i];
    EXPECT_EQ(Elements(s.rollout().logprobs()), Slice(records[i]["rollout_log_probs"], 0, 8));
    EXPECT_EQ(Elements(s.train().logprobs()), Slice(records[i]["old_log_probs"], 0, 8));
    EXPECT_EQ(MaskOf(s), Slice(records[i]["response_mask"], 0, 8));
  }
}

TEST(ForeignRollouts, TrlByItsMap) {
  const RolloutRead read = ReadMapped(MapFile("trl"), Data("trl.jsonl"));
  EXPECT_EQ(read.problems(), "");
  const std::vector<Json> records = Records(Data("trl.jsonl"));
  ASSERT_THAT(read.sequences(), SizeIs(3));
  const v1::LogprobsSequence s = read.sequences()[1];
  EXPECT_EQ(Elements(s.rollout().logprobs()), Slice(records[1]["sampling_per_token_logps"], 0, 6));
  EXPECT_EQ(Elements(s.advantages()),
            std::vector<double>(6, records[1]["advantages"].get<double>()));
}

TEST(ForeignRollouts, OpenRlhfByItsMap) {
  const RolloutRead read = ReadMapped(MapFile("openrlhf"), Data("openrlhf.jsonl"));
  EXPECT_EQ(read.problems(), "");
  const std::vector<Json> records = Records(Data("openrlhf.jsonl"));
  ASSERT_THAT(read.sequences(), SizeIs(3));
  const v1::LogprobsSequence s = read.sequences()[2];
  EXPECT_EQ(Elements(s.tokens()), Slice(records[2]["sequences"], 3, 8));
  EXPECT_EQ(Elements(s.train().logprobs()), Slice(records[2]["action_log_probs"], 0, 5));
  EXPECT_EQ(MaskOf(s), Slice(records[2]["action_mask"], 0, 5));
}

// Dotted paths, a sign, constants, the step in the file's name.
TEST(ColumnMap, PathsScalesAndConstants) {
  const TempFolder dir;
  const std::string map = dir.Write("map.toml", R"(
step_from_name = true
[columns]
sequence_id = "sample.id"
tokens = "sample.out.ids"
rollout_logprobs = { path = "sample.out.nll", scale = -1 }
train_logprobs = { path = "nats2", scale = 0.5 }
behaviour_logprobs = { path = "sample.then", scale = -0.5 }
[constants]
loss_mask = true
temperature = 0.7
logprob_mode = "raw_logprobs"
train_version = 4
weight_versions = 3
)");
  const std::string path = dir.Write(
      "dump-12.jsonl",
      R"({"sample": {"id": 9, "out": {"ids": [4, 5], "nll": [1.25, 2], "nats": 3}, "nats2": 1, "then": [3, 5]}, )"
      R"("nats2": [-2.5, -4]})"
      "\n");
  const RolloutRead read = ReadMapped(map, path);
  EXPECT_EQ(read.problems(), "");
  ASSERT_THAT(read.sequences(), SizeIs(1));
  const v1::LogprobsSequence s = read.sequences()[0];
  EXPECT_THAT(read.steps(), ElementsAre(12));
  EXPECT_EQ(s.id(), "9");
  EXPECT_THAT(Elements(s.rollout().logprobs()), ElementsAre(-1.25, -2));
  EXPECT_THAT(Elements(s.train().logprobs()), ElementsAre(-1.25, -2));
  EXPECT_THAT(Elements(s.behaviour().logprobs()), ElementsAre(-1.5, -2.5));
  EXPECT_EQ(s.rollout().decimals(), 2u);
  EXPECT_FALSE(s.train().has_decimals()) << "scaled: no longer the text's own digits";
  EXPECT_THAT(MaskOf(s), ElementsAre(1, 1));
  EXPECT_EQ(s.temperature(), 0.7);
  EXPECT_EQ(s.mode(), v1::LOGPROB_MODE_RAW);
  EXPECT_THAT(Elements(s.weight_versions()), ElementsAre(3, 3));
  EXPECT_EQ(s.train_version(), 4);
}

TEST(ColumnMap, RecordsOfTokens) {
  const TempFolder dir;
  const std::string map = dir.Write("map.toml", R"(
record = "token"
[columns]
step = "iteration"
sequence_id = "sample"
position = "t"
tokens = "id"
loss_mask = "generated"
rollout_logprobs = "engine.logprob"
train_logprobs = "trainer.logprob"
worker = "host"
)");
  const auto token = [](int step, const char* id, int t, const char* mu,
                        const char* mask = "true") {
    return R"({"iteration": )" + std::to_string(step) + R"(, "sample": ")" + id + R"(", "t": )" +
           std::to_string(t) + R"(, "id": )" + std::to_string(100 + t) + R"(, "generated": )" +
           mask + R"(, "engine": {"logprob": )" + mu +
           R"(}, "trainer": {"logprob": -0.5}, "host": "h"})" + "\n";
  };
  const std::string path =
      dir.Write("r.jsonl", token(1, "a", 0, "null", "false") + token(1, "a", 1, "-0.25") +
                               token(1, "b", 5, "-1.5") + token(1, "b", 6, "-Infinity") +
                               token(1, "b", 7, "-2") + token(2, "b", 0, "-3.125"));
  const RolloutRead read = ReadMapped(map, path);
  EXPECT_THAT(
      read.problems(),
      HasSubstr("expected a finite log-probability of at most 0 at engine.logprob in line 4, "
                "found -Infinity"));
  ASSERT_THAT(read.sequences(), SizeIs(3));
  EXPECT_EQ(read.inputs[0].records, 5u);
  EXPECT_THAT(read.steps(), ElementsAre(1, 1, 2));
  const auto sequences = read.sequences();
  EXPECT_EQ(sequences[0].id(), "a");
  EXPECT_THAT(MaskOf(sequences[0]), ElementsAre(0, 1));
  EXPECT_THAT(Elements(sequences[1].positions()), ElementsAre(5, 7));
  EXPECT_THAT(Elements(sequences[1].rollout().logprobs()), ElementsAre(-1.5, -2));
  EXPECT_EQ(sequences[2].rollout().decimals(), 3u);
  EXPECT_EQ(sequences[2].worker(), "h");
}

struct BadMap {
  const char* text;
  const char* expected;  // after the file's name
};

TEST(ColumnMap, WhatIsWrongIsNamedByItsLine) {
  constexpr const char* kGood = "[columns]\nstep = \"s\"\nrollout_logprobs = \"r\"\n";
  const TempFolder dir;
  EXPECT_TRUE(ReadColumnMap(dir.Write("m", kGood)).ok());
  const BadMap bad[] = {
      {"[colums]\nstep = \"s\"\n",
       ":1: expected a key of a mapping file, found \"colums\"; did you mean columns?"},
      {"[columns]\nstep = \"s\"\nrolout_logprobs = \"r\"\n",
       ":3: expected a column, found \"rolout_logprobs\"; did you mean rollout_logprobs?"},
      {"[columns]\nstep = \"s\"\nlogits = \"r\"\n",
       ":3: expected a column, found \"logits\"; known: run step"},
      {"[columns]\nstep = \n", ": expected TOML, found: "},
      {"[columns]\nstep = 3\n", ":2: expected a path of keys"},
      {"[columns]\nstep = \"a..b\"\n", ":2: expected a path of keys"},
      {"record = \"line\"\n", ":1: expected \"sequence\" or \"token\""},
      {"drop_first = -1\n", ":1: expected a number of entries"},
      {"[columns]\nrollout_logprobs = {path = \"r\", scale = 0}\n", ":2: expected a finite factor"},
      {"[columns]\nrollout_logprobs = {path = \"r\", sign = -1}\n",
       ":2: expected path, scale, align or each, found \"sign\""},
      {"[columns]\ntokens = {path = \"r\", scale = 2}\n",
       ":2: expected a scale for columns of numbers"},
      {"[columns]\ntokens = {path = \"r\", align = \"left\"}\n",
       ":2: expected \"begin\" or \"end\""},
      {"[columns]\nstep = {path = \"r\", align = \"end\"}\n",
       ":2: expected an alignment for lists only"},
      {"[columns]\nstep = \"a\"\ntokens = \"a.b\"\n",
       "expected a path that no other column uses or passes through"},
      {"[constants]\ntokens = 3\n", ":2: expected a constant for a column of one value"},
      {"[constants]\ntemperature = \"hot\"\n", ":2: expected a number"},
      {"[constants]\ntemperature = inf\n", ":2: expected a finite number"},
      {"[constants]\nworker = 3\n", ":2: expected a string"},
      {"[columns]\nstep = \"s\"\n", "expected a column rollout_logprobs or train_logprobs"},
      {"[columns]\nrollout_logprobs = \"r\"\n", "expected a column step or a constant step"},
      {"record = \"token\"\n[columns]\nstep = \"s\"\nrollout_logprobs = \"r\"\n",
       "expected a column sequence_id"},
  };
  for (const BadMap& map : bad) {
    SCOPED_TRACE(map.text);
    const std::string path = dir.Write("map.toml", map.text);
    const auto read = ReadColumnMap(path);
    ASSERT_FALSE(read.ok());
    EXPECT_THAT(std::string(read.status().message()), HasSubstr(path + ":"));
    EXPECT_THAT(std::string(read.status().message()), HasSubstr(map.expected));
  }
  EXPECT_FALSE(ReadColumnMap(dir.File("absent.toml")).ok());
}

TEST(ColumnMap, ByTheCommand) {
  const TempFolder dir;
  const Ended good =
      RunPlumb({"audit", "--map", MapFile("verl"), Data("verl.jsonl"), "--format", "json"});
  EXPECT_NE(good.status, 2) << good.errors;
  EXPECT_EQ(Json::parse(good.output)["inputs"][0]["records"], 4);
  const Ended forced = RunPlumb({"audit", "--map", MapFile("verl"), "--as", "rollout-jsonl",
                                 Data("verl.jsonl"), "--format", "json"});
  EXPECT_EQ(Json::parse(forced.output)["inputs"][0]["records"], 4) << forced.output;
  const Ended bad =
      RunPlumb({"audit", "--map", dir.Write("m.toml", "colums = 3\n"), Data("verl.jsonl")});
  EXPECT_EQ(bad.status, 2);
  EXPECT_THAT(bad.errors, HasSubstr("m.toml:1: expected a key of a mapping file"));
  EXPECT_NE(RunPlumb({"audit", Data("verl.jsonl")}).status, 2) << "recognised by its keys";
}

// A batch as verl holds it: padded sequences whose trainer's values are `slope` times the
// rollout's.
std::string VerlBatches(int64_t steps, double slope) {
  std::string text;
  std::mt19937 random(52);
  std::exponential_distribution<double> surprise(1);
  for (int64_t row = 0; row < 16 * steps; ++row) {
    const int64_t length = 20 + row % 5;
    Json record = {{"step", row / 16}, {"uid", "prompt-" + std::to_string(row / 4)}};
    for (int64_t i = 0; i < 24; ++i) {
      const double value = i < length ? -surprise(random) : -1;
      record["responses"].push_back(random() % 32000);
      record["response_mask"].push_back(i < length ? 1 : 0);
      record["rollout_log_probs"].push_back(value);
      const double noise = 1e-5 * static_cast<double>(random() % 3);  // the sides are no copies
      record["old_log_probs"].push_back(i < length ? slope * value - noise : -11.5);
    }
    text += record.dump() + "\n";
  }
  return text;
}

TEST(ColumnMap, ByItsNameAFileOfRealSizeIsJudged) {
  const TempFolder dir;
  const auto audit = [&](double slope) {
    return RunPlumb({"audit", "--map", "verl", dir.Write("batches.jsonl", VerlBatches(30, slope)),
                     "--format", "json"});
  };
  const Ended same = audit(1), colder = audit(1.3);
  EXPECT_EQ(same.status, 0) << same.errors;
  std::map<std::string, std::string> verdicts;
  const Json report = Json::parse(same.output);
  for (const Json& verdict : report["verdicts"]) verdicts[verdict["rule"]] = verdict["verdict"];
  for (const char* rule : {"drift/logit-drift", "drift/drift-growth", "drift/record-invalid"})
    EXPECT_EQ(verdicts[rule], "pass") << rule;
  EXPECT_EQ(verdicts["drift/staleness"], "inconclusive") << "no version of the weights is recorded";
  EXPECT_EQ(colder.status, 1) << colder.errors;
  EXPECT_THAT(colder.output, HasSubstr("\"rule\": \"drift/record-invalid\""));
}

}  // namespace
}  // namespace plumbline::audit
