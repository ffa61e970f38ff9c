// Rollout files of today's tools as they are, without --map: each with what its tool fills in where
// there is no value.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/audit/dump_builder.h"
#include "tests/audit/plumb_process.h"
#include "tests/audit/rollout_files.h"
#include "tests/fuzz/torch_zip.h"

namespace plumbline::audit {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace testing;  // NOLINT: the builders
using Json = nlohmann::ordered_json;

constexpr size_t kTokens = 40;

// Both sides' log-probabilities of one sequence, of a distribution over two tokens, so that the
// ratio's mean is 1.
struct Pair {
  std::vector<double> engine, trainer, entropy;  // of the trainer
};
Pair Draw(std::mt19937& random) {
  std::uniform_real_distribution<double> uniform;
  std::normal_distribution<double> normal(0, 0.01);
  Pair pair;
  for (size_t t = 0; t < kTokens; ++t) {
    const double p = 0.2 + 0.6 * uniform(random), q = p * std::exp(normal(random));
    const bool first = uniform(random) < p;
    pair.engine.push_back(std::log(first ? p : 1 - p));
    pair.trainer.push_back(std::log(first ? q : 1 - q));
    pair.entropy.push_back(-q * std::log(q) - (1 - q) * std::log(1 - q));
  }
  return pair;
}

std::vector<int> Ones(size_t n) { return std::vector<int>(n, 1); }
std::vector<int> Ids(size_t n, std::mt19937& random) {
  std::vector<int> ids(n);
  for (int& id : ids) id = 5 + static_cast<int>(random() % 1000);
  return ids;
}

// 24 steps of 8 sequences, each made by `make(step, pair, random)`.
template <typename Make>
std::vector<Json> Records(const Make& make) {
  std::mt19937 random(5);
  std::vector<Json> records;
  for (int64_t step = 1; step <= 24; ++step) {
    for (int i = 0; i < 8; ++i) {
      const Pair pair = Draw(random);
      records.push_back(make(step, pair, random));
    }
  }
  return records;
}

Json Trl(int64_t step, const Pair& pair, std::mt19937& random) {
  return {{"step", step},
          {"completion_ids", Ids(kTokens, random)},
          {"completion_mask", Ones(kTokens)},
          {"old_per_token_logps", pair.trainer},
          {"sampling_per_token_logps", pair.engine},
          {"advantages", 0.5}};
}

Json Verl(int64_t step, const Pair& pair, std::mt19937& random) {
  return {{"step", step},
          {"responses", Ids(kTokens, random)},
          {"response_mask", Ones(kTokens)},
          {"rollout_log_probs", pair.engine},
          {"old_log_probs", pair.trainer},
          {"entropy", pair.entropy}};
}

Json Audit(const std::string& path, int* status = nullptr) {
  const Ended ended = RunPlumb({"audit", path, "--format", "json"});
  if (status != nullptr) *status = ended.status;
  return Json::parse(ended.output);
}

// "RULE level" of each finding.
std::vector<std::string> Found(const Json& report) {
  std::vector<std::string> found;
  for (const Json& f : report["findings"])
    found.push_back(f["rule"].get<std::string>() + " " + f["level"].get<std::string>());
  return found;
}
std::string VerdictOf(const Json& report, const std::string& rule) {
  for (const Json& v : report["verdicts"]) {
    if (v["rule"] == rule)
      return v["verdict"].get<std::string>() + ": " + v["reason"].get<std::string>();
  }
  return "none";
}

RolloutRead ReadOne(const Json& record, const std::string& name = "batch_3.jsonl") {
  const TempFolder dir;
  return ReadRollouts({dir.Write(name, Lines({record}))});
}

// TRL masks the tokens that a tool returned in a second tensor, and writes 0.0 for them.
TEST(RolloutTools, TrlMasksToolTokensInASecondTensor) {
  const auto make = [](bool tools) {
    return Records([&](int64_t step, Pair pair, std::mt19937& random) {
      Json record = Trl(step, pair, random);
      std::vector<int> tool = Ones(kTokens);
      for (size_t t = 10; t < 16; ++t) {
        record["sampling_per_token_logps"][t] = 0.0;
        tool[t] = 0;
      }
      record["tool_mask"] = tools ? Json(tool) : Json();
      return record;
    });
  };
  const TempFolder dir;
  int status = 0;
  const Json healthy = Audit(dir.Write("a/batch.jsonl", Lines(make(true))), &status);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(Found(healthy), ElementsAre());
  EXPECT_THAT(VerdictOf(healthy, "drift/record-invalid"), HasSubstr("pass"));
  // Without the second mask, the placeholders are judged.
  const Json faulty = Audit(dir.Write("b/batch.jsonl", Lines(make(false))), &status);
  EXPECT_EQ(status, 1);
  EXPECT_THAT(Found(faulty), ::testing::Contains("drift/record-invalid error"));
}

TEST(RolloutTools, MasksOfDifferentLengthsAreRefused) {
  std::mt19937 random(1);
  Json record = Trl(1, Draw(random), random);
  record["tool_mask"] = Ones(3);
  EXPECT_THAT(ReadOne(record).problems(), HasSubstr("tool_mask"));
  record["tool_mask"] = 1;
  EXPECT_EQ(ReadOne(record).problems(), "");
}

// The engine has no value of some tokens: its NaN is left out. The trainer has one of every token.
TEST(RolloutTools, NanOfTheEngineIsNoValue) {
  std::mt19937 random(1);
  const Json record = Trl(1, Draw(random), random);
  const auto with = [&](const char* key, const char* value) {
    Json edited = record;
    edited[key][3] = "HERE";
    std::string line = edited.dump();
    line.replace(line.find("\"HERE\""), 6, value);
    const TempFolder dir;
    return ReadRollouts({dir.Write("batch_3.jsonl", line + "\n")}).problems();
  };
  EXPECT_EQ(with("sampling_per_token_logps", "NaN"), "");
  EXPECT_EQ(with("sampling_per_token_logps", "null"), "");
  EXPECT_THAT(with("sampling_per_token_logps", "-Infinity"), HasSubstr("expected a finite"));
  EXPECT_THAT(with("old_per_token_logps", "NaN"), HasSubstr("expected a finite"));
}

TEST(RolloutTools, OneHalfAloneIsNoError) {
  for (const char* key : {"old_per_token_logps", "sampling_per_token_logps"}) {
    const TempFolder dir;
    const auto records = Records([&](int64_t step, const Pair& pair, std::mt19937& random) {
      Json record = Trl(step, pair, random);
      record.erase(key);
      return record;
    });
    int status = 0;
    const Json report = Audit(dir.Write("batch.jsonl", Lines(records)), &status);
    EXPECT_EQ(status, 0);
    EXPECT_THAT(Found(report), ElementsAre());
    EXPECT_THAT(VerdictOf(report, "drift/logit-drift"),
                HasSubstr(std::string("inconclusive: one-half: only the ") +
                          (key[0] == 'o' ? "engine's" : "trainer's")));
  }
}

TEST(RolloutTools, VerlByItsKeys) {
  const TempFolder dir;
  const Json report = Audit(dir.Write("batch.jsonl", Lines(Records(Verl))));
  EXPECT_THAT(Found(report), ElementsAre());
  EXPECT_THAT(VerdictOf(report, "drift/logit-drift"), HasSubstr("pass"));
  std::mt19937 random(1);
  const RolloutRead read = ReadOne(Verl(7, Draw(random), random));
  ASSERT_EQ(read.sequences().size(), 1u);
  EXPECT_TRUE(read.sequences()[0].train().has_entropy());
}

// prime-rl's lines have `step` alone since August 2026, and no run_id.
TEST(RolloutTools, PrimeRlOfBothForms) {
  std::mt19937 random(1);
  const Pair pair = Draw(random);
  Json record = {{"step", 31},
                 {"token_ids", Ids(kTokens, random)},
                 {"loss_mask", Ones(kTokens)},
                 {"inference_logprobs", pair.engine},
                 {"trainer_logprobs", pair.trainer}};
  EXPECT_EQ(ReadOne(record).problems(), "");
  EXPECT_THAT(ReadOne(record).steps(), ElementsAre(31));
  record["export_step"] = 12;
  EXPECT_THAT(ReadOne(record).steps(), ElementsAre(12));
}

// NeMo-RL with skip_prev_logprobs writes zeros for the trainer's values.
TEST(RolloutTools, NemoRlThatSkipsTheTrainersPassHasOneHalf) {
  const TempFolder dir;
  for (const bool skips : {true, false}) {
    std::mt19937 random(5);
    for (int step = 1; step <= 24; ++step) {
      std::vector<Json> lines;
      for (int i = 0; i < 8; ++i) {
        const Pair pair = Draw(random);
        lines.push_back({{"token_ids", Ids(kTokens, random)},
                         {"token_loss_mask", Ones(kTokens)},
                         {"generation_logprobs", pair.engine},
                         {"prev_logprobs", skips ? std::vector<double>(kTokens) : pair.trainer}});
      }
      dir.Write(
          (skips ? "a/train_data_step" : "b/train_data_step") + std::to_string(step) + ".jsonl",
          Lines(lines));
    }
    int status = 0;
    const Json report = Audit(dir.path() + (skips ? "/a" : "/b"), &status);
    EXPECT_EQ(status, 0);
    EXPECT_THAT(Found(report), ElementsAre());
    EXPECT_THAT(VerdictOf(report, "drift/logit-drift"),
                HasSubstr(skips ? "one-half: only the engine's" : "pass"));
  }
}

TEST(RolloutTools, SlimeSamples) {
  std::mt19937 random(1);
  const Pair pair = Draw(random);
  const Json record = {{"index", 4},
                       {"prompt", "1+1"},
                       {"tokens", Ids(kTokens + 7, random)},
                       {"response", "2"},
                       {"response_length", kTokens},
                       {"loss_mask", Ones(kTokens)},
                       {"weight_versions", {"default"}},
                       {"rollout_log_probs", pair.engine},
                       {"status", "completed"}};
  const RolloutRead read = ReadOne(record);
  EXPECT_EQ(read.problems(), "");
  ASSERT_EQ(read.sequences().size(), 1u);
  EXPECT_EQ(read.sequences()[0].length(), kTokens);
  EXPECT_THAT(read.steps(), ElementsAre(3));
}

std::string PickledNumber(double value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  std::string out = "G" + LittleEndian(bits, 8);
  std::reverse(out.begin() + 1, out.end());  // highest byte first
  return out;
}
template <typename Values, typename Write>
std::string PickledList(const Values& values, const Write& write) {
  std::string out = "](";
  for (const auto& value : values) out += write(value);
  return out + "e";
}
std::string PickledSample(const Pair& pair, const std::string& version, bool aborted) {
  const auto whole = [](int n) { return "J" + LittleEndian(static_cast<uint64_t>(n), 4); };
  std::mt19937 random(3);
  return PickledDict(
      {{PickledText("prompt"), PickledText("What is \"1 + 1\"?")},
       {PickledText("tokens"), PickledList(Ids(kTokens + 7, random), whole)},
       {PickledText("response_length"), whole(kTokens)},
       {PickledText("loss_mask"), "N"},
       {PickledText("weight_versions"),
        PickledList(std::vector<std::string>{"3", version}, PickledText)},
       {PickledText("rollout_log_probs"), aborted ? "N" : PickledList(pair.engine, PickledNumber)},
       {PickledText("log_probs"), aborted ? "N" : PickledList(pair.trainer, PickledNumber)}});
}

// slime saves its samples with torch.save. A version is of a generate call: two different ones do
// not state which tokens are whose.
TEST(RolloutTools, SlimeSamplesOfTorch) {
  std::mt19937 random(1);
  const std::string samples =
      PickledDict({{PickledText("rollout_id"), "K\x05"},
                   {PickledText("samples"),
                    PickledList(std::vector<std::string>{PickledSample(Draw(random), "3", false),
                                                         PickledSample(Draw(random), "4", false),
                                                         PickledSample(Draw(random), "3", true)},
                                [](const std::string& sample) { return sample; })}});
  const TempFolder dir;
  const RolloutRead read = ReadRollouts({dir.Write(
      "debug_7.pt",
      StoredZip({{"debug_7/data.pkl", "\x80\x02" + samples + "."}, {"debug_7/version", "3\n"}}))});
  EXPECT_EQ(read.problems(), "");
  ASSERT_EQ(read.sequences().size(), 2u);
  EXPECT_THAT(read.steps(), ElementsAre(5, 5));
  EXPECT_EQ(read.sequences()[0].length(), kTokens);
  EXPECT_THAT(Elements(read.sequences()[0].weight_versions()), ::testing::Each(3));
  EXPECT_FALSE(read.sequences()[1].has_weight_versions());
  EXPECT_THAT(read.inputs[0].notes, ElementsAre("1 record has null in place of log-probabilities"));
}

Json Routed(int64_t step, const Pair& pair, std::mt19937& random, int shift) {
  Json record = {{"step", step},
                 {"sequence_id", std::to_string(step) + "." + std::to_string(random())},
                 {"tokens", Ids(kTokens, random)},
                 {"loss_mask", Ones(kTokens)},
                 {"rollout_logprobs", pair.engine},
                 {"train_logprobs", pair.trainer}};
  for (size_t t = 0; t < kTokens; ++t) {
    Json layers = Json::array(), moved = Json::array();
    for (int layer = 0; layer < 2; ++layer) {
      const int a = static_cast<int>(random() % 16),
                b = (a + 1 + static_cast<int>(random() % 15)) % 16;
      layers.push_back({a, b});
      moved.push_back({(a + shift) % 16, (b + shift) % 16});
    }
    record["train_routing"].push_back(layers);
    record["rollout_routing"].push_back(moved);
  }
  return record;
}

// verl writes zeros for the last token, which no engine routes; others leave it out.
TEST(RolloutTools, TheLastTokenMayHaveNoExperts) {
  enum class Last { kZeros, kAbsent, kZerosInPadding, kZerosBefore };
  for (const Last last : {Last::kZeros, Last::kAbsent, Last::kZerosInPadding, Last::kZerosBefore}) {
    SCOPED_TRACE(static_cast<int>(last));
    const TempFolder dir;
    const Json zeros = {{0, 0}, {0, 0}};
    const auto records = Records([&](int64_t step, const Pair& pair, std::mt19937& random) {
      Json record = Routed(step, pair, random, 0);
      Json& rows = record["rollout_routing"];
      if (last == Last::kAbsent) {
        rows.erase(kTokens - 1);
      } else if (last == Last::kZerosBefore) {
        rows[kTokens - 2] = zeros;
      } else {
        rows[kTokens - 1] = zeros;
      }
      if (last == Last::kZerosInPadding) {
        rows[kTokens - 2] = rows[kTokens - 3] = zeros;
        record["loss_mask"][kTokens - 1] = record["loss_mask"][kTokens - 2] = 0;
      }
      return record;
    });
    int status = 0;
    const Json report = Audit(dir.Write("rollouts.jsonl", Lines(records)), &status);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(Found(report).empty(), last != Last::kZerosBefore) << report["findings"].dump(1);
  }
}

// One renumbering of the experts explains every token: it is proved. Other choices in some tokens
// are no renumbering.
TEST(RolloutTools, ExpertsThatAreNumberedOtherwise) {
  const auto findings = [](int shift, bool flips) {
    const TempFolder dir;
    const auto records = Records([&](int64_t step, const Pair& pair, std::mt19937& random) {
      Json record = Routed(step, pair, random, shift);
      if (flips) record["rollout_routing"][3] = {{14, 15}, {14, 15}};
      return record;
    });
    return Audit(dir.Write("rollouts.jsonl", Lines(records)))["findings"];
  };
  EXPECT_TRUE(findings(0, false).empty());
  const Json found = findings(1, false);
  ASSERT_EQ(found.size(), 2u);  // one for each layer
  EXPECT_EQ(found[0]["rule"], "causality/train-infer-routing");
  EXPECT_EQ(found[0]["level"], "error");
  EXPECT_EQ(found[0]["strength"], "proved");
  EXPECT_EQ(found[0]["cause"]["id"], "renumbered");
  // One choice in each sequence flips as well: the renumbering explains the others.
  const Json most = findings(1, true);
  ASSERT_EQ(most.size(), 2u) << most.dump(1);
  EXPECT_EQ(most[0]["level"], "error");
  EXPECT_EQ(most[0]["strength"], "heuristic");
  EXPECT_EQ(most[0]["cause"]["id"], "renumbered");
  for (const Json& other : findings(0, true)) {
    EXPECT_NE(other["level"], "error") << other.dump(1);
  }
}

// An engine has no routes of a cached prompt. If the loss mask excludes the prompt, -1 is nothing
// to report; else it is.
TEST(RolloutTools, RoutesOfAMaskedPrompt) {
  constexpr size_t kPrompt = 5;
  for (const bool masked : {true, false}) {
    const TempFolder dir;
    const auto records = Records([&](int64_t step, const Pair& pair, std::mt19937& random) {
      Json record = Routed(step, pair, random, 0);
      for (size_t i = 0; i < kPrompt; ++i) {
        record["rollout_routing"][i] = {{-1, -1}, {-1, -1}};
        if (masked) record["loss_mask"][i] = 0;
      }
      return record;
    });
    const Json found = Audit(dir.Write("rollouts.jsonl", Lines(records)))["findings"];
    const auto sentinels = std::count_if(found.begin(), found.end(), [](const Json& finding) {
      return finding["cause"]["id"] == "sentinels";
    });
    EXPECT_EQ(sentinels > 0, !masked) << found.dump(1);
  }
}

// verl's rollout_data_dir: text and scores, one file a step. Nothing in it is judged as a rollout;
// the mean scores are a series.
TEST(RolloutTools, TextAndScoresAreASeries) {
  constexpr int kSteps = 30;
  const auto audit = [](bool nan, int* status) {
    const TempFolder dir;
    std::mt19937 random(3);
    for (int step = 1; step <= kSteps; ++step) {
      std::vector<Json> lines;
      for (int i = 0; i < 16; ++i)
        lines.push_back({{"input", "user\nWhat is 2+" + std::to_string(i) + "?"},
                         {"output", "The answer is " + std::string(4000, 'x')},
                         {"gts", std::to_string(i + 2)},
                         {"score", static_cast<double>(random() % 2)},
                         {"step", step},
                         {"acc", random() % 2 == 0},
                         {"pred", "4"}});
      std::string text = Lines(lines);
      if (nan && step == 20) text.replace(text.find("\"score\":") + 8, 3, "NaN");
      dir.Write("run/rollout/" + std::to_string(step) + ".jsonl", text);
    }
    std::string metrics;
    for (int step = 1; step <= kSteps; ++step)
      metrics += Json{{"step", step}, {"loss", 1.0 / step}, {"grad_norm", 1.0}}.dump() + "\n";
    dir.Write("run/metrics.jsonl", metrics);
    return Audit(dir.path() + "/run", status);
  };
  int status = 0;
  const Json report = audit(false, &status);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(Found(report), ElementsAre());
  size_t files = 0;
  for (const Json& input : report["inputs"]) {
    EXPECT_TRUE(input["problems"].empty()) << input.dump(1);
    files += input["format"] == "samples" ? 1 : 0;
  }
  EXPECT_EQ(files, kSteps);
  const Json found = audit(true, &status)["findings"];
  EXPECT_EQ(status, 0);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0]["rule"], "health/loss-non-finite");
  EXPECT_EQ(found[0]["level"], "note");  // it is finite again after that
  EXPECT_EQ(found[0]["site"]["step_first"], 20);
  EXPECT_EQ(found[0]["site"]["step_last"], 20);
}

}  // namespace
}  // namespace plumbline::audit
