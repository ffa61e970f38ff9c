// Simulated trainings as health/repeated-data sees them: the digests of each step's rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "plumbline/v1/batch.pb.h"
#include "tests/support/batches.h"

namespace plumbline::rules::testing {

using Rows = std::vector<uint64_t>;

inline uint64_t MixedRow(uint64_t row) {
  row = (row + 1) * 0x9E3779B97F4A7C15;
  row = (row ^ row >> 30) * 0xBF58476D1CE4E5B9;
  return row ^ row >> 31;
}

// Returns a digest that does not depend on the order of rows.
inline uint64_t DigestOf(const Rows& rows) {
  uint64_t sum = 0;
  for (const uint64_t row : rows) sum += MixedRow(row);
  return sum;
}

// A data set that is read in batches, epoch after epoch.
struct Reader {
  enum class Order { kSequential, kShuffled, kSameShuffle, kReplacement, kBuckets };
  Order order = Order::kShuffled;
  uint64_t size = 1000, batch = 8, seed = 1, first_row = 0;

  int64_t epoch() const { return static_cast<int64_t>(std::max<uint64_t>(1, size / batch)); }
  // Returns the rows of a step, counted over epochs. The last, partial batch is left out.
  Rows At(int64_t step) const {
    const int64_t number = step / epoch();
    if (number != known_) Draw(number);
    Rows rows(std::min(batch, size));
    const auto begin = static_cast<uint64_t>(step % epoch()) * batch;
    std::mt19937_64 any(seed * 7919 + static_cast<uint64_t>(step));
    for (uint64_t i = 0; i < rows.size(); ++i)
      rows[i] = order == Order::kReplacement ? first_row + any() % size : rows_[begin + i];
    return rows;
  }

  void Draw(int64_t number) const {
    known_ = number;
    rows_.resize(size);
    std::iota(rows_.begin(), rows_.end(), first_row);
    std::mt19937_64 random(seed * 1000 +
                           static_cast<uint64_t>(order == Order::kSameShuffle ? 0 : number));
    if (order == Order::kShuffled || order == Order::kSameShuffle)
      std::shuffle(rows_.begin(), rows_.end(), random);
    if (order == Order::kBuckets) {  // batches are fixed, and their order is not
      std::vector<int64_t> at(static_cast<size_t>(epoch()));
      std::iota(at.begin(), at.end(), 0);
      std::shuffle(at.begin(), at.end(), random);
      Rows moved = rows_;
      for (size_t i = 0; i < at.size(); ++i) {
        const auto from = static_cast<size_t>(at[i]) * batch;
        for (size_t k = 0; k < batch && from + k < size; ++k)
          moved[i * batch + k] = rows_[from + k];
      }
      rows_ = std::move(moved);
    }
  }
  mutable int64_t known_ = -1;  // the epoch whose rows are kept
  mutable Rows rows_ = {};
};

// What the ranks of a run report.
class TrainedRun {
 public:
  explicit TrainedRun(uint32_t ranks = 1) : ranks_(ranks) { Attempt(); }

  // Begins the next attempt. The steps of the one before are complete.
  void Attempt() {
    if (!batches_.empty()) {
      for (uint32_t rank = 0; rank < ranks_; ++rank)
        test::AddProgress(&batches_.back(), newest_).set_source(rank);
    }
    const auto number = static_cast<uint32_t>(batches_.size());
    v1::Batch& batch = batches_.emplace_back();
    for (uint32_t rank = 0; rank < ranks_; ++rank)
      *batch.add_sources() = test::SourceOf("r", rank, ranks_, number);
  }
  void Fact(const std::string& name, int64_t step, double value, uint32_t rank = 0) {
    test::AddScalar(&batches_.back(), name, step, value).set_source(rank);
    newest_ = std::max(newest_, step);
  }
  // States the loader's facts, as run.watch does at a process's beginning. NaN: not known.
  void Loader(int64_t step, double epoch, double batches, double shuffles) {
    if (epoch == epoch) Fact("batch_digest/epoch", step, epoch);
    if (batches == batches) Fact("batch_digest/batches", step, batches);
    if (shuffles == shuffles) Fact("batch_digest/shuffles", step, shuffles);
  }
  void Step(int64_t step, uint64_t digest, uint32_t rank = 0) {
    Fact("batch_digest/high", step, static_cast<double>(digest >> 32), rank);
    Fact("batch_digest/low", step, static_cast<double>(digest & 0xFFFFFFFF), rank);
  }
  // Splits the rows among the ranks.
  void Step(int64_t step, const Rows& rows) {
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      Rows own;
      for (size_t i = rank; i < rows.size(); i += ranks_) own.push_back(rows[i]);
      Step(step, DigestOf(own), rank);
    }
  }
  const std::vector<v1::Batch>& batches() const { return batches_; }

 private:
  uint32_t ranks_;
  int64_t newest_ = -1;
  std::vector<v1::Batch> batches_;
};

}  // namespace plumbline::rules::testing
