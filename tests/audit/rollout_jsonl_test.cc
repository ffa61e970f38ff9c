// Native rollout records: every column is read, every error is named at its position.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "audit/readers/rollout/columns.h"
#include "tests/audit/dump_builder.h"
#include "tests/audit/plumb_process.h"
#include "tests/audit/rollout_files.h"

namespace plumbline::audit {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace testing;  // NOLINT: the builders
using Json = nlohmann::ordered_json;

RolloutRead ReadLines(const std::string& lines) {
  const TempFolder dir;
  return ReadRollouts({dir.Write("rollouts.jsonl", lines)});
}

std::vector<double> Numbers(const Json& list) {
  std::vector<double> out;
  for (const auto& x : list) out.push_back(x.is_null() ? std::nan("") : x.get<double>());
  return out;
}

void ExpectSame(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) << i << ": " << a[i];
}

// Any columns, written by another library, are read value by value.
TEST(RolloutJsonl, RandomSequencesArriveWhole) {
  std::mt19937 random(7);
  std::vector<Json> records;
  for (int i = 0; i < 300; ++i) {
    const size_t n = random() % 20;
    Json record = Rollout(i / 10, "s" + std::to_string(i), n, random());
    const auto list = [&](const char* key, const auto& value) {
      if (random() % 2 == 0) return;
      record[key] = Json::array();
      for (size_t t = 0; t < n; ++t) record[key].push_back(value());
    };
    const auto full = [&] { return -std::ldexp(1.0 * random(), -32); };
    for (const char* key : {"entropy", "varentropy", "rollout_entropy", "rollout_varentropy"})
      list(key, [&] { return random() % 5 == 0 ? Json() : Json(-full()); });
    list("advantages", full);
    list("weight_versions", [&] { return random() % 100; });
    list("turn", [&] { return random() % 4; });
    if (random() % 2 == 0) record["train_version"] = random() % 100;
    if (random() % 2 == 0) record["temperature"] = 0.7;
    if (random() % 2 == 0) record["top_p"] = 0.95;
    if (random() % 2 == 0) record["top_k"] = 50;
    if (random() % 2 == 0) record["logprob_mode"] = "processed_logprobs";
    if (random() % 2 == 0) record["worker"] = "engine \"é\" \n";
    if (random() % 2 == 0) record["selection"] = "filtered";
    if (random() % 2 == 0) record["kept_share"] = 0.25;
    if (random() % 2 == 0) record["rollout_source"] = "rescored";
    if (random() % 2 == 0) record["rescore_k2"] = 1e-4;
    if (random() % 2 == 0) record["t_start"] = 1.7e9 + 0.125 * i;
    if (random() % 2 == 0) record["t_end"] = 1.7e9 + i;
    if (random() % 2 == 0) record["cached_tokens"] = 16;
    if (random() % 2 == 0) record["reward"] = {{"score", 1}, {"why", Json::array({"a", nullptr})}};
    if (random() % 2 == 0) record["entropy"] = nullptr;
    if (random() % 2 == 0) record["behaviour_logprobs"] = record["train_logprobs"];
    records.push_back(record);
  }
  const RolloutRead read = ReadLines(Lines(records));
  EXPECT_EQ(read.problems(), "");
  EXPECT_EQ(read.inputs[0].format, "rollout-jsonl");
  EXPECT_EQ(read.inputs[0].records, records.size());
  const auto sequences = read.sequences();
  ASSERT_EQ(sequences.size(), records.size());
  for (size_t i = 0; i < records.size(); ++i) {
    SCOPED_TRACE(records[i].dump());
    const Json& r = records[i];
    const v1::LogprobsSequence& s = sequences[i];
    const auto column = [&](const char* key, bool has, const v1::Tensor& tensor) {
      EXPECT_EQ(has, r.contains(key) && !r[key].is_null()) << key;
      if (has) ExpectSame(Elements(tensor), Numbers(r[key]));
    };
    const auto scalar = [&](const char* key, bool has, auto value) {
      EXPECT_EQ(has, r.contains(key)) << key;
      if (has) {
        EXPECT_EQ(static_cast<double>(value), r[key].get<double>()) << key;
      }
    };
    EXPECT_EQ(read.steps()[i], r["step"].get<int64_t>());
    EXPECT_EQ(s.id(), r["sequence_id"].get<std::string>());
    EXPECT_EQ(s.length(), r["tokens"].size());
    column("tokens", s.has_tokens(), s.tokens());
    column("rollout_logprobs", s.rollout().has_logprobs(), s.rollout().logprobs());
    column("train_logprobs", s.train().has_logprobs(), s.train().logprobs());
    column("behaviour_logprobs", s.behaviour().has_logprobs(), s.behaviour().logprobs());
    column("entropy", s.train().has_entropy(), s.train().entropy());
    column("varentropy", s.train().has_varentropy(), s.train().varentropy());
    column("rollout_entropy", s.rollout().has_entropy(), s.rollout().entropy());
    column("rollout_varentropy", s.rollout().has_varentropy(), s.rollout().varentropy());
    column("advantages", s.has_advantages(), s.advantages());
    column("weight_versions", s.has_weight_versions(), s.weight_versions());
    column("turn", s.has_turns(), s.turns());
    for (size_t t = 0; t < s.mask().size(); ++t)
      EXPECT_EQ(s.mask()[t] != 0, r["loss_mask"][t].get<int>() != 0);
    scalar("train_version", s.has_train_version(), s.train_version());
    scalar("temperature", s.has_temperature(), s.temperature());
    scalar("top_p", s.has_top_p(), s.top_p());
    scalar("top_k", s.has_top_k(), s.top_k());
    scalar("kept_share", s.has_kept_share(), s.kept_share());
    scalar("rescore_k2", s.has_rescore_k2(), s.rescore_k2());
    scalar("t_start", s.has_t_start(), s.t_start());
    scalar("t_end", s.has_t_end(), s.t_end());
    scalar("cached_tokens", s.has_cached_tokens(), s.cached_tokens());
    EXPECT_EQ(s.worker(), r.value("worker", ""));
    EXPECT_EQ(s.mode() == v1::LOGPROB_MODE_PROCESSED, r.contains("logprob_mode"));
    EXPECT_EQ(s.selection() == v1::LogprobsSequence::SELECTION_FILTERED, r.contains("selection"));
    EXPECT_EQ(s.source() == v1::LogprobsSequence::SOURCE_RESCORED, r.contains("rollout_source"));
  }
}

