// plumb plan as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/audit/plumb_process.h"
#include "tests/support/files.h"

namespace plumbline::audit::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

std::vector<std::string> Textbook(std::vector<std::string> more = {}) {
  std::vector<std::string> words = {"plan", "--parameters", "100B",  "--layers",
                                    "80",   "--sequence",   "4096",  "--gpus",
                                    "64",   "--batch",      "262144"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(PlanCli, TheTextbookExampleInWords) {
  const auto run = RunPlumb(Textbook());
  EXPECT_EQ(run.status, 0) << run.errors;
  EXPECT_THAT(run.output, HasSubstr("4096 tokens per GPU and step, above the crossover at 989"));
  EXPECT_THAT(run.output, HasSubstr("Computing limits this step: 6.21 s; the network needs 1.5 s, "
                                    "which computing covers. A step\n    takes at least 6.21 s"));
  EXPECT_THAT(run.output, HasSubstr("gradients reduced in fp32"));
  EXPECT_THAT(run.output, HasSubstr("1319"));
  EXPECT_THAT(run.output, HasSubstr("7912"));
  EXPECT_THAT(run.output, HasSubstr("Bottleneck: memory for state"));
  EXPECT_THAT(run.output, HasSubstr("Not estimated: expected --hidden"));
}

TEST(PlanCli, BelowTheCrossoverTheCableIsPaid) {
  const auto run = RunPlumb({"plan", "--parameters", "100B", "--layers", "80", "--sequence", "512",
                             "--gpus", "64", "--batch", "32768"});
  EXPECT_THAT(run.output, HasSubstr("512 tokens per GPU and step, below the crossover at 989"));
  EXPECT_THAT(run.output, HasSubstr("The network limits this step: 1.5 s; computing takes 777 ms"));
  EXPECT_THAT(run.output, HasSubstr("Bottleneck: the cable (48 % of the step)"));
}

TEST(PlanCli, Json) {
  const Json json = Json::parse(RunPlumb(Textbook({"--format", "json"})).output);
  EXPECT_EQ(json["schema"], "plumbline.plan/1");
  EXPECT_NEAR(json["critical_tokens_per_gpu"], 989, 0.5);
  EXPECT_NEAR(json["network_seconds"], 1.5, 1e-9);
  EXPECT_EQ(json["state_bytes"][3]["sharding"], "zero3");
  EXPECT_TRUE(json["activation_bytes"]["full"].is_null());
  EXPECT_EQ(json["bottlenecks"][0]["bottleneck"], "memory for state");
}

TEST(PlanCli, HtmlOfAModelFileWithAHostileName) {
  const test::TempFolder folder;
  const std::string path = folder.File("<b>config&.json");
  test::WriteFile(path, R"({"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
      "num_attention_heads": 32, "intermediate_size": 11008, "vocab_size": 32000,
      "max_position_embeddings": 4096})");
  const auto run = RunPlumb({"plan", "--model", path, "--gpus", "256", "--batch", "4M", "--tensor",
                             "2", "--pipeline", "4", "--format", "html"});
  EXPECT_EQ(run.status, 0) << run.errors;
  EXPECT_THAT(run.output, HasSubstr("6.74 B parameters"));
  EXPECT_THAT(run.output, HasSubstr("<svg"));
  EXPECT_THAT(run.output, HasSubstr("default-src 'none'"));
  EXPECT_THAT(run.output, Not(HasSubstr("<b>config")));
  EXPECT_THAT(run.output, Not(HasSubstr("nan")));
}

TEST(PlanCli, MistakesAreNamed) {
  const auto errors = [](std::vector<std::string> words) {
    const auto run = RunPlumb(std::move(words));
    EXPECT_EQ(run.status, 2);
    EXPECT_EQ(run.output, "");
    return run.errors;
  };
  EXPECT_THAT(errors(Textbook({"--gpu", "h300"})), HasSubstr("expected one of a100, h100"));
  EXPECT_THAT(errors(Textbook({"--gpu", "a100", "--dtype", "fp8"})), HasSubstr("--dtype"));
  EXPECT_THAT(errors(Textbook({"--mfu", "x"})), HasSubstr("--mfu: expected a number such as"));
  EXPECT_THAT(errors(Textbook({"--tensor", "3"})), HasSubstr("gpus: expected a multiple of"));
  EXPECT_THAT(errors(Textbook({"--heads", "1.5"})), HasSubstr("--heads: expected a whole number"));
  EXPECT_THAT(errors({"plan", "--gpus", "8", "--batch", "1M"}), HasSubstr("expected --parameters"));
  EXPECT_THAT(errors({"plan", "--model", "/nowhere", "--gpus", "8", "--batch", "1M"}),
              HasSubstr("expected a config.json"));
}

TEST(PlanCli, AGpuOfOnesOwn) {
  const auto run = RunPlumb(
      Textbook({"--gpu", "mi300x", "--peak", "1307", "--memory", "192", "--domain-link", "448"}));
  EXPECT_EQ(run.status, 0) << run.errors;
  EXPECT_THAT(run.output, HasSubstr("64 mi300x in bf16 (1307 TFLOP/s"));
}

}  // namespace
}  // namespace plumbline::audit::testing
