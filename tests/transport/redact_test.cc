// What redaction replaces and what it keeps, message by message.
#include "transport/redact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/files.h"

namespace plumbline::transport {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSecret[] = "0123456789abcdef";

template <typename T>
void Fill(v1::Tensor* t, v1::DType dtype, const std::vector<T>& values) {
  t->set_dtype(dtype);
  t->add_shape(static_cast<int64_t>(values.size()));
  t->set_data(std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)));
}

template <typename T>
std::vector<T> Data(const v1::Tensor& t) {
  std::vector<T> out(t.data().size() / sizeof(T));
  std::memcpy(out.data(), t.data().data(), t.data().size());
  return out;
}

TEST(Redact, EqualIdsStayEqualWhateverTheirWidth) {
  const Redactor redactor(kSecret);
  v1::Evidence wide, narrow;
  Fill<int64_t>(wide.mutable_logprobs()->add_sequences()->mutable_tokens(), v1::DTYPE_I64,
                {5, -1, 70000, 5, -100});
  Fill<int32_t>(narrow.mutable_logprobs()->add_sequences()->mutable_tokens(), v1::DTYPE_I32,
                {5, -1, 70000, 5, -100});
  EXPECT_TRUE(redactor.Redact(&wide));
  EXPECT_TRUE(redactor.Redact(&narrow));
  const v1::Tensor& tokens = wide.logprobs().sequences(0).tokens();
  EXPECT_EQ(tokens.SerializeAsString(),
            narrow.logprobs().sequences(0).tokens().SerializeAsString());
  const auto ids = Data<int64_t>(tokens);
  ASSERT_EQ(ids.size(), 5u);
  EXPECT_EQ(ids[0], ids[3]);
  EXPECT_NE(ids[0], ids[2]);
  EXPECT_GT(ids[0], 1'000'000) << "not the raw id";
  EXPECT_EQ(ids[1], -1) << "no token";
  EXPECT_EQ(ids[4], -100);
  EXPECT_EQ(wide.redacted_key(), redactor.key_id());
}

TEST(Redact, OnceAlone) {
  const Redactor redactor(kSecret), other("another secret of bytes");
  v1::Evidence e;
  e.mutable_logprobs()->add_sequences()->set_id("12");
  ASSERT_TRUE(redactor.Redact(&e));
  const std::string once = e.SerializeAsString();
  EXPECT_FALSE(redactor.Redact(&e));
  EXPECT_FALSE(other.Redact(&e));
  EXPECT_EQ(e.SerializeAsString(), once);
  EXPECT_NE(redactor.key_id(), other.key_id());
}

TEST(Redact, OneIdHasOneHashInEveryMessage) {
  const Redactor redactor(kSecret);
  v1::Evidence sequence, row, sample;
  sequence.mutable_logprobs()->add_sequences()->set_id("12");
  row.mutable_logits()->add_rows()->set_sequence_id("12");
  Fill<int32_t>(sample.mutable_routing()->mutable_sample()->mutable_sequence_id(), v1::DTYPE_I32,
                {12});
  for (v1::Evidence* e : {&sequence, &row, &sample}) ASSERT_TRUE(redactor.Redact(e));
  const std::string id = std::to_string(redactor.Sequence(12));
  EXPECT_EQ(sequence.logprobs().sequences(0).id(), id);
  EXPECT_EQ(row.logits().rows(0).sequence_id(), id);
  EXPECT_EQ(Data<int64_t>(sample.routing().sample().sequence_id())[0], redactor.Sequence(12));
  EXPECT_NE(redactor.Sequence(12), redactor.Token(12)) << "a table of one serves not the other";
  EXPECT_THAT(redactor.SequenceText("user-7/turn"), Not(HasSubstr("user")));
  EXPECT_EQ(redactor.SequenceText("user-7/turn"), redactor.SequenceText("user-7/turn"));
  EXPECT_EQ(redactor.SequenceText(""), "");
}

// Queues are replayed in the order of their sequences: only that order is kept.
TEST(Redact, TheOrderWithinACallIsKeptNextToTheHashes) {
  const Redactor redactor(kSecret);
  v1::Evidence e;
  v1::RoutingSample& s = *e.mutable_routing()->mutable_sample();
  Fill<int64_t>(s.mutable_sequence_id(), v1::DTYPE_I64, {900, 900, -1, 31, 900, 5000});
  Fill<int32_t>(s.mutable_pool_id(), v1::DTYPE_I32, {1, 1, 1, 2, 2, 2});
  Fill<int32_t>(s.mutable_topk_indices(), v1::DTYPE_I32, {0, 1, 2, 3, 4, 5});
  const std::string experts = s.topk_indices().SerializeAsString();
  ASSERT_TRUE(redactor.Redact(&e));
  EXPECT_THAT(Data<int32_t>(s.sequence_order()), ElementsAre(2, 2, 0, 1, 2, 3));
  const auto pools = Data<int64_t>(s.pool_id());
  EXPECT_EQ(pools[0], pools[2]);
  EXPECT_NE(pools[2], pools[3]);
  EXPECT_GT(pools[0], 2);
  EXPECT_EQ(s.topk_indices().SerializeAsString(), experts) << "choices are not ids";
}

