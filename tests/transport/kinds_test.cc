// Samples of every kind of evidence in the list: detected, dropped with their reason, and never the
// rest of the message with them.
#include <gtest/gtest.h>

#include <string>

#include "proto/evidence_samples.h"
#include "transport/batch_edit.h"

namespace plumbline::transport {
namespace {

template <typename Message>
void GiveSample(Message* message) {
  message->mutable_sample();
}
void GiveSample(v1::Logits* logits) { logits->add_rows(); }
void GiveSample(v1::Logprobs* logprobs) { logprobs->add_sequences(); }

template <typename Message>
void Check(const char* name, Message* (v1::Evidence::*field)(), int* checked) {
  v1::Batch batch;
  v1::Evidence& e = *batch.add_evidence();
  (e.*field)();
  EXPECT_FALSE(HasSample(e)) << name;
  GiveSample((e.*field)());
  EXPECT_TRUE(HasSample(e)) << name;
  DropSamples(&batch, "too much");
  EXPECT_FALSE(HasSample(e)) << name;
  EXPECT_EQ((e.*field)()->no_sample_reason(), "dropped: too much") << name;
  EXPECT_EQ(batch.losses_size(), 1) << name;
  const auto* descriptor = v1::Evidence::descriptor()->FindFieldByName(name);
  ASSERT_NE(descriptor, nullptr) << name;
  EXPECT_EQ(descriptor->containing_oneof()->name(), "what") << name;
  ++*checked;
}

TEST(Kinds, SamplesAreSeenAndDroppedWithTheirReason) {
  int checked = 0;
#define PLUMB_KIND(Name, NAME, name, number, op) \
  Check(#name, &v1::Evidence::mutable_##name, &checked);
#include "proto/evidence_kinds.inc"
  // Scalars and spans, timelines and flight recorders have no samples.
  EXPECT_EQ(checked + 4, v1::Evidence::descriptor()->FindOneofByName("what")->field_count());
}

TEST(Kinds, AScalarHasNoSample) {
  v1::Evidence e;
  e.mutable_scalar()->set_value(1);
  EXPECT_FALSE(HasSample(e));
  EXPECT_FALSE(HasSample(v1::Evidence()));
}

}  // namespace
}  // namespace plumbline::transport
