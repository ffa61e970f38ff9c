// Tests the short form of a finding: the first action, the commands to copy, a title for a row; and
// the same for a page.
#include "rules/words/words.h"

#include <gtest/gtest.h>

#include <cmath>

#include "rules/words/in_short.h"
#include "rules/words/page_json.h"

namespace plumbline::rules {
namespace {

v1::Finding Fix(const std::string& fix,
                const std::string& title = "routing looks into the future") {
  v1::Finding finding;
  finding.set_rule("causality/moe-future-leak");
  finding.set_title(title);
  finding.set_fix(fix);
  return finding;
}

TEST(Words, TheFirstSentenceOfTheFixAndWhatStandsInBackticks) {
  const auto in_short = ShortOf(Fix(
      "Drop by position, e.g. `--moe-token-drop-policy position`. Or use `drop_tokens=False`."));
  EXPECT_EQ(in_short.act, "Drop by position, e.g. --moe-token-drop-policy position.");
  EXPECT_EQ(in_short.command(), "--moe-token-drop-policy position");
  EXPECT_EQ(in_short.commands.size(), 2u);
  EXPECT_EQ(ShortOf(Fix("Compute the logits in fp32 (3.5 GB more) on both sides")).act,
            "Compute the logits in fp32 (3.5 GB more) on both sides");
  EXPECT_EQ(ShortOf(Fix("Compute the logits in fp32 on both sides")).command(), "");
  EXPECT_EQ(ShortOf(Fix("")).act, "Read what causality/moe-future-leak checks.");
}

TEST(Words, WhatStandsInParenthesesByFrameworkIsACommandOfItsOwn) {
  const auto in_short =
      ShortOf(Fix("Drop by position instead of by score (Megatron-LM: --moe-token-drop-policy "
                  "position), or route "
                  "without capacity (Megatron-LM: no --moe-expert-capacity-factor; DeepSpeed: "
                  "drop_tokens=False)."));
  EXPECT_EQ(in_short.act, "Drop by position instead of by score, or route without capacity.");
  ASSERT_EQ(in_short.commands.size(), 2u);  // "no --option" is not a command to paste
  EXPECT_EQ(in_short.commands[0].where, "Megatron-LM");
  EXPECT_EQ(in_short.commands[0].text, "--moe-token-drop-policy position");
  EXPECT_EQ(in_short.commands[1].where, "DeepSpeed");
  EXPECT_EQ(in_short.commands[1].text, "drop_tokens=False");
  EXPECT_TRUE(ShortOf(Fix("Look at it (see: nothing, and ((broken")).commands.empty());
}

TEST(Words, APlaceOfWholeRanksIsTheRanks) {
  v1::Finding finding = Fix("");
  finding.mutable_site()->set_op("ranks");
  EXPECT_EQ(ShortOf(finding).where, "ranks");
  for (uint32_t rank = 512; rank < 4096; ++rank) finding.mutable_site()->add_ranks(rank);
  EXPECT_EQ(ShortOf(finding).where, "ranks 512\u20134095");
  EXPECT_EQ(
      ShortOf(Fix("Start them. On their hosts, `plumb doctor` checks the connection.")).command(),
      "plumb doctor");
}

TEST(Words, ARuleThatReportsItItselfIsBelieved) {
  v1::Finding finding = Fix("Do `plumb doctor` first.");
  auto& details = *finding.mutable_details()->mutable_fields();
  details["act"].set_string_value("Stop the run.");
  details["command"].set_string_value("kill -STOP 1");
  details["title_short"].set_string_value("NaN");
  details["place"].set_string_value("99998 ranks");
  const auto in_short = ShortOf(finding);
  EXPECT_EQ(in_short.act, "Stop the run.");
  EXPECT_EQ(in_short.command(), "kill -STOP 1");
  EXPECT_EQ(in_short.where, "99998 ranks");
  EXPECT_EQ(in_short.commands.at(1).text, "plumb doctor");
  // The same command with its placeholder is left out.
  v1::Finding hang = Fix("Look at the stacks (py-spy dump --pid PID).");
  EXPECT_EQ(ShortOf(hang).command(), "py-spy dump --pid PID");
  (*hang.mutable_details()->mutable_fields())["command"].set_string_value(
      "ssh node7 py-spy dump --pid 22372");
  ASSERT_EQ(ShortOf(hang).commands.size(), 1u);
  EXPECT_EQ(ShortOf(hang).command(), "ssh node7 py-spy dump --pid 22372");
  EXPECT_EQ(in_short.title, "NaN");
}

TEST(Words, OptionsInTheOpenAndCodeInRemarksAreCommandsToo) {
  const auto commands = [](const std::string& fix) {
    std::vector<std::string> out;
    for (const FixCommand& one : ShortOf(Fix(fix)).commands)
      out.push_back(one.where + "|" + one.text);
    return out;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(commands("Strengthen the balancing: Megatron-LM --moe-aux-loss-coeff or "
                     "--moe-router-bias-update-rate."),
            (Texts{"Megatron-LM|--moe-aux-loss-coeff COEFFICIENT",
                   "|--moe-router-bias-update-rate RATE"}));
  EXPECT_EQ(commands("Take stacks of the named ranks (py-spy dump, gdb), their logs."),
            (Texts{"|py-spy dump --pid PID"}));
  EXPECT_EQ(commands("Scale before the cast (GradScaler, Megatron-LM --initial-loss-scale)."),
            (Texts{"Megatron-LM|--initial-loss-scale SCALE"}));
  EXPECT_EQ(commands("Divide once (Hugging Face average_tokens_across_devices=True)."),
            (Texts{"Hugging Face|average_tokens_across_devices=True"}));
  EXPECT_EQ(commands("Freeze the tensor by requires_grad_(False), or not at all."), Texts{});
  // Names of fields and modules are not commands.
  EXPECT_EQ(commands("Record who shares a capacity (pool_id), and the weights of `gate`."),
            Texts{});
  EXPECT_EQ(commands("Balance it (Megatron-LM --moe-router-bias-update-rate or --moe-aux-loss)."),
            (Texts{"Megatron-LM|--moe-router-bias-update-rate RATE"}));
}

TEST(Words, WhatCannotBePastedIsNoCommand) {
  for (const char* line :
       {"--bf16", "--lr-decay-iters STEPS", "drop_tokens=False", "optim.eps = 1e-6",
        "model.tie_weights()", "torch.compile(mode=\"max autotune\")", "plumb doctor",
        "with run.span(\"data\"):", "\"bf16\": {\"enabled\": true}", "NCCL_ALGO=Tree",
        "py-spy dump --pid PID"}) {
    EXPECT_TRUE(IsPastable(line)) << line;
  }
  for (const char* line :
       {"", "torch.compile", "optimizer.load_state_dict", "fp32_gate", ".item()", "causality/*",
        "no --moe-expert-capacity-factor", "--a or --b", "run.watch", "py-spy dump",
        "prescale_gradients false", "run.observe(\"x\", ...)", "x =", "f(x) and g(y)",
        "--moe-aux-loss-coeff"}) {
    EXPECT_FALSE(IsPastable(line)) << line;
  }
  const auto commands =
      ShortOf(Fix("Reduce in fp32 (DDP without fp16_compress_hook, FSDP reduce_dtype=fp32)."))
          .commands;
  ASSERT_EQ(commands.size(), 1u);
  EXPECT_EQ(commands[0].text, "reduce_dtype=fp32");
}

TEST(Words, WhatIsToBeFilledInIsExplained) {
  EXPECT_EQ(PlaceholdersIn("py-spy dump --pid PID"),
            "PID: the process of a named rank, on its host");
  EXPECT_EQ(PlaceholdersIn("--bf16"), "");
  EXPECT_EQ(PlaceholdersIn("MY_PATH=1 RATES"), "");
  EXPECT_EQ(PlaceholdersIn("f(STATE_DICT, PATH, PATH)"),
            "PATH: your file or folder; STATE_DICT: the saved state");
  const v1::Finding finding = Fix("Take stacks (py-spy dump), or use `--bf16`.");
  EXPECT_FALSE(FixesJson(finding)[0].contains("fill"));
  EXPECT_EQ(FixesJson(finding)[1]["fill"], PlaceholdersIn("py-spy dump --pid PID"));
  EXPECT_EQ(PageRow(Fix("Take stacks (py-spy dump)."))["fill"],
            PlaceholdersIn("py-spy dump --pid PID"));
}

TEST(Words, WhatToDoFirstFitsInALine) {
  const std::string fix =
      "Keep the second moment in fp32 (step fp32 masters; something that people note here), raise "
      "eps to the square root of the least value it can hold, or lower beta2.";
  EXPECT_EQ(ShortOf(Fix(fix)).act, "Keep the second moment in fp32.");
  EXPECT_EQ(ShortOf(Fix(fix)).act_short, "Keep the second moment in fp32.");
  std::string word(300, 'x');
  EXPECT_EQ(ShortOf(Fix(word)).act.size(), kMostAct - 1 + 3);  // plus an ellipsis
}

TEST(Words, ALongTitleIsCutAtAWordOrBetweenCharacters) {
  std::string title;
  for (int i = 0; i < 200; ++i) title += "\u00e4";
  const std::string cut = ShortOf(Fix("", title)).title;
  EXPECT_EQ(cut, title.substr(0, 2 * (kMostShort - 1)) + "\u2026");
  EXPECT_EQ(ShortOf(Fix("", "the loss became NaN and stays so: every weight is lost")).title,
            "the loss became NaN and stays so");
  EXPECT_EQ(ShortOf(Fix("", "inference and training give one token different probabilities")).title,
            "inference and training give one token different\u2026");
}

TEST(Words, RanksAreRanges) {
  v1::FindingSite site;
  for (const uint32_t rank : {5u, 3u, 4u, 9u}) site.add_ranks(rank);
  EXPECT_EQ(RankText(site), "3\u20135, 9");
  for (uint32_t rank = 20; rank < 60; rank += 2) site.add_ranks(rank);
  EXPECT_EQ(RankText(site), "3\u20135, 9, 20, 22, 24, 26, 28, 30 and 14 more");
}

TEST(Words, APageIsGivenBoundedListsAndValidText) {
  v1::Finding finding = Fix("Look.");
  finding.mutable_site()->set_layer("l\xff");
  auto& queue = (*finding.mutable_witness()->mutable_fields())["score"];
  for (int i = 0; i < kMostElements + 5; ++i)
    queue.mutable_list_value()->add_values()->set_number_value(i);
  (*finding.mutable_details()->mutable_fields())["bits"].set_number_value(std::nan(""));
  const Json page = PageFinding(finding);
  EXPECT_EQ(page["witness"]["score"].size(), static_cast<size_t>(kMostElements));
  EXPECT_EQ(page["details"]["bits"], "nan");
  EXPECT_EQ(page["site"]["layer"], "l\\xff");
  EXPECT_EQ(PageRow(finding)["act"], "Look.");
  EXPECT_EQ(StructJson(finding.witness())["score"].size(), size_t{kMostElements} + 5);
}

}  // namespace
}  // namespace plumbline::rules
