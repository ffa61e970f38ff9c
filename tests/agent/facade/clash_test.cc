// A trainer with its own protobuf messages in the same libprotobuf as the agent's.
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "evidence.pb.h"
#include "plumbline/agent.h"
#include "tests/support/files.h"

namespace {

// Builds, serialises, parses and looks up the trainer's messages.
void UseOwnMessages() {
  trainer::Batch batch;
  for (int i = 0; i < 100; ++i) {
    trainer::Evidence* evidence = batch.add_evidence();
    evidence->mutable_routing()->add_top_k(0.5f * static_cast<float>(i));
    evidence->mutable_routing()->mutable_site()->set_layer(i);
    (*evidence->mutable_scalar())["loss"].set_value("a value that is no double " +
                                                    std::to_string(i));
  }
  trainer::Batch parsed;
  ASSERT_TRUE(parsed.ParseFromString(batch.SerializeAsString()));
  ASSERT_EQ(parsed.evidence_size(), 100);
  EXPECT_EQ(parsed.evidence(7).scalar().at("loss").value(), "a value that is no double 7");
  const auto* pool = google::protobuf::DescriptorPool::generated_pool();
  ASSERT_NE(pool->FindFileByName("evidence.proto"), nullptr);
  EXPECT_EQ(pool->FindMessageTypeByName("trainer.Evidence")->file()->name(), "evidence.proto");
}

TEST(Clash, OwnProtoNextToTheAgent) {
  UseOwnMessages();
  const plumbline::test::TempFolder folder;
  const std::string record = folder.File("record");
  {
    plumbline::Run run(plumbline::RunOptions{.run = "clash", .record = record});
    ASSERT_EQ(run.status(), PLUMBLINE_OK);
    for (int64_t i = 0; i < 20; ++i) {
      plumbline::Step step(run, i);
      ASSERT_EQ(run.Scalar("loss", 1.0), PLUMBLINE_OK) << plumbline_last_error();
      UseOwnMessages();
    }
    ASSERT_EQ(run.Flush(10000), PLUMBLINE_OK) << plumbline_last_error();
    ASSERT_EQ(run.Close(), PLUMBLINE_OK) << plumbline_last_error();
  }
  UseOwnMessages();
  EXPECT_FALSE(std::filesystem::is_empty(record));
}

}  // namespace