TEST(RolloutJsonl, DecimalsAreThoseOfTheText) {
  const auto decimals = [](const std::string& a, const std::string& b) {
    const RolloutRead read = ReadLines(
        R"({"step":0,"sequence_id":"a","tokens":[1,2],"loss_mask":[1,1],"rollout_logprobs":[)" + a +
        R"(],"train_logprobs":[)" + b + "]}\n");
    EXPECT_EQ(read.problems(), "");
    const v1::LogprobsSequence s = read.sequences().at(0);
    const auto of = [](const v1::LogprobsSide& side) {
      return side.has_decimals() ? static_cast<int>(side.decimals()) : -1;
    };
    return std::pair(of(s.rollout()), of(s.train()));
  };
  EXPECT_EQ(decimals("-0.5,-0.25", "-1,-2.0625"), std::pair(2, 4));
  EXPECT_EQ(decimals("-1.5e-5,-1", "-0.123456789012345,-1"), std::pair(6, -1));
  EXPECT_EQ(decimals("-0.02345678955316543,-1", "0,-0"), std::pair(-1, 0));
}

TEST(RolloutJsonl, RolesAreTheHalves) {
  Json both = Rollout(0, "a"), rollout = Rollout(0, "b"), train = Rollout(0, "b");
  rollout.erase("train_logprobs");
  train.erase("rollout_logprobs");
  const RolloutRead read = ReadLines(Lines({both, rollout, train}));
  EXPECT_EQ(read.problems(), "");
  std::vector<std::string> found;
  for (const v1::Batch& batch : read.batches) {
    for (const v1::Evidence& item : batch.evidence()) {
      EXPECT_EQ(item.site().layer(), "policy");
      EXPECT_EQ(item.site().op(), "logprobs");
      for (const auto& s : item.logprobs().sequences())
        found.push_back(std::to_string(batch.sources(static_cast<int>(item.source())).role()) +
                        s.id() + (s.has_rollout() ? "r" : "") + (s.has_train() ? "t" : ""));
    }
  }
  EXPECT_THAT(found, ElementsAre("1art", "1bt", "2br"));
}

