// The deterministic part of fuzzing rollout records: the same mutations of good files in every run.
#include <gtest/gtest.h>

#include <random>
#include <sstream>
#include <string>

#include "audit/readers/rollout/column_map.h"
#include "tests/audit/dump_builder.h"
#include "tests/audit/rollout_files.h"
#include "tests/fuzz/audit_bytes.h"
#include "tests/fuzz/mutate.h"

namespace plumbline::audit {
namespace {

using Json = nlohmann::ordered_json;

void Audit(const std::string& bytes) {
  for (const char* format : {"", "rollout-jsonl", "prime-rl", "nemo-rl"})
    AuditBytes(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), format);
}

std::string Data(const std::string& name) {
  return test::ReadFile(std::string(PLUMBLINE_SOURCE_DIR) + "/" + name);
}

std::string Native() {
  std::vector<Json> records;
  for (int i = 0; i < 4; ++i) {
    Json record = testing::Rollout(i, "s" + std::to_string(i), 5);
    record["train_routing"] = {{{0, 1}}, {{1, 2}}, {{2, 3}}, {{3, 4}}, nullptr};
    record["rollout_routing"] = record["train_routing"];
    record["weight_versions"] = {1, 1, 2, 2, 2};
    record["train_version"] = 3;
    record["worker"] = "é";
    record["kept_share"] = 0.5;
    record["advantages"] = 0.25;
    records.push_back(record);
  }
  return testing::Lines(records);
}

std::string Mutate(const std::string& bytes, std::mt19937& random) {
  using namespace std::string_view_literals;
  return MutateWith(bytes, "\0\xFF\x80\"{}[],:-+.eE09\\\nnN"sv, random);
}

TEST(RolloutMutation, Bytes) {
  std::mt19937 random(1);
  const std::string folder = "tests/audit/data/rollouts/";
  const std::string files[] = {Native(), Data(folder + "rank_0.jsonl"),
                               Data(folder + "train_data_step31.jsonl")};
  const FuzzRounds rounds(600);
  for (int i = 0; rounds.Due(i); ++i) Audit(Mutate(files[static_cast<size_t>(i) % 3], random));
}

TEST(RolloutMutation, CompressedBytes) {
  std::mt19937 random(2);
  const std::string files[] = {testing::Gzip(Native()), testing::Zstd(Native())};
  const FuzzRounds rounds(400);
  for (int i = 0; rounds.Due(i); ++i) Audit(Mutate(files[static_cast<size_t>(i) % 2], random));
}

// Well-formed lines with values that no writer has: any value in any column.
TEST(RolloutMutation, Values) {
  std::mt19937 random(3);
  static const Json kValues[] = {Json(),
                                 0,
                                 -1,
                                 1e300,
                                 -1e-300,
                                 9223372036854775807,
                                 true,
                                 "",
                                 "NaN",
                                 "raw_logprobs",
                                 Json::array(),
                                 Json::array({1}),
                                 Json::array({1, 2, 3, 4, 5}),
                                 Json::array({nullptr, "a", true, Json::array(), -1.5}),
                                 Json::object(),
                                 Json::array({Json::array({Json::array({1})})}),
                                 -0.5,
                                 0.5,
                                 "filtered",
                                 "é"};
  std::vector<std::string> keys;
  std::stringstream lines(Native());
  std::string line;
  std::getline(lines, line);
  const Json good = Json::parse(line);
  for (const std::string_view name : RolloutColumnNames()) keys.emplace_back(name);
  const FuzzRounds rounds(400);
  for (int i = 0; rounds.Due(i); ++i) {
    std::vector<Json> records;
    for (int n = 0; n < 3; ++n) {
      Json record = good;
      for (uint32_t change = 0; change < 1 + random() % 3; ++change)
        record[keys[random() % keys.size()]] = kValues[random() % std::size(kValues)];
      records.push_back(record);
    }
    Audit(testing::Lines(records));
  }
}

// Mapping files are parsed whatever they hold, and an accepted map reads any file.
TEST(RolloutMutation, MappingFiles) {
  std::mt19937 random(4);
  const std::string maps[] = {
      Data("audit/maps/openrlhf.toml"), Data("audit/maps/trl.toml"),
      "record = \"token\"\nlists_of_one = true\n[columns]\nstep = \"a.b\"\nsequence_id = \"c\"\n"
      "rollout_logprobs = { path = \"d\", scale = -1 }\n[constants]\nloss_mask = 1\n"};
  const test::TempFolder dir;
  const std::string records =
      dir.Write("r.jsonl", Data("tests/audit/data/rollouts/openrlhf.jsonl"));
  int read = 0;
  const FuzzRounds rounds(600);
  for (int i = 0; rounds.Due(i); ++i) {
    const auto map =
        ReadColumnMap(dir.Write("m.toml", Mutate(maps[static_cast<size_t>(i) % 3], random)));
    if (!map.ok()) continue;
    ++read;
    const RolloutReader reader = MappedRollouts(*map);
    testing::ReadRollouts({records}, &reader);
  }
  EXPECT_GT(read, 50);
}

}  // namespace
}  // namespace plumbline::audit
