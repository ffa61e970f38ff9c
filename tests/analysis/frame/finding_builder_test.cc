// Tests that a built finding equals the expected message in every part.
#include "analysis/frame/finding_builder.h"

#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <array>

namespace plumbline::analysis {
namespace {

TEST(FindingBuilder, EveryPartStandsWhereItBelongs) {
  const v1::Verdict built = FindingBuilder(v1::LEVEL_ERROR, v1::STRENGTH_STATISTICAL)
                                .Title("a title")
                                .Explain("A sentence.")
                                .Cause("a-cause", 0.5)
                                .Measured("a measure", 2, "ulp")
                                .Threshold(1, "a source")
                                .Samples(7)
                                .FalseAlarm("probability", 1e-6)
                                .Assume("one")
                                .Assume("two")
                                .Witness("token", 17)
                                .Witness("word", "seven")
                                .Fix("Fix it.")
                                .At("layers.3", "sum", 4, 9, std::array{1u, 2u})
                                .Take();
  v1::Verdict expected;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
    kind: KIND_FINDING
    site { layer: "layers.3" op: "sum" step_first: 4 step_last: 9 ranks: [1, 2] }
    finding {
      level: LEVEL_ERROR strength: STRENGTH_STATISTICAL title: "a title" explanation: "A sentence."
      cause { id: "a-cause" confidence: 0.5 }
      measured { name: "a measure" value: 2 unit: "ulp" }
      threshold { value: 1 source: "a source" }
      sample_size: 7
      false_alarm { kind: "probability" value: 1e-6 }
      assumptions: ["one", "two"]
      witness {
        fields { key: "token" value { number_value: 17 } }
        fields { key: "word" value { string_value: "seven" } }
      }
      fix: "Fix it."
    })",
                                                            &expected));
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(built, expected))
      << built.DebugString();
}

// Tests fields that are set directly, and levels that are set later.
TEST(FindingBuilder, TheRestIsTheMessages) {
  FindingBuilder found;
  found.finding().mutable_bias()->set_mean(-2);
  found.verdict().set_reason("r");
  found.Level(v1::LEVEL_NOTE).Strength(v1::STRENGTH_HEURISTIC).Cause("sure");
  const v1::Verdict built = found.Take();
  EXPECT_EQ(built.kind(), v1::Verdict::KIND_FINDING);
  EXPECT_EQ(built.reason(), "r");
  EXPECT_EQ(built.finding().bias().mean(), -2);
  EXPECT_EQ(built.finding().level(), v1::LEVEL_NOTE);
  EXPECT_EQ(built.finding().cause().confidence(), 1);
}

}  // namespace
}  // namespace plumbline::analysis
