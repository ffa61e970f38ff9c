// Passes steps to a store as the engine would, and records them.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "server/store/store.h"
#include "tests/server/support.h"

namespace plumbline::test {

inline std::shared_ptr<const rules::SeriesColumns> ColumnsOf(const std::vector<std::string>& ops) {
  auto columns = std::make_shared<rules::SeriesColumns>();
  for (const std::string& op : ops) {
    v1::Site& site = columns->sites.emplace_back();
    const size_t slash = op.rfind('/');
    if (slash != std::string::npos) site.set_layer(op.substr(0, slash));
    site.set_op(slash == std::string::npos ? op : op.substr(slash + 1));
    columns->key += op + "\n";
  }
  return columns;
}

// The rows of one step over one list of series.
struct FedRows {
  std::vector<uint32_t> ranks;
  std::vector<double> values;   // [ranks, columns]
  std::vector<uint8_t> absent;  // bits; empty: none
};

inline void Feed(server::Store* store, uint64_t entry, const std::string& run, int64_t step,
                 const std::shared_ptr<const rules::SeriesColumns>& columns, const FedRows& fed,
                 uint32_t attempt = 0, v1::Role role = v1::ROLE_TRAINER, bool resumed = false) {
  const size_t width = columns->sites.size();
  std::vector<rules::SeriesRow> rows;
  for (size_t r = 0; r < fed.ranks.size(); ++r) {
    rows.push_back({fed.ranks[r], fed.values.data() + r * width,
                    fed.absent.empty() ? nullptr : fed.absent.data(), r * width});
  }
  rules::StepSeries series;
  series.run = run;
  series.attempt = attempt;
  series.role = role;
  series.step = step;
  series.columns = columns;
  series.rows = rows;
  series.resumed = resumed;
  store->AddSeries(entry, series);
}

inline constexpr std::chrono::milliseconds kLong =
    std::chrono::duration_cast<std::chrono::milliseconds>(kPatience);

inline server::StoreOptions At(const std::string& path, uint64_t newest_entry = 1u << 30) {
  server::StoreOptions options;
  options.path = path;
  options.origin.journal_id = "journal";
  options.origin.newest_entry = newest_entry;
  return options;
}

inline std::unique_ptr<server::Store> Opened(const server::StoreOptions& options) {
  auto store = server::Store::Open(options);
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? std::move(*store) : nullptr;
}

inline double AnyDouble(std::mt19937_64& random) {
  switch (random() % 8) {
    case 0:  // every NaN payload, signalling ones too
      return std::bit_cast<double>(0x7FF0000000000001ull | (random() & 0x800FFFFFFFFFFFFFull));
    case 1:
      return random() % 2 == 0 ? std::numeric_limits<double>::infinity()
                               : -std::numeric_limits<double>::infinity();
    case 2:
      return random() % 2 == 0 ? -0.0 : std::numeric_limits<double>::denorm_min();
    default:
      return std::normal_distribution<double>(2, 1)(random);
  }
}

// (series, rank, step) -> bits.
using Truth = std::map<std::tuple<std::string, uint32_t, int64_t>, uint64_t>;

// A run of some ranks whose lists of series differ, with values left out and steps skipped.
class Trainer {
 public:
  // `overlap`: some ranks report a series in two lists at the same time.
  Trainer(uint64_t seed, std::vector<uint32_t> ranks, bool overlap = true)
      : random_(seed), ranks_(std::move(ranks)), overlap_(overlap) {
    lists_ = {ColumnsOf({"loss", "layers.0/grad", "layers.1/grad"}), ColumnsOf({"loss", "lr"}),
              ColumnsOf({"eval"})};
  }

  void Step(server::Store* store, Truth* truth, uint32_t attempt = 0) {
    step_ += random_() % 5 == 0 ? 1 + static_cast<int64_t>(random_() % 3) : 1;
    store->Judged(++entry_);
    for (size_t list = 0; list < lists_.size(); ++list) {
      if (list == 2 && random_() % 20 != 0) continue;
      FedRows fed;
      const size_t width = lists_[list]->sites.size();
      for (const uint32_t rank : ranks_) {
        // Lists 0 and 1 have different ranks, except every fifth, which has both.
        if (list < 2 && !(overlap_ && rank % 5 == 0) && rank % 2 != list) continue;
        fed.ranks.push_back(rank);
        for (size_t c = 0; c < width; ++c) fed.values.push_back(AnyDouble(random_));
      }
      if (random_() % 2 == 0) {
        fed.absent.resize((fed.values.size() + 7) / 8);
        for (uint8_t& bits : fed.absent) bits = static_cast<uint8_t>(random_() & random_());
      }
      Feed(store, entry_, "r", step_, lists_[list], fed, attempt);
      for (size_t i = 0; i < fed.values.size(); ++i) {
        if (!fed.absent.empty() && (fed.absent[i / 8] >> (i % 8) & 1) != 0) continue;
        const v1::Site& site = lists_[list]->sites[i % width];
        const std::string name = site.layer().empty() ? site.op() : site.layer() + "/" + site.op();
        (*truth)[{name, fed.ranks[i / width], step_}] = std::bit_cast<uint64_t>(fed.values[i]);
      }
    }
    store->EndEntry("r");
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

inline int64_t FirstStep(const Truth& truth) {
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const auto& [key, bits] : truth) first = std::min(first, std::get<2>(key));
  return first;
}

inline bool Absent(const v1::SeriesColumns& columns, size_t cell) {
  return !columns.absent().empty() &&
         (static_cast<uint8_t>(columns.absent()[cell / 8]) >> (cell % 8) & 1) != 0;
}

// Returns all exact cells of a response.
inline Truth Cells(const v1::QuerySeriesResponse& response) {
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

inline v1::QuerySeriesResponse Query(server::Store* store, const v1::QuerySeriesRequest& request) {
  v1::QuerySeriesResponse response;
  const absl::Status status = store->QuerySeries(request, &response);
  EXPECT_TRUE(status.ok()) << status;
  return response;
}

inline v1::QuerySeriesRequest All(const std::string& glob = "") {
  v1::QuerySeriesRequest request;
  request.set_run("r");
  request.set_series(glob);
  request.set_max_cells(1'000'000);
  return request;
}

inline std::vector<uint32_t> Ranks(uint32_t first, uint32_t count, uint32_t stride = 1) {
  std::vector<uint32_t> ranks;
  for (uint32_t i = 0; i < count; ++i) ranks.push_back(first + i * stride);
  return ranks;
}

}  // namespace plumbline::test
