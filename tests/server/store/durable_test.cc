// The store with restarts, replays, damage and its limits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "server/store/store.h"
#include "tests/server/store/support.h"

namespace plumbline::test {
namespace {

using server::StoreOptions;
using testing::HasSubstr;

class DurableStore : public testing::Test {
 protected:
  TempFolder folder_;
  const std::string path_ = folder_.File("store.sqlite");
};

// The store is killed at any moment and replayed from any entry that it holds. No value exists
// twice, and none is missing.
TEST_F(DurableStore, ReplayedEntriesAreStoredOnce) {
  for (uint64_t seed = 20; seed < 32; ++seed) {
    TempFolder folder;
    std::mt19937_64 random(seed);
    const StoreOptions options = At(folder.File("s"));
    Truth truth;
    uint64_t held = 0;
    {
      auto store = Opened(options);
      Trainer trainer(seed, Ranks(0, 20), false);
      for (int i = 0; i < 330; ++i) {
        trainer.Step(store.get(), &truth);
        if (random() % 50 == 0) store->Flush();
      }
      // Like kill -9: the files are copied while the store is open.
      ASSERT_TRUE(Eventually([&] { return store->Info().tiles() > 0; }));
      held = store->held_entry();
      for (const char* suffix : {"", "-wal"}) {
        WriteFile(folder.File("copy") + suffix, ReadFile(folder.File("s") + suffix));
      }
    }
    auto store = Opened(At(folder.File("copy")));
    ASSERT_GE(store->held_entry(), held);
    // The trainer repeats its steps from its seed, like a journal; the engine's checkpoint is at or
    // before the newest entry of the store.
    Truth again;
    Trainer trainer(seed, Ranks(0, 20), false);
    for (int i = 0; i < 330; ++i) trainer.Step(store.get(), &again);
    EXPECT_EQ(again, truth);
    EXPECT_EQ(Cells(Query(store.get(), All())), truth) << "seed " << seed;
    ASSERT_TRUE(store->WaitFlushed(store->Flush(), kLong));
    v1::ListSeriesRequest request;
    request.set_run("r");
    v1::ListSeriesResponse list;
    ASSERT_TRUE(store->ListSeries(request, &list).ok());
    uint64_t samples = 0;
    for (const auto& s : list.series()) samples += s.samples();
    EXPECT_EQ(samples, truth.size());
  }
}

TEST_F(DurableStore, RetentionTakesTheOldestAndStatesSo) {
  StoreOptions options = At(path_);
  options.limits.max_bytes = 400'000;
  auto store = Opened(options);
  Trainer trainer(14, Ranks(0, 64));
  Truth truth;
  for (int i = 0; i < 640; ++i) trainer.Step(store.get(), &truth);
  ASSERT_TRUE(store->WaitFlushed(store->Flush(), kLong));
  const v1::StoreInfo info = store->Info();
  EXPECT_LE(info.bytes(), options.limits.max_bytes);
  EXPECT_GT(info.dropped_tiles(), 0u);
  v1::RunInfo run;
  run.set_run("r");
  store->FillRun(&run);
  ASSERT_EQ(run.gaps_size(), 1);
  EXPECT_THAT(run.gaps(0).reason(), HasSubstr("retention: "));
  const Truth left = Cells(Query(store.get(), All()));
  EXPECT_EQ(run.gaps(0).items() + left.size(), truth.size());
  for (const auto& [key, bits] : left) EXPECT_EQ(truth.at(key), bits);
}

TEST_F(DurableStore, RetentionByAge) {
  StoreOptions options = At(path_);
  int64_t now = 1000;
  options.unix_s = [&now] { return now; };
  options.limits.max_age_s = 100;
  Truth truth;
  Trainer trainer(15, Ranks(0, 2));
  {
    auto store = Opened(options);
    for (int i = 0; i < 256; ++i) trainer.Step(store.get(), &truth);
  }
  EXPECT_EQ(Cells(Query(Opened(options).get(), All())), truth);
  now += 101;
  auto store = Opened(options);
  Truth more;
  for (int i = 0; i < 256; ++i) trainer.Step(store.get(), &more);
  ASSERT_TRUE(store->WaitFlushed(store->Flush(), kLong));
  EXPECT_EQ(Cells(Query(store.get(), All())), more);
}

// A start that judges nothing new must not reset the store's position.
TEST_F(DurableStore, AStartWithoutAnEntryKeepsItsPlace) {
  Truth truth;
  Trainer trainer(19, Ranks(0, 2));
  {
    auto store = Opened(At(path_));
    for (int i = 0; i < 10; ++i) trainer.Step(store.get(), &truth);
  }
  Opened(At(path_)).reset();
  auto store = Opened(At(path_));
  EXPECT_EQ(store->held_entry(), trainer.entry());
  store->Judged(3);  // replayed
  store->EndEntry("r");
  ASSERT_TRUE(store->WaitFlushed(store->Flush(), kLong));
  EXPECT_EQ(store->held_entry(), trainer.entry());
  EXPECT_EQ(Cells(Query(store.get(), All())), truth);
}

TEST_F(DurableStore, WhatIsNoStoreOfThisJournalIsSetAsideAndStated) {
  Truth truth;
  for (const std::string& junk : {std::string("not a database"), std::string(40'000, 'x')}) {
    WriteFile(path_, junk);
    auto store = Opened(At(path_));
    EXPECT_THAT(store->Info().problem(), HasSubstr(path_));
    EXPECT_EQ(store->held_entry(), 0u);
    EXPECT_EQ(ReadFile(path_ + ".aside"), junk);
    Trainer trainer(16, Ranks(0, 2));
    truth.clear();
    for (int i = 0; i < 10; ++i) trainer.Step(store.get(), &truth);
    EXPECT_EQ(Cells(Query(store.get(), All())), truth);
  }
  EXPECT_EQ(Opened(At(path_))->Info().problem(), "");
  EXPECT_EQ(Opened(At(path_))->held_entry(), 10u);
  auto ahead = Opened(At(path_, 9));
  EXPECT_THAT(ahead->Info().problem(), HasSubstr("entry 10 of the journal, which ends at 9"));
  ahead.reset();
  StoreOptions other = At(path_);
  other.origin.journal_id = "another";
  EXPECT_THAT(Opened(other)->Info().problem(), HasSubstr("another journal"));
}

TEST_F(DurableStore, DamageMetWhileServingIsNeverACrash) {
  const auto fill = [&] {
    std::remove(path_.c_str());
    auto store = Opened(At(path_));
    Trainer trainer(17, Ranks(0, 64));
    Truth truth;
    for (int i = 0; i < 256; ++i) trainer.Step(store.get(), &truth);
    return truth;
  };
  const Truth truth = fill();
  const std::string good = ReadFile(path_);
  std::mt19937_64 random(18);
  int damaged = 0;
  for (int round = 0; round < 40; ++round) {
    std::string bad = good;
    for (int i = 0; i < 40; ++i)
      bad[8192 + random() % (bad.size() - 8192)] = static_cast<char>(random());
    for (const char* suffix : {"-wal", "-shm"}) std::remove((path_ + suffix).c_str());
    WriteFile(path_, bad);
    auto opened = server::Store::Open(At(path_));
    ASSERT_TRUE(opened.ok()) << opened.status();
    v1::QuerySeriesResponse response;
    const absl::Status status = (*opened)->QuerySeries(All(), &response);
    if (status.ok()) {
      for (const auto& [key, bits] : Cells(response)) ASSERT_EQ(truth.at(key), bits);
      continue;
    }
    ++damaged;
    // it was renamed when it was opened
    if (status.code() == absl::StatusCode::kNotFound) continue;
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
    ASSERT_TRUE(Eventually([&] { return !(*opened)->Info().problem().empty(); }));
    EXPECT_TRUE((*opened)->QuerySeries(All(), &response).ok());
  }
  EXPECT_GT(damaged, 0);
}

TEST_F(DurableStore, KeepsGapsAndTheHistoryOfIncidents) {
  for (int again = 0; again < 2; ++again) {  // replayed: the same
    auto store = Opened(At(path_));
    store->Judged(1);
    v1::Gap gap;
    gap.set_run("r");
    gap.set_attempt(1);
    gap.set_step_first(3);
    gap.set_step_last(9);
    gap.set_items(7);
    gap.set_reason("journal-retention: gone");
    store->AddGap(gap);
    for (uint64_t revision = 1; revision <= 3; ++revision) {
      v1::IncidentRevision r;
      r.set_revision(revision);
      r.set_unix_ns(again + 1);
      store->AddRevision("f", r);
    }
    ASSERT_TRUE(store->WaitFlushed(store->Flush(), kLong));
    const auto history = store->History("f");
    ASSERT_TRUE(history.ok());
    ASSERT_EQ(history->size(), 3u);
    EXPECT_EQ((*history)[2].revision(), 3u);
    EXPECT_EQ((*history)[2].unix_ns(), 1);
    v1::RunInfo run;
    run.set_run("r");
    store->FillRun(&run);
    ASSERT_EQ(run.gaps_size(), 1);
    EXPECT_EQ(run.gaps(0).items(), 7u);
    EXPECT_EQ(run.gaps(0).step_last(), 9);
  }
}

}  // namespace
}  // namespace plumbline::test