TEST(RolloutJsonl, RoutingListsAreCompared) {
  std::mt19937 random(5);
  std::vector<Json> records;
  for (int i = 0; i < 4; ++i) {
    Json record = Rollout(0, "s" + std::to_string(i), 20);
    for (int t = 0; t < 20; ++t) {
      const int a = static_cast<int>(random() % 8), b = static_cast<int>(random() % 8);
      record["train_routing"].push_back({{a, (a + 1) % 8}, {b, (b + 3) % 8}});
    }
    record["rollout_routing"] = record["train_routing"];
    record["rollout_routing"][19] = nullptr;
    if (i == 3) record["rollout_routing"][4][1] = {-1, -1};
    records.push_back(record);
  }
  const TempFolder dir;
  AuditOptions options;
  options.paths = {dir.Write("a.jsonl", Lines(records))};
  const auto result = RunAudit(options, nullptr);
  ASSERT_TRUE(result.ok() && !result->inputs_failed());
  const v1::Finding* found = nullptr;
  for (const v1::Finding* f : result->report.findings()) {
    if (f->rule() == "causality/train-infer-routing") found = f;
  }
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->cause().id(), "sentinels");
  EXPECT_EQ(found->site().layer(), "layers.1");
  EXPECT_EQ(found->witness().fields().at("position").number_value(), 4);
}

struct BadLine {
  const char* name;
  std::string line;
  std::string expected;  // after the line's first byte and before ", found"
  std::string at;        // the text at the reported byte
};

std::string With(const std::string& key, const std::string& value) {
  const std::string good =
      R"({"step": 0, "sequence_id": "x", "tokens": [5, 6, 7], "loss_mask": [0, 1, 1], )"
      R"("rollout_logprobs": [-1.5, -0.25, -2], "train_logprobs": [-1.5, -0.5, -2]})";
  const std::string quoted = "\"" + key + "\": ";
  const size_t at = good.find(quoted);
  if (at == std::string::npos) return good.substr(0, good.size() - 1) + ", " + quoted + value + "}";
  const size_t from = at + quoted.size();
  size_t to = good[from] == '[' ? good.find(']', from) + 1 : good.find_first_of(",}", from);
  return good.substr(0, from) + value + good.substr(to);
}

std::vector<BadLine> BadLines() {
  const auto nan = [&](const char* name, const std::string& text) {
    return BadLine{name, With("train_logprobs", "[-1.5, -0.25, " + text + "]"),
                   "expected a finite log-probability of at most 0 at train_logprobs[2]", text};
  };
  return {
      {"no JSON", "step 3: loss 2.5", "expected a value", "step 3: loss"},
      {"a list", "[1, 2]", "expected a JSON object", "[1, 2]"},
      {"a comma too many", With("tokens", "[5, 6, 7,]"), "expected a value", "]"},
      {"no colon", R"({"step" 3})", "expected ':'", "3}"},
      {"two texts", With("step", "0") + " {}", "expected nothing more", "{}"},
      {"unequal", With("train_logprobs", "[-1, -2]"),
       "expected 3 entries of train_logprobs, as many as in tokens", "[-1, -2]"},
      {"positive", With("rollout_logprobs", "[-1.5, 0.25, -2]"),
       "expected a finite log-probability of at most 0 at rollout_logprobs[1]", "0.25"},
      nan("NaN", "NaN"),
      nan("nan", "nan"),
      nan("quoted", "\"NaN\""),
      nan("Infinity", "Infinity"),
      nan("-Infinity", "-Infinity"),
      nan("-inf", "-inf"),
      nan("None", "None"),
      nan("beyond doubles", "-1e999"),
      nan("nested", "[-1]"),
      {"a third pass above 0", With("behaviour_logprobs", "[-1, 0.5, -2]"),
       "expected a finite log-probability of at most 0 at behaviour_logprobs[1]", "0.5"},
      {"a third pass cut short", With("behaviour_logprobs", "[-1, -2]"),
       "expected 3 entries of behaviour_logprobs, as many as in tokens", "[-1, -2]"},
      {"a mask of words", With("loss_mask", "[0, \"yes\", 1]"), "expected 0 or 1 at loss_mask[1]",
       "\"yes\""},
      {"half a token", With("tokens", "[5, 6.5, 7]"), "expected a whole number at tokens[1]",
       "6.5"},
      {"no list", With("tokens", "5"), "expected a list of whole numbers for tokens", "5"},
      {"negative step", With("step", "-1"), "expected at least 0 for step", "-1"},
      {"a step of words", With("step", "\"3\""), "expected a whole number for step", "\"3\""},
      {"a mode unheard of", With("logprob_mode", "\"raw\""),
       "expected raw_logprobs or processed_logprobs for logprob_mode", "\"raw\""},
      {"a share of 2", With("kept_share", "2"), "expected a share above 0 and at most 1", "2}"},
      {"misspelt", With("wieght_versions", "[1, 2, 3]"), "expected key weight_versions",
       "\"wieght"},
      {"twice", With("temperature", "1, \"temperature\": 2"), "expected one temperature", "2}"},
      {"an expert too many", With("train_routing", "[[[0]], [[1]], [[512]]]"),
       "expected expert ids of -1 to 511 for train_routing", "[[[0]]"},
      {"ragged layers", With("train_routing", "[[[0]], [[1],[2]], [[5]]]"),
       "expected 1 layers in train_routing[1]", "[[1],[2]]"},
      {"routing null amid", With("train_routing", "[[[0]], null, [[5]]]"),
       "expected a list of layers at train_routing[1]", "null"},
  };
}

