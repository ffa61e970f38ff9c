// Recordings of a router that contradict themselves, or that contain too little for a pass: the
// verdict names the real reason, with the counts as recorded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "audit/render/text_report.h"
#include "audit/session/audit.h"
#include "tests/audit/audit_dumps.h"
#include "tests/audit/dump_builder.h"

namespace plumbline::audit {
namespace {

using testing::AuditBytes;
using testing::DroplessDump;
using testing::Dump;
using ::testing::HasSubstr;
using testing::LeakyDump;
using ::testing::Not;
using ::testing::StartsWith;
using testing::VerdictOf;

constexpr const char* kRules[] = {"causality/moe-future-leak", "causality/moe-batch-dependence",
                                  "causality/moe-tie-order"};

// DroplessDump has 64 tokens, 4 experts and 2 choices per token.
constexpr size_t kChoices = 128;

Dump WithMask(uint8_t kept) {
  Dump dump = DroplessDump();
  dump.tensors.push_back({"keep_mask", "BOOL", {64, 2}, std::string(kChoices, kept)});
  return dump;
}

void ExpectReason(const Dump& dump, const std::string& reason) {
  const AuditResult result = AuditBytes(dump.File());
  for (const char* rule : kRules) {
    const v1::Verdict* verdict = VerdictOf(result, rule);
    ASSERT_NE(verdict, nullptr) << rule;
    EXPECT_EQ(verdict->kind(), v1::Verdict::KIND_INCONCLUSIVE) << rule;
    EXPECT_THAT(verdict->reason(), HasSubstr(reason)) << rule;
  }
}

// The choices of one expert refused, all others kept.
Dump WithoutExpert(int64_t expert, int* refused) {
  Dump dump = WithMask(1);
  const std::string indices = dump.Tensor("topk_indices").data;
  *refused = 0;
  for (size_t i = 0; i < kChoices; ++i) {
    if (indices[4 * i] != static_cast<char>(expert)) continue;
    dump.Tensor("keep_mask").data[i] = 0;
    ++*refused;
  }
  return dump;
}

TEST(RoutingContradictions, NothingKeptAtAllIsNoPass) {
  Dump dump = WithMask(0);
  ExpectReason(dump, "nothing-kept: every one of the 128 recorded choices was refused");
  dump.metadata.erase("capacity");
  ExpectReason(dump, "nothing-kept: every one of the 128 recorded choices was refused");
  dump.metadata["capacity"] = "12";
  ExpectReason(dump, "nothing-kept: every one of the 128 recorded choices was refused");
}

// A null expert by a stored rule, or an expert that this batch left out: the recording does not
// state which.
TEST(RoutingContradictions, AnExpertThatKeepsNothingLeavesNoPass) {
  int refused = 0;
  Dump dump = WithoutExpert(3, &refused);
  const std::string reason =
      "expert 3 kept none of the " + std::to_string(refused) + " choices of it";
  ExpectReason(dump, reason);
  dump.metadata.erase("capacity");
  ExpectReason(dump, reason);
  dump.metadata["capacity"] = "64";  // as many places as rows: refuses no choice
  dump.metadata["pool"] = "microbatch";
  ExpectReason(dump, reason);
}

TEST(RoutingContradictions, ANullExpertWhoseChoicesAreRecordedAsKeptIsNoObstacle) {
  const AuditResult result = AuditBytes(WithMask(1).File());
  for (const char* rule : kRules)
    EXPECT_EQ(VerdictOf(result, rule)->kind(), v1::Verdict::KIND_PASS) << rule;
}

// One of 128 choices kept: the refusals of experts that kept nothing also count.
TEST(RoutingContradictions, CountsAreThoseOfTheRecording) {
  Dump dump = WithMask(0);
  dump.Tensor("keep_mask").data[0] = 1;
  const AuditResult result = AuditBytes(dump.File());
  const std::string reason = VerdictOf(result, kRules[0])->reason();
  EXPECT_THAT(reason, StartsWith("capacity-none: "));
  EXPECT_THAT(reason, HasSubstr(". Besides, experts "));
  const v1::Verdict& verdict = *VerdictOf(result, kRules[0]);
  const double dropped = verdict.details().fields().at("dropped").number_value();
  EXPECT_THAT(reason,
              HasSubstr(std::to_string(127 - static_cast<int>(dropped)) + " choices of them"));
}

TEST(RoutingContradictions, MoreKeptThanTheCapacityIsStated) {
  Dump dump = WithMask(1);
  dump.metadata["capacity"] = "12";
  ExpectReason(dump, "capacity-exceeded: ");
}

TEST(RoutingContradictions, AMapThatHoldsNothingOfTheMaskIsStated) {
  Dump dump = WithMask(1);
  dump.tensors.push_back({"routing_map", "BOOL", {64, 4}, std::string(256, '\0')});
  ExpectReason(dump, "masks-differ: keep_mask keeps 128 choices that routing_map does not contain");
}

TEST(RoutingContradictions, APolicyRecordedAsAnotherIsStated) {
  Dump dropless = DroplessDump();
  dropless.metadata["policy"] = "expert-choice";
  const AuditResult passed = AuditBytes(dropless.File());
  EXPECT_THAT(VerdictOf(passed, kRules[0])->reason(),
              StartsWith("policy-differs: the configuration is recorded as policy expert-choice"));
  Dump leaky = LeakyDump();
  leaky.metadata["policy"] = "fifo-capacity";
  const AuditResult found = AuditBytes(leaky.File());
  EXPECT_THAT(found.report.findings().at(0)->explanation(),
              HasSubstr("But the configuration is recorded as policy fifo-capacity"));
  leaky.metadata["policy"] = "score-capacity";
  const AuditResult same = AuditBytes(leaky.File());
  EXPECT_THAT(same.report.findings().at(0)->explanation(), Not(HasSubstr("But the")));
}

// The report shows next to a pass what it assumes because it was not recorded.
TEST(RoutingContradictions, APassStatesWhatItAssumes) {
  Dump dump = DroplessDump();
  const TextStyle verbose = {.verbose = true};
  EXPECT_THAT(RenderText(AuditBytes(dump.File()), verbose), Not(HasSubstr("no capacity is set")));
  dump.metadata.erase("capacity");
  EXPECT_THAT(RenderText(AuditBytes(dump.File()), verbose),
              HasSubstr("assuming no capacity is set: neither a capacity nor dropped choices"));
}

TEST(RoutingContradictions, ARefusedInputComesFirstAndNeedsNoDoctor) {
  const std::string text = RenderText(AuditBytes("no dump"), {});
  EXPECT_THAT(text, StartsWith("Inputs\n  refused  "));
  EXPECT_THAT(text, HasSubstr("nothing was judged: see the refused inputs"));
  EXPECT_THAT(text, Not(HasSubstr("doctor")));
}

}  // namespace
}  // namespace plumbline::audit
