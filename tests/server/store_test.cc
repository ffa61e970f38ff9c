// The store against what it was fed: any bits, any shape, before and after sealing and restarts.
#include "server/store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <random>
#include <set>
#include <tuple>

#include "tests/server/store_support.h"
#include "tests/server/support.h"

namespace plumbline::test {
namespace {

using server::Store;
using server::StoreOptions;
using testing::HasSubstr;

constexpr std::chrono::milliseconds kLong =
    std::chrono::duration_cast<std::chrono::milliseconds>(kPatience);

StoreOptions At(const std::string& path, uint64_t newest_entry = 1u << 30) {
  StoreOptions options;
  options.path = path;
  options.origin.journal_id = "journal";
  options.origin.newest_entry = newest_entry;
  return options;
}

std::unique_ptr<Store> Opened(const StoreOptions& options) {
  auto store = Store::Open(options);
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? std::move(*store) : nullptr;
}

double AnyDouble(std::mt19937_64& random) {
  switch (random() % 10) {
    case 0:
      return std::bit_cast<double>(0x7FF0000000000001ull | (random() & 0x800FFFFFFFFFFFFFull));
    case 1:
      return random() % 2 == 0 ? std::numeric_limits<double>::infinity()
                               : -std::numeric_limits<double>::infinity();
    default:
      return std::normal_distribution<double>(2, 1)(random);
  }
}

// (series, rank, step) -> bits.
using Truth = std::map<std::tuple<std::string, uint32_t, int64_t>, uint64_t>;

// A run of some ranks whose lists of series differ, with values left out and steps skipped.
class Trainer {
 public:
  // `overlap`: some ranks report a series in two lists at once.
  Trainer(uint64_t seed, std::vector<uint32_t> ranks, bool overlap = true)
      : random_(seed), ranks_(std::move(ranks)), overlap_(overlap) {
    lists_ = {ColumnsOf({"loss", "layers.0/grad", "layers.1/grad"}), ColumnsOf({"loss", "lr"}),
              ColumnsOf({"eval"})};
  }

  void Step(Store* store, Truth* truth, uint32_t attempt = 0) {
    step_ += random_() % 5 == 0 ? 1 + static_cast<int64_t>(random_() % 3) : 1;
    store->BeginEntry(++entry_);
    for (size_t list = 0; list < lists_.size(); ++list) {
      if (list == 2 && random_() % 20 != 0) continue;
      FedRows fed;
      const size_t width = lists_[list]->sites.size();
      for (const uint32_t rank : ranks_) {
        // Lists 0 and 1 are of different ranks, but for every fifth, which has both.
        if (list < 2 && !(overlap_ && rank % 5 == 0) && rank % 2 != list) continue;
        fed.ranks.push_back(rank);
        for (size_t c = 0; c < width; ++c) fed.values.push_back(AnyDouble(random_));
      }
      if (random_() % 2 == 0) {
        fed.absent.resize((fed.values.size() + 7) / 8);
        for (uint8_t& bits : fed.absent) bits = static_cast<uint8_t>(random_() & random_());
      }
      Feed(store, "r", step_, lists_[list], fed, attempt);
      for (size_t i = 0; i < fed.values.size(); ++i) {
        if (!fed.absent.empty() && (fed.absent[i / 8] >> (i % 8) & 1) != 0) continue;
        const v1::Site& site = lists_[list]->sites[i % width];
        const std::string name = site.layer().empty() ? site.op() : site.layer() + "/" + site.op();
        (*truth)[{name, fed.ranks[i / width], step_}] = std::bit_cast<uint64_t>(fed.values[i]);
      }
    }
    store->EndEntry();
  }

  void ResumeAt(int64_t step) { step_ = step - 1; }
  int64_t step() const { return step_; }
  uint64_t entry() const { return entry_; }

