// Event files and W&B runs, mutated as files and, with valid checksums, as records: the audit must
// answer.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/audit/scalars/scalar_files.h"
#include "tests/fuzz/audit_bytes.h"
#include "tests/fuzz/mutate.h"

namespace plumbline::audit {
namespace {

using testing::BytesField;
using testing::EventFile;
using testing::FloatField;
using testing::VarintField;
using testing::WandbRun;

void Audit(const std::string& bytes, const char* format) {
  for (const char* as : {"", format})
    AuditBytes(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), as);
}

std::string Mutate(const std::string& bytes, std::mt19937& random) {
  using namespace std::string_view_literals;
  return MutateWith(bytes, "\0\xFF\x7F\x80\x01\x08\x0A\x12\x15"sv, random);
}

std::string Event(int64_t step, std::mt19937& random) {
  const std::string tag = "loss" + std::to_string(random() % 3);
  const std::string value =
      random() % 2 == 0 ? FloatField(2, 1.5f)
                        : testing::Tensor(1 + random() % 20, {1}, testing::Content("\1\2\3\4"));
  // Most events have a time, which selects the fast path.
  const std::string time = random() % 4 == 0 ? "" : testing::DoubleField(1, 1.7e9);
  return time + VarintField(2, static_cast<uint64_t>(step)) +
         BytesField(5, BytesField(1, BytesField(1, tag) + value));
}

std::string Row(int64_t step, std::mt19937& random) {
  static constexpr const char* kValues[] = {"1.5", "\"NaN\"", "{}", "-1e308", "", "[1]", "\"x\""};
  const char* const value = kValues[random() % std::size(kValues)];
  const std::string loss = random() % 4 == 0 ? testing::WandbItem("", value, {"loss"})
                                             : testing::WandbItem("loss", value);
  return BytesField(
      2, BytesField(1, loss) + BytesField(1, testing::WandbItem("lr", "1e-3")) +
             BytesField(1, testing::WandbItem("_step", std::to_string(step))) +
             (random() % 2 == 0 ? BytesField(2, VarintField(1, static_cast<uint64_t>(step))) : ""));
}

TEST(ScalarMutation, Files) {
  std::mt19937 random(1);
  EventFile events;
  WandbRun run;
  run.Begin("abc");
  for (int64_t step = 0; step < 12; ++step) {
    events.Record(Event(step, random));
    run.Record(Row(step, random));
  }
  const FuzzRounds rounds(1500);
  for (int i = 0; rounds.Due(i); ++i) {
    Audit(Mutate(events.bytes(), random), "tensorboard");
    Audit(Mutate(run.bytes(), random), "wandb");
  }
}

// Mutations reach past the framing: checksums are valid.
TEST(ScalarMutation, Records) {
  std::mt19937 random(2);
  const FuzzRounds rounds(1500);
  for (int i = 0; rounds.Due(i); ++i) {
    EventFile events;
    WandbRun run;
    run.Record(Mutate(BytesField(17, BytesField(1, "abc") + VarintField(14, 5)), random));
    for (int64_t step = 0; step < 6; ++step) {
      events.Record(Mutate(Event(step, random), random));
      run.Record(Mutate(Row(step, random), random));
    }
    run.Record(Mutate(BytesField(7, BytesField(3, testing::WandbItem("gpu", "3"))), random));
    Audit(events.bytes(), "tensorboard");
    Audit(run.bytes(), "wandb");
  }
}

}  // namespace
}  // namespace plumbline::audit
