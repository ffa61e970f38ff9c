#include "server/stream/batch_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace plumbline::server {
namespace {

using testing::HasSubstr;

v1::Batch Good() {
  v1::Batch b;
  v1::Source* source = b.add_sources();
  source->set_run("r");
  source->set_world_size(2);
  v1::Evidence* e = b.add_evidence();
  e->mutable_site()->set_layer("layers.0");
  v1::Tensor* scores = e->mutable_routing()->mutable_sample()->mutable_scores();
  scores->set_dtype(v1::DTYPE_F32);
  scores->add_shape(4);
  scores->add_shape(8);
  scores->set_data(std::string(128, '\0'));
  b.add_progress();
  b.add_losses()->set_cause("queue-full");
  b.add_declarations();
  return b;
}

v1::Tensor* Scores(v1::Batch& b) {
  return b.mutable_evidence(0)->mutable_routing()->mutable_sample()->mutable_scores();
}

TEST(BatchChecks, AcceptsWhatIsWellFormed) {
  EXPECT_TRUE(CheckReceived(Good(), {}).ok());
  v1::Batch unknown_kind = Good();
  unknown_kind.mutable_evidence(0)->clear_what();  // from a newer agent
  EXPECT_TRUE(CheckReceived(unknown_kind, {}).ok());
  EXPECT_TRUE(CheckReceived(v1::Batch(), {}).ok());
}

TEST(BatchChecks, NamesWhatIsWrongAndWhere) {
  const struct {
    std::function<void(v1::Batch&)> damage;
    const char* message;
  } cases[] = {
      {[](auto& b) { b.mutable_evidence(0)->set_source(1); }, "evidence[0].source: 1"},
      {[](auto& b) { b.mutable_evidence(0)->clear_site(); }, "evidence[0].site"},
      {[](auto& b) { b.mutable_evidence(0)->set_step(-1); }, "evidence[0].step: -1"},
      {[](auto& b) { b.mutable_progress(0)->set_source(9); }, "progress[0].source: 9"},
      {[](auto& b) { b.mutable_losses(0)->set_source(9); }, "losses[0].source: 9"},
      {[](auto& b) { b.mutable_declarations(0)->set_source(9); }, "declarations[0].source: 9"},
      {[](auto& b) { b.mutable_sources(0)->set_rank(2); }, "sources[0]: rank 2 of 2"},
      {[](auto& b) { b.mutable_sources(0)->set_run(std::string(600, 'x')); },
       "sources[0]: run: 600"},
      {[](auto& b) { b.mutable_evidence(0)->mutable_site()->set_layer(std::string(513, 'x')); },
       "site.layer: 513"},
      {[](auto& b) { Scores(b)->set_data("short"); },
       "scores: 5 bytes of data for f32 [4,8], expected 128"},
      {[](auto& b) { Scores(b)->set_shape(0, -4); }, "negative extent -4"},
      {[](auto& b) {
         Scores(b)->set_shape(0, int64_t{1} << 62);
         Scores(b)->set_shape(1, int64_t{1} << 62);
       },
       "overflows"},
      {[](auto& b) { Scores(b)->set_dtype(static_cast<v1::DType>(99)); },
       "unknown element type 99"},
      {[](auto& b) {
         for (int i = 0; i < 9; ++i) Scores(b)->add_shape(1);
       },
       "11 axes"},
      {[](auto& b) { b.mutable_evidence(0)->mutable_tensor()->mutable_sample()->mutable_values(); },
       "evidence[0].tensor.sample.values: unknown element type 0"},
      {[](auto& b) {
         auto* r = b.mutable_evidence(0)->mutable_reduction()->mutable_sample();
         r->mutable_offsets()->set_dtype(v1::DTYPE_U32);
         r->mutable_offsets()->add_shape(3);
       },
       "evidence[0].reduction.sample.offsets: 0 bytes of data for u32 [3], expected 12"},
      {[](auto& b) {
         auto* u = b.mutable_evidence(0)->mutable_update()->mutable_sample();
         u->mutable_moment_after()->set_dtype(v1::DTYPE_F32);
       },
       "evidence[0].update.sample.moment_after: 0 bytes of data for f32 [], expected 4"},
  };
  for (const auto& c : cases) {
    v1::Batch b = Good();
    c.damage(b);
    const absl::Status s = CheckReceived(b, {});
    EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(std::string(s.message()), HasSubstr(c.message));
  }
}

TEST(BatchChecks, BoundsTheNumberOfSources) {
  v1::Batch b;
  for (int i = 0; i < 5; ++i) b.add_sources();
  EXPECT_TRUE(CheckReceived(b, {512, 5}).ok());
  EXPECT_FALSE(CheckReceived(b, {512, 4}).ok());
}

}  // namespace
}  // namespace plumbline::server