 private:
  std::mt19937_64 random_;
  std::vector<uint32_t> ranks_;
  const bool overlap_;
  std::vector<std::shared_ptr<const rules::SeriesColumns>> lists_;
  int64_t step_ = 0;
  uint64_t entry_ = 0;
};

int64_t FirstStep(const Truth& truth) {
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const auto& [key, bits] : truth) first = std::min(first, std::get<2>(key));
  return first;
}

bool Absent(const v1::SeriesColumns& columns, size_t cell) {
  return !columns.absent().empty() &&
         (static_cast<uint8_t>(columns.absent()[cell / 8]) >> (cell % 8) & 1) != 0;
}

// All exact cells of a response.
Truth Cells(const v1::QuerySeriesResponse& response) {
  Truth cells;
  for (const auto& c : response.series()) {
    EXPECT_EQ(c.bucket_steps(), 1u);
    const std::string name =
        c.site().layer().empty() ? c.site().op() : c.site().layer() + "/" + c.site().op();
    EXPECT_EQ(c.mean_size(), c.rank_size() * c.step_size());
    for (int r = 0; r < c.rank_size(); ++r) {
      for (int s = 0; s < c.step_size(); ++s) {
        const int i = r * c.step_size() + s;
        if (Absent(c, static_cast<size_t>(i))) continue;
        cells[{name, c.rank(r), c.step(s)}] = std::bit_cast<uint64_t>(c.mean(i));
      }
    }
  }
  return cells;
}

v1::QuerySeriesResponse Ask(Store* store, const v1::QuerySeriesRequest& request) {
  v1::QuerySeriesResponse response;
  const absl::Status status = store->QuerySeries(request, &response);
  EXPECT_TRUE(status.ok()) << status;
  return response;
}

v1::QuerySeriesRequest All(const std::string& glob = "") {
  v1::QuerySeriesRequest request;
  request.set_run("r");
  request.set_series(glob);
  request.set_max_cells(1'000'000);
  return request;
}

std::vector<uint32_t> Ranks(uint32_t first, uint32_t count, uint32_t stride = 1) {
  std::vector<uint32_t> ranks;
  for (uint32_t i = 0; i < count; ++i) ranks.push_back(first + i * stride);
  return ranks;
}

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
        EXPECT_EQ(Cells(Ask(store.get(), All())), truth) << ranks.size() << " x " << steps;
        if (in_memory) continue;
        store.reset();  // writes what is open
        store = Opened(options);
        EXPECT_EQ(store->held_entry(), trainer.entry());
        EXPECT_EQ(Cells(Ask(store.get(), All())), truth) << ranks.size() << " x " << steps;
      }
    }
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
    EXPECT_EQ(Cells(Ask(store.get(), request)), expected);
  }
  v1::QuerySeriesRequest newest = All("loss");
  newest.set_last_steps(10);
  for (const auto& [key, bits] : Cells(Ask(store.get(), newest)))
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

TEST_F(StoreTest, ReducesToTheCellsThatWereAskedFor) {
  auto store = Opened(At(path_));
  Trainer trainer(9, Ranks(0, 70));
  Truth truth;
  for (int i = 0; i < 200; ++i) trainer.Step(store.get(), &truth);
  for (const bool over_ranks : {false, true}) {
    for (const uint64_t cells : {70u, 71u, 700u, 5000u, 100000u}) {
      v1::QuerySeriesRequest request = All("loss");
      request.set_max_cells(cells);
      request.set_over_ranks(over_ranks);
      const v1::QuerySeriesResponse response = Ask(store.get(), request);
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
  EXPECT_GT(Ask(store.get(), small).omitted(), 0u);
}

TEST_F(StoreTest, ALaterAttemptHasTheSayFromItsFirstStepOn) {
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
  EXPECT_EQ(Cells(Ask(store.get(), All())), expected);
  v1::QuerySeriesRequest old = All();
  old.set_attempt(0);
  EXPECT_EQ(Cells(Ask(store.get(), old)), first);
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
  EXPECT_EQ(Cells(Ask(store.get(), All())), second);
}

// Killed at any moment and replayed from any entry that it holds: nothing twice, nothing missing.
TEST_F(StoreTest, ReplayedEntriesAreStoredOnce) {
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
      // As kill -9 finds it: the files are copied while the store is open.
      ASSERT_TRUE(Eventually([&] { return store->Info().tiles() > 0; }));
      held = store->held_entry();
      for (const char* suffix : {"", "-wal"}) {
        std::ifstream in(folder.File("s") + suffix, std::ios::binary);
        std::ofstream(folder.File("copy") + suffix, std::ios::binary) << in.rdbuf();
      }
    }
    auto store = Opened(At(folder.File("copy")));
    ASSERT_GE(store->held_entry(), held);
    // The trainer repeats itself from its seed, as a journal would; the engine's checkpoint stands
    // at or before what the store holds.
    Truth again;
    Trainer trainer(seed, Ranks(0, 20), false);
    for (int i = 0; i < 330; ++i) trainer.Step(store.get(), &again);
    EXPECT_EQ(again, truth);
    EXPECT_EQ(Cells(Ask(store.get(), All())), truth) << "seed " << seed;
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

TEST_F(StoreTest, ListsSeries) {
  auto store = Opened(At(path_));
  Trainer trainer(13, Ranks(0, 67), false);
  Truth truth;
  for (int i = 0; i < 260; ++i) trainer.Step(store.get(), &truth);
  for (const bool flushed : {false, true}) {
    if (flushed) {
      ASSERT_TRUE(store->WaitFlushed(store->Flush(), kLong));
    } else {
      ASSERT_TRUE(Eventually([&] { return store->Info().tiles() > 0; }));
    }
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
      EXPECT_EQ(s.ranks(), ranks.size()) << name;
      EXPECT_EQ(s.samples(), samples) << name;
    }
  }
  v1::ListSeriesRequest request;
  request.set_run("another");
  v1::ListSeriesResponse list;
  const absl::Status status = store->ListSeries(request, &list);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("another"));
}