// One bad line between good ones: it is reported by file, line and byte and left out, the rest is
// read.
TEST(RolloutJsonl, BadLinesAreNamedAndTheRestIsRead) {
  const std::string good = Lines({Rollout(0, "é")}), more = Lines({Rollout(0, "after")});
  for (const BadLine& bad : BadLines()) {
    SCOPED_TRACE(bad.name);
    const TempFolder dir;
    const std::string path = dir.Write("r.jsonl", good + bad.line + "\n" + more);
    const RolloutRead read = ReadRollouts({path});
    EXPECT_EQ(read.sequences().size(), 2u);
    EXPECT_EQ(read.inputs[0].records, 2u);
    ASSERT_EQ(read.inputs[0].problems.size(), 1u) << read.problems();
    const Problem& problem = read.inputs[0].problems[0];
    EXPECT_TRUE(problem.error);
    EXPECT_THAT(problem.text, HasSubstr(bad.expected));
    EXPECT_THAT(problem.text, HasSubstr(" in line 2, found "));
    EXPECT_THAT(read.inputs[0].Line(problem),
                HasSubstr(path + ": byte " + std::to_string(problem.offset) + ": expected "));
    ASSERT_GE(problem.offset, good.size());
    const std::string there = bad.line.substr(problem.offset - good.size());
    EXPECT_EQ(there.substr(0, bad.at.size()), bad.at) << problem.text;
  }
}

TEST(RolloutJsonl, MissingColumnsAreNamed) {
  for (const char* key : {"step", "sequence_id", "tokens", "loss_mask"}) {
    Json record = Rollout(0, "a");
    record.erase(key);
    const RolloutRead read = ReadLines(Lines({Rollout(0, "b"), record}));
    EXPECT_THAT(read.problems(),
                HasSubstr(std::string("expected a column ") + key + " in line 2, found none"));
    EXPECT_EQ(read.sequences().size(), 1u);
  }
  Json neither = Rollout(0, "a");
  neither.erase("rollout_logprobs");
  neither.erase("train_logprobs");
  EXPECT_THAT(ReadLines(Lines({Rollout(0, "b"), neither})).problems(),
              HasSubstr("expected a column rollout_logprobs or train_logprobs in line 2"));
}

// JSON has no NaN: a record states a value that is not finite as null.
TEST(RolloutJsonl, NullIsNotFinite) {
  const RolloutRead read = ReadLines(With("rollout_logprobs", "[-1.5, null, -2]") + "\n");
  EXPECT_EQ(read.problems(), "");
  ASSERT_EQ(read.sequences().size(), 1u);
  const std::string data = read.sequences()[0].rollout().logprobs().data();
  double values[3];
  ASSERT_EQ(data.size(), sizeof(values));
  std::memcpy(values, data.data(), sizeof(values));
  EXPECT_EQ(values[0], -1.5);
  EXPECT_TRUE(std::isnan(values[1]));
}

