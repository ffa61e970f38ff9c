// Compares the store with its input: any bits, any shape, before and after sealing.
#include "server/store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <set>

#include "tests/server/store/support.h"

namespace plumbline::test {
namespace {

using server::StoreOptions;
using testing::HasSubstr;

class StoreTest : public testing::Test {
 protected:
  TempFolder folder_;
  const std::string path_ = folder_.File("store.sqlite");
};

TEST_F(StoreTest, GivesBackEveryBitWhereverBlocksEnd) {
  const std::vector<std::vector<uint32_t>> worlds = {{0},          {0, 5, 200},  Ranks(0, 63),
                                                     Ranks(0, 64), Ranks(3, 65), Ranks(60, 130, 3)};
  uint64_t seed = 1;
  for (const auto& ranks : worlds) {
    for (const int steps : {1, 63, 64, 65, 200, 300}) {
      if (ranks.size() > 100 && steps > 200) continue;
      for (const bool in_memory : {true, false}) {
        TempFolder folder;
        StoreOptions options = At(in_memory ? "" : folder.File("s"));
        options.open_bytes = seed % 3 == 0 ? 20'000 : options.open_bytes;
        auto store = Opened(options);
        Trainer trainer(++seed, ranks);
        Truth truth;
        for (int i = 0; i < steps; ++i) {
          trainer.Step(store.get(), &truth);
          if (i % 37 == 36) store->Flush();
        }
        EXPECT_EQ(Cells(Query(store.get(), All())), truth) << ranks.size() << " x " << steps;
        if (in_memory) continue;
        store.reset();  // writes open steps
        store = Opened(options);
        EXPECT_EQ(store->held_entry(), trainer.entry());
        EXPECT_EQ(Cells(Query(store.get(), All())), truth) << ranks.size() << " x " << steps;
      }
    }
  }
}

// A forgotten run has no data, its name may come again, and other runs do not change.
TEST_F(StoreTest, ForgetsARun) {
  for (const bool in_memory : {true, false}) {
    TempFolder folder;
    const StoreOptions options = At(in_memory ? "" : folder.File("s"));
    auto store = Opened(options);
    const auto columns = ColumnsOf({"loss"});
    uint64_t entry = 0;
    Truth kept, again;
    const auto feed = [&](const std::string& run, int64_t steps, double value, Truth* truth) {
      for (int64_t step = 0; step < steps; ++step) {
        store->Judged(++entry);
        Feed(store.get(), entry, run, step, columns, {{0}, {value}, {}});
        store->EndEntry(run);
        if (truth != nullptr) (*truth)[{"loss", 0, step}] = std::bit_cast<uint64_t>(value);
      }
    };
    const auto known = [&](const std::string& run) {
      v1::ListSeriesRequest request;
      request.set_run(run);
      v1::ListSeriesResponse response;
      return store->ListSeries(request, &response).ok();
    };
    feed("r", 100, 1.0, &kept);
    feed("gone", 300, 2.0, nullptr);
    v1::Gap gap;
    gap.set_run("gone");
    gap.set_reason("a reason");
    store->AddGap(gap);
    ASSERT_TRUE(known("gone"));
    store->ForgetRun("gone");
    store->ForgetRun("gone");
    store->ForgetRun("unknown");
    EXPECT_FALSE(known("gone"));
    EXPECT_EQ(Cells(Query(store.get(), All())), kept);
    feed("gone", 70, 3.0, &again);
    const auto expect_both = [&] {
      v1::QuerySeriesRequest request = All();
      EXPECT_EQ(Cells(Query(store.get(), request)), kept);
      request.set_run("gone");
      EXPECT_EQ(Cells(Query(store.get(), request)), again);
      v1::RunInfo info;
      info.set_run("gone");
      store->FillRun(&info);
      EXPECT_EQ(info.gaps_size(), 0);
    };
    EXPECT_TRUE(store->WaitFlushed(store->Flush(), kLong));
    expect_both();
    if (in_memory) continue;
    store.reset();
    store = Opened(options);
    expect_both();
  }
}

void FeedLate(server::Store* store, uint64_t entry, int64_t step, uint32_t rank, double value,
              uint32_t attempt = 0) {
  static const auto columns = ColumnsOf({"loss"});
  const rules::SeriesRow row{rank, &value, nullptr, 0};
  rules::StepSeries series;
  series.run = "r";
  series.attempt = attempt;
  series.role = v1::ROLE_TRAINER;
  series.step = step;
  series.columns = columns;
  series.rows = {&row, 1};
  series.late = true;
  store->Judged(entry);
  store->AddSeries(entry, series);
  store->EndEntry("r");
}

// Two ranks return, each with evidence of closed steps, while the others continue.
TEST_F(StoreTest, WhatIsLateIsShownNextToTheRest) {
  const auto columns = ColumnsOf({"loss"});
  constexpr int64_t kSteps = 700;
  for (const bool in_memory : {true, false}) {
    TempFolder folder;
    const StoreOptions options = At(in_memory ? "" : folder.File("s"));
    auto store = Opened(options);
    Truth truth;
    uint64_t entry = 0;
    const auto enter = [&](uint32_t rank, int64_t step, double value) {
      truth[{"loss", rank, step}] = std::bit_cast<uint64_t>(value);
    };
    for (int64_t step = 0; step < kSteps; ++step) {
      store->Judged(++entry);
      Feed(store.get(), entry, "r", step, columns, {{0, 3}, {1.0, static_cast<double>(step)}, {}});
      store->EndEntry("r");
      enter(0, step, 1.0);
      enter(3, step, static_cast<double>(step));
      if (step < 400) continue;
      for (const uint32_t rank : {1u, 2u}) {
        const int64_t late = step - 300 - rank * 50;
        FeedLate(store.get(), ++entry, late, rank, rank + 0.5);
        enter(rank, late, rank + 0.5);
      }
      if (step % 97 == 0) store->Flush();
    }
    EXPECT_EQ(Cells(Query(store.get(), All())), truth);
    if (!in_memory) {
      store.reset();
      store = Opened(options);
      FeedLate(store.get(), entry - 1, 349, 1, 99.0);  // replayed: it exists already
      EXPECT_EQ(Cells(Query(store.get(), All())), truth);
    }
    // A later attempt replaces all of it.
    store->Judged(++entry);
    Feed(store.get(), entry, "r", 50, columns, {{0}, {7.0}, {}}, 1);
    store->EndEntry("r");
    v1::QuerySeriesRequest later = All();
    later.set_step_first(50);
    EXPECT_EQ(Cells(Query(store.get(), later)).size(), 1u);
  }
}

TEST_F(StoreTest, SelectsSeriesRanksAndSteps) {
  auto store = Opened(At(path_));
  Trainer trainer(7, Ranks(0, 70));
  Truth truth;
  for (int i = 0; i < 150; ++i) trainer.Step(store.get(), &truth);
  std::mt19937_64 random(8);
  for (int round = 0; round < 60; ++round) {
    v1::QuerySeriesRequest request = All(round % 2 == 0 ? "*/grad" : "loss");
    std::set<uint32_t> ranks;
    for (uint64_t n = random() % 4; n > 0; --n) ranks.insert(static_cast<uint32_t>(random() % 80));
    for (const uint32_t r : ranks) request.add_rank(r);
    const int64_t first = static_cast<int64_t>(random() % 250) - 20;
    const int64_t last = first + static_cast<int64_t>(random() % 120);
    request.set_step_first(first);
    request.set_step_last(last);
    Truth expected;
    for (const auto& [key, bits] : truth) {
      const auto& [name, rank, step] = key;
      const bool named = round % 2 == 0 ? name.find("/grad") != std::string::npos : name == "loss";
      if (named && (ranks.empty() || ranks.contains(rank)) && step >= first && step <= last)
        expected[key] = bits;
    }
    EXPECT_EQ(Cells(Query(store.get(), request)), expected);
  }
  v1::QuerySeriesRequest newest = All("loss");
  newest.set_last_steps(10);
  for (const auto& [key, bits] : Cells(Query(store.get(), newest)))
    EXPECT_GT(std::get<2>(key), trainer.step() - 10);
}

struct Reduced {
  uint32_t count = 0, non_finite = 0;
  double min = 0, max = 0, sum = 0;
  void Add(double v) {
    ++count;
    if (!std::isfinite(v)) return void(++non_finite);
    const bool first = count - non_finite == 1;
    min = first ? v : std::min(min, v);
    max = first ? v : std::max(max, v);
    sum += v;
  }
};

TEST_F(StoreTest, ReducesToTheCellsThatWereRequested) {
  auto store = Opened(At(path_));
  Trainer trainer(9, Ranks(0, 70));
  Truth truth;
  for (int i = 0; i < 200; ++i) trainer.Step(store.get(), &truth);
  for (const bool over_ranks : {false, true}) {
    for (const uint64_t cells : {70u, 71u, 700u, 5000u, 100000u}) {
      v1::QuerySeriesRequest request = All("loss");
      request.set_max_cells(cells);
      request.set_over_ranks(over_ranks);
      const v1::QuerySeriesResponse response = Query(store.get(), request);
      ASSERT_EQ(response.series_size(), 1);
      const v1::SeriesColumns& got = response.series(0);
      ASSERT_LE(static_cast<uint64_t>(got.mean_size()), cells);
      if (got.bucket_steps() == 1 && !over_ranks) continue;      // exact: tested above
      std::map<std::pair<uint32_t, int64_t>, Reduced> expected;  // by rank (0: all), bucket
      const auto width = static_cast<int64_t>(got.bucket_steps());
      const int64_t first = FirstStep(truth);
      for (const auto& [key, bits] : truth) {
        const auto& [name, rank, step] = key;
        if (name != "loss") continue;
        expected[{over_ranks ? 0 : rank, first + (step - first) / width * width}].Add(
            std::bit_cast<double>(bits));
      }
      size_t present = 0;
      const int rows = over_ranks ? 1 : got.rank_size();
      ASSERT_EQ(got.mean_size(), rows * got.step_size());
      for (int i = 0; i < got.mean_size(); ++i) {
        if (Absent(got, static_cast<size_t>(i))) continue;
        ++present;
        const uint32_t rank = over_ranks ? 0 : got.rank(i / got.step_size());
        const auto found = expected.find({rank, got.step(i % got.step_size())});
        ASSERT_NE(found, expected.end());
        const Reduced& e = found->second;
        EXPECT_EQ(got.count(i), e.count);
        EXPECT_EQ(got.non_finite_size() == 0 ? 0 : got.non_finite(i), e.non_finite);
        if (e.count == e.non_finite) {
          EXPECT_TRUE(std::isnan(got.mean(i)) && std::isnan(got.min(i)));
          continue;
        }
        EXPECT_EQ(got.min(i), e.min);
        EXPECT_EQ(got.max(i), e.max);
        EXPECT_NEAR(got.mean(i), e.sum / (e.count - e.non_finite), 1e-9);
      }
      EXPECT_EQ(present, expected.size());
    }
  }
  v1::QuerySeriesRequest small = All("loss");
  small.set_max_cells(69);
  v1::QuerySeriesResponse response;
  EXPECT_EQ(store->QuerySeries(small, &response).code(), absl::StatusCode::kInvalidArgument);
  small.set_series("");
  small.set_max_cells(71);
  EXPECT_GT(Query(store.get(), small).omitted(), 0u);
}

TEST_F(StoreTest, ALaterAttemptDecidesFromItsFirstStepOn) {
  auto store = Opened(At(path_));
  Trainer trainer(11, Ranks(0, 3), false);
  Truth first, second;
  for (int i = 0; i < 400; ++i) trainer.Step(store.get(), &first);
  trainer.ResumeAt(200);
  for (int i = 0; i < 300; ++i) trainer.Step(store.get(), &second, 1);
  const int64_t begin = FirstStep(second);
  Truth expected = second;
  for (const auto& [key, bits] : first) {
    if (std::get<2>(key) < begin) expected[key] = bits;
  }
  EXPECT_EQ(Cells(Query(store.get(), All())), expected);
  v1::QuerySeriesRequest old = All();
  old.set_attempt(0);
  EXPECT_EQ(Cells(Query(store.get(), old)), first);
  v1::RunInfo info;
  info.set_run("r");
  store->FillRun(&info);
  ASSERT_EQ(info.attempts_size(), 2);
  EXPECT_TRUE(info.attempts(0).superseded());
  EXPECT_EQ(info.attempts(1).step_first(), begin);
  EXPECT_EQ(info.samples(), first.size() + second.size());
}

TEST_F(StoreTest, ARunThatBeginsAnewUnderItsAttemptSupersedesItself) {
  auto store = Opened(At(path_));
  Trainer trainer(12, Ranks(0, 2));
  Truth first, second;
  for (int i = 0; i < 100; ++i) trainer.Step(store.get(), &first);
  store->FinishRun("r");
  trainer.ResumeAt(1);
  for (int i = 0; i < 50; ++i) trainer.Step(store.get(), &second);
  std::erase_if(first,
                [&](const auto& cell) { return std::get<2>(cell.first) >= FirstStep(second); });
  second.merge(first);
  EXPECT_EQ(Cells(Query(store.get(), All())), second);
}

// Rank 0 was at step 10 and rank 1 at step 5 when the rules forgot the run. A part that continues
// adds to the earlier steps, twice. A part that begins again supersedes both. A later attempt
// supersedes them too.
TEST_F(StoreTest, AForgottenRunThatGoesOnAddsToItself) {
  const auto columns = ColumnsOf({"loss"});
  uint64_t entry = 0;
  const auto feed = [&](server::Store* store, uint32_t rank, int64_t first, int64_t last,
                        bool resumed, uint32_t attempt = 0) {
    for (int64_t step = first; step <= last; ++step) {
      const FedRows fed{{rank}, {static_cast<double>(step)}, {}};
      Feed(store, ++entry, "r", step, columns, fed, attempt, v1::ROLE_TRAINER, resumed);
      store->EndEntry("r");
    }
  };
  // Returns the steps shown for each rank, "first-last" without a gap.
  const auto shown = [&](server::Store* store) {
    std::map<uint32_t, std::set<int64_t>> steps;
    for (const auto& [cell, bits] : Cells(Query(store, All())))
      steps[std::get<1>(cell)].insert(std::get<2>(cell));
    std::string text;
    for (const auto& [rank, of] : steps) {
      text += std::to_string(rank) + ":" + std::to_string(*of.begin()) + "-" +
              std::to_string(*of.rbegin()) + (of.size() == size_t(*of.rbegin() + 1) ? "" : "!") +
              " ";
    }
    return text;
  };
  auto store = Opened(At(path_));
  for (int64_t step = 0; step <= 5; ++step) {
    Feed(store.get(), ++entry, "r", step, columns,
         {{0, 1}, {static_cast<double>(step), static_cast<double>(step)}, {}});
  }
  feed(store.get(), 0, 6, 10, false);
  store->FinishRun("r");
  feed(store.get(), 1, 6, 12, true);
  EXPECT_EQ(shown(store.get()), "0:0-10 1:0-12 ");
  store->FinishRun("r");
  feed(store.get(), 0, 11, 14, true);
  EXPECT_EQ(shown(store.get()), "0:0-14 1:0-12 ");
  store->FinishRun("r");
  store.reset();
  store = Opened(At(path_));
  EXPECT_EQ(shown(store.get()), "0:0-14 1:0-12 ");
  // A process of the same attempt begins at step 3, and is forgotten and continues at step 2.
  feed(store.get(), 0, 3, 8, false);
  EXPECT_EQ(shown(store.get()), "0:0-8 1:0-2 ");
  feed(store.get(), 1, 3, 4, true);
  EXPECT_EQ(shown(store.get()), "0:0-8 1:0-4 ");
  feed(store.get(), 0, 2, 2, false, 1);
  EXPECT_EQ(shown(store.get()), "0:0-2 1:0-1 ");
}

TEST_F(StoreTest, ListsSeries) {
  auto store = Opened(At(path_));
  Trainer trainer(13, Ranks(0, 67), false);
  Truth truth;
  for (int i = 0; i < 260; ++i) trainer.Step(store.get(), &truth);
  const auto lists_all_once = [&] {
    v1::ListSeriesRequest request;
    request.set_run("r");
    v1::ListSeriesResponse list;
    ASSERT_TRUE(store->ListSeries(request, &list).ok());
    ASSERT_EQ(list.series_size(), 5);
    for (const auto& s : list.series()) {
      const std::string name =
          s.site().layer().empty() ? s.site().op() : s.site().layer() + "/" + s.site().op();
      std::set<uint32_t> ranks;
      uint64_t samples = 0;
      for (const auto& [key, bits] : truth) {
        if (std::get<0>(key) != name) continue;
        ranks.insert(std::get<1>(key));
        ++samples;
      }
      ASSERT_EQ(s.ranks(), ranks.size()) << name;
      ASSERT_EQ(s.samples(), samples) << name;
    }
  };
  // While blocks are being written, a step that is in memory and in the database counts once.
  const uint64_t ticket = store->Flush();
  do {
    ASSERT_NO_FATAL_FAILURE(lists_all_once());
  } while (!store->WaitFlushed(ticket, std::chrono::milliseconds(0)));
  ASSERT_NO_FATAL_FAILURE(lists_all_once());
  v1::ListSeriesRequest request;
  request.set_run("another");
  v1::ListSeriesResponse list;
  const absl::Status status = store->ListSeries(request, &list);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("another"));
}

}  // namespace
}  // namespace plumbline::test