TEST_F(StoreTest, RetentionTakesTheOldestAndSaysSo) {
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
  const Truth left = Cells(Ask(store.get(), All()));
  EXPECT_EQ(run.gaps(0).items() + left.size(), truth.size());
  for (const auto& [key, bits] : left) EXPECT_EQ(truth.at(key), bits);
}

TEST_F(StoreTest, RetentionByAge) {
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
  EXPECT_EQ(Cells(Ask(Opened(options).get(), All())), truth);
  now += 101;
  auto store = Opened(options);
  Truth more;
  for (int i = 0; i < 256; ++i) trainer.Step(store.get(), &more);
  ASSERT_TRUE(store->WaitFlushed(store->Flush(), kLong));
  EXPECT_EQ(Cells(Ask(store.get(), All())), more);
}

TEST_F(StoreTest, WhatIsNoStoreOfThisJournalIsSetAsideAndSaid) {
  const auto write = [&](const std::string& text) { std::ofstream(path_) << text; };
  Truth truth;
  for (const std::string& junk : {std::string("not a database"), std::string(40'000, 'x')}) {
    write(junk);
    auto store = Opened(At(path_));
    EXPECT_THAT(store->Info().problem(), HasSubstr(path_));
    EXPECT_EQ(store->held_entry(), 0u);
    std::ifstream aside(path_ + ".aside");
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(aside), {}), junk);
    Trainer trainer(16, Ranks(0, 2));
    truth.clear();
    for (int i = 0; i < 10; ++i) trainer.Step(store.get(), &truth);
    EXPECT_EQ(Cells(Ask(store.get(), All())), truth);
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

TEST_F(StoreTest, DamageMetWhileServingIsNeverACrash) {
  const auto fill = [&] {
    std::remove(path_.c_str());
    auto store = Opened(At(path_));
    Trainer trainer(17, Ranks(0, 64));
    Truth truth;
    for (int i = 0; i < 256; ++i) trainer.Step(store.get(), &truth);
    return truth;
  };
  const Truth truth = fill();
  std::string good;
  {
    std::ifstream in(path_, std::ios::binary);
    good.assign(std::istreambuf_iterator<char>(in), {});
  }
  std::mt19937_64 random(18);
  int damaged = 0;
  for (int round = 0; round < 40; ++round) {
    std::string bad = good;
    for (int i = 0; i < 40; ++i)
      bad[8192 + random() % (bad.size() - 8192)] = static_cast<char>(random());
    for (const char* suffix : {"-wal", "-shm"}) std::remove((path_ + suffix).c_str());
    std::ofstream(path_, std::ios::binary) << bad;
    auto opened = Store::Open(At(path_));
    ASSERT_TRUE(opened.ok()) << opened.status();
    v1::QuerySeriesResponse response;
    const absl::Status status = (*opened)->QuerySeries(All(), &response);
    if (status.ok()) {
      for (const auto& [key, bits] : Cells(response)) ASSERT_EQ(truth.at(key), bits);
      continue;
    }
    ++damaged;
    if (status.code() == absl::StatusCode::kNotFound) continue;  // set aside as it was opened
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
    ASSERT_TRUE(Eventually([&] { return !(*opened)->Info().problem().empty(); }));
    EXPECT_TRUE((*opened)->QuerySeries(All(), &response).ok());
  }
  EXPECT_GT(damaged, 0);
}

TEST_F(StoreTest, KeepsGapsAndTheHistoryOfIncidents) {
  for (int again = 0; again < 2; ++again) {  // replayed: the same
    auto store = Opened(At(path_));
    store->BeginEntry(1);
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