TEST(RolloutJsonl, MaskedEntriesMayHoldAnything) {
  std::string line = With("rollout_logprobs", R"([{"a": [NaN]}, -0.25, -2])");
  line.replace(line.find("[5,"), 3, "[null,");
  const RolloutRead read = ReadLines(line + "\n" + With("train_logprobs", "[7.5, -1, -2]") + "\n");
  EXPECT_EQ(read.problems(), "");
  ASSERT_EQ(read.sequences().size(), 2u);
  EXPECT_TRUE(std::isnan(Elements(read.sequences()[0].rollout().logprobs())[0]));
  EXPECT_EQ(Elements(read.sequences()[0].tokens())[0], -1);
}

// Log-probabilities that are above 0 by a rounding error come from single precision.
TEST(RolloutJsonl, ARoundingAboveZeroIsNoError) {
  EXPECT_EQ(ReadLines(With("rollout_logprobs", "[0, 2.4e-7, -2]") + "\n").problems(), "");
  EXPECT_NE(ReadLines(With("rollout_logprobs", "[0, 2.4e-5, -2]") + "\n").problems(), "");
}

TEST(RolloutJsonl, BlankLinesMarksAndCarriageReturns) {
  const std::string line = Lines({Rollout(0, "a")});
  std::string crlf = line;
  crlf.insert(crlf.size() - 1, "\r");
  const RolloutRead read = ReadLines("\xEF\xBB\xBF" + line + "\n  \r\n" + crlf);
  EXPECT_EQ(read.problems(), "");
  EXPECT_EQ(read.sequences().size(), 2u);
}

// Cut at any byte: complete lines are read, and the file may still be growing.
TEST(RolloutJsonl, CutAnywhereIsNotedNotRefused) {
  Json extras = Rollout(1, "b", 3);
  extras["rollout_routing"] = {{{1, 2}}, {{3, -1}}, nullptr};
  extras["temperature"] = nullptr;
  const std::string first = Lines({Rollout(0, "a", 3)}), whole = first + Lines({extras});
  const TempFolder dir;
  for (size_t size = first.size(); size <= whole.size(); ++size) {
    SCOPED_TRACE(size);
    const RolloutRead read = ReadRollouts({dir.Write("r.jsonl", whole.substr(0, size))});
    const bool ends = size == first.size() || size + 1 >= whole.size();
    EXPECT_EQ(read.sequences().size(), size + 1 >= whole.size() ? 2u : 1u);
    EXPECT_FALSE(read.inputs[0].failed()) << read.problems();
    EXPECT_EQ(read.problems().empty(), ends) << read.problems();
  }
  const Reader* native = FindReader("rollout-jsonl");
  for (size_t size = 0; size < first.size(); ++size) {
    InputReport report;
    report.path = dir.Write("r.jsonl", whole.substr(0, size));
    v1::Batch batch;
    for (const auto& source : native->Open({&report})) {
      while (source->Next(&batch)) {
      }
    }
    EXPECT_FALSE(report.failed()) << size << ": " << report.Line(report.problems[0]);
  }
}

TEST(RolloutJsonl, ExitStatusAndReport) {
  const TempFolder dir;
  const std::string good = dir.Write("good.jsonl", Lines({Rollout(0, "a")}));
  const std::string bad = dir.Write(
      "bad.jsonl", With("train_logprobs", "[-1, NaN, -2]") + "\n" + Lines({Rollout(0, "a")}));
  const std::string cut = dir.Write("cut.jsonl", Lines({Rollout(0, "a")}) + R"({"step": 1, "seq)");
  EXPECT_NE(RunPlumb({"audit", good}).status, 2);
  const Ended refused = RunPlumb({"audit", bad});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.output + refused.errors, HasSubstr("bad.jsonl: byte "));
  EXPECT_NE(RunPlumb({"audit", cut}).status, 2);
  EXPECT_NE(RunPlumb({"audit", "--as", "rollout-jsonl", cut}).status, 2);
}

}  // namespace
}  // namespace plumbline::audit