TEST(Redact, RowsOfLogitsNameNoToken) {
  const Redactor redactor(kSecret);
  v1::Evidence e;
  e.mutable_logits()->add_rows()->set_token(4711);
  e.mutable_logits()->add_rows()->set_token(-1);
  Fill<float>(e.mutable_logits()->add_worst()->mutable_train(), v1::DTYPE_F32, {1, 9, 1});
  ASSERT_TRUE(redactor.Redact(&e));
  EXPECT_EQ(e.logits().rows(0).token(), redactor.Token(4711));
  EXPECT_EQ(e.logits().rows(1).token(), -1);
  EXPECT_EQ(e.logits().worst_size(), 0) << "its largest logit names the token";
}

TEST(Redact, IntegerTensorsKeepTheirDigestAlone) {
  const Redactor redactor(kSecret);
  for (const auto& [role, dtype, hidden] :
       {std::tuple<const char*, v1::DType, bool>{"", v1::DTYPE_I64, true},
        {"activation", v1::DTYPE_U8, true},
        {"positions", v1::DTYPE_I64, false},
        {"weight", v1::DTYPE_U64, false},
        {"", v1::DTYPE_BOOL, false},
        {"weight", v1::DTYPE_F32, false}}) {
    SCOPED_TRACE(std::string(role) + " " + std::to_string(dtype));
    v1::Evidence e;
    v1::TensorState& t = *e.mutable_tensor();
    t.set_dtype(dtype);
    t.set_role(role);
    t.mutable_summary()->set_max(4711);
    t.mutable_summary()->set_digest_low(5);
    t.mutable_sample()->mutable_values()->set_data("ids");
    EXPECT_EQ(redactor.Redact(&e), hidden);
    EXPECT_EQ(t.has_sample(), !hidden);
    EXPECT_EQ(std::isnan(t.summary().max()), hidden);
    EXPECT_EQ(t.summary().digest_low(), 5u);
    EXPECT_EQ(t.no_sample_reason().empty(), !hidden);
  }
}

// Malformed and hostile tensors: no bytes are left that might be ids, and no read is out of bounds.
TEST(Redact, MalformedTensorsLoseTheirBytes) {
  const Redactor redactor(kSecret);
  v1::Evidence e;
  v1::Tensor& floats = *e.mutable_logprobs()->add_sequences()->mutable_tokens();
  Fill<float>(&floats, v1::DTYPE_F32, {4711, 4712});
  v1::Tensor& torn = *e.mutable_logprobs()->add_sequences()->mutable_tokens();
  torn.set_dtype(v1::DTYPE_I64);
  torn.add_shape(2);
  torn.set_data("123456789");
  v1::Tensor& unknown = *e.mutable_logprobs()->add_sequences()->mutable_tokens();
  unknown.set_data("raw");
  ASSERT_TRUE(redactor.Redact(&e));
  for (const auto& s : e.logprobs().sequences()) EXPECT_EQ(s.tokens().data(), "");
}

TEST(Redact, WhatHoldsNoIdsStaysAsItIs) {
  const Redactor redactor(kSecret);
  v1::Batch batch;
  batch.add_evidence()->mutable_scalar()->set_value(3);
  batch.add_evidence()->mutable_routing()->mutable_summary()->set_tokens(4);
  batch.add_evidence()->mutable_logprobs()->set_tokens_seen(4);
  batch.add_evidence()->mutable_timeline();
  const std::string before = batch.SerializeAsString();
  EXPECT_EQ(redactor.Redact(&batch), 0u);
  EXPECT_EQ(batch.SerializeAsString(), before);
}

// ---- the key -----------------------------------------------------------------------------------

class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Environment() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST(RedactSecret, ComesFromTheVariableFirst) {
  const Environment key("PLUMBLINE_REDACT_KEY", "sixteen bytes or more");
  EXPECT_EQ(RedactSecret("run").value_or(""), "sixteen bytes or more");
}

TEST(RedactSecret, AShortOneIsRefusedAndNotQuoted) {
  const Environment key("PLUMBLINE_REDACT_KEY", "hunter2");
  const auto secret = RedactSecret("run");
  ASSERT_FALSE(secret.ok());
  EXPECT_THAT(std::string(secret.status().message()),
              HasSubstr("PLUMBLINE_REDACT_KEY has 7 bytes; expected at least 16"));
  EXPECT_THAT(std::string(secret.status().message()), Not(HasSubstr("hunter2")));
}

TEST(RedactSecret, OfATokenItIsTheSameForAllRanksOfARun) {
  const test::TempFolder dir;
  const std::string path = dir.Write("token", "# ours\nabcdefghijklmnopqrstuvwxyz012345\n");
  std::filesystem::permissions(path, std::filesystem::perms(0600));
  const Environment file("PLUMBLINE_TOKEN_FILE", path.c_str());
  const std::string one = RedactSecret("run").value_or(""),
                    again = RedactSecret("run").value_or("");
  EXPECT_FALSE(one.empty());
  EXPECT_EQ(one, again);
  EXPECT_NE(one, RedactSecret("other").value_or(""));
}

TEST(RedactSecret, ElseItIsRandom) {
  const std::string one = RedactSecret("run").value_or(""),
                    other = RedactSecret("run").value_or("");
  EXPECT_EQ(one.size(), 32u);
  EXPECT_NE(one, other);
}

}  // namespace
}  // namespace plumbline::transport
