// Splits a run's tokens into parts: by worker, by the version of the weights that drew them, and by
// the parity of the step. In the pool, two workers at temperatures 0.85 and 1.15 cancel, and one
// worker of four at 0.9 is diluted. In the worker's own part, neither happens.
//
// All parts together have the false-alarm probability of one test. Each part has a share of it, and
// the shares sum to at most 1.
//   pool 3/8;  k-th worker to appear (k = 0, 1, ..) 3/8 * 4 / ((k+4)(k+5));  k-th version the same
//   of 1/8;  even and odd steps 1/16 each.
// Sum 4 / ((k+4)(k+5)) = 4 sum (1/(k+4) - 1/(k+5)) = 1. The k of a part is known before the first
// bet on its tokens. So if each part has a non-negative supermartingale W_s of mean at most 1,
// sum_s share_s W_s is also one (a part that has not begun counts as 0, which is less than its
// share). It reaches 1/alpha with probability at most alpha. For p-values, which are tested once:
// alarm if p_s <= share_s alpha. The split reduces the evidence: by ln 8/3 = 1 nat for the pool, by
// 2.6 to 3.6 nats for one worker of four, and by 5.6 nats for the last of 16.
//
// At most 64 workers and 64 versions are kept. Later workers are only in the pool. If a newer
// version arrives, the oldest is dropped with its wealth, which then counts as 0. Not thread-safe.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "analysis/rollout/sequence.h"
#include "base/archive.h"

namespace plumbline::analysis {

struct SliceName {
  enum class Kind : uint8_t { kPool, kWorker, kVersion, kParity };
  Kind kind = Kind::kPool;
  std::string worker;
  int64_t number = 0;  // the version, or step mod 2

  bool pool() const { return kind == Kind::kPool; }
  // Returns "" for the pool, else "worker w-3", "weight version 17", "even steps".
  std::string Words() const {
    if (kind == Kind::kWorker) return "worker " + worker;
    if (kind == Kind::kVersion) return "weight version " + std::to_string(number);
    if (kind == Kind::kParity) return number == 0 ? "even steps" : "odd steps";
    return "";
  }
  void Persist(Archive& a) { a(kind, worker, number); }
};

// `Part` must be default-constructible and persistent.
template <typename Part>
class RolloutSlices {
 public:
  static constexpr size_t kMost = 64;  // limit of workers, and of versions

  Part& pool() { return pool_; }
  const Part& pool() const { return pool_; }

  // Opens a sequence of the step.
  void Begin(const std::string& worker, int64_t step) {
    while (versions_.size() > kMost) versions_.erase(versions_.begin());
    open_ = {&pool_};
    version_ = nullptr;
    open_number_ = kNoVersion;
    if (const auto at = workers_.find(worker); at != workers_.end()) {
      open_.push_back(&at->second.part);
    } else if (!worker.empty() && workers_.size() < kMost) {
      open_.push_back(&workers_.try_emplace(worker, Entry{{}, workers_.size()}).first->second.part);
    }
    open_.push_back(&parity_[static_cast<size_t>(step & 1)]);
    always_ = open_.size();
  }

  // Calls visit for the parts of a token of the open sequence, the pool first.
  template <typename Visit>
  void ForToken(int64_t version, const Visit& visit) {
    if (version != open_number_) OpenVersion(version);
    for (size_t i = 0; i < always_; ++i) visit(*open_[i]);
    if (version_ != nullptr) visit(*version_);
  }

  // Calls visit for the parts of all tokens of the open sequence, including tokens that were not
  // used.
  template <typename Visit>
  void ForSequence(const Visit& visit) {
    for (Part* part : open_) visit(*part);
  }

  // Calls visit(name, share, part) for the parts that have begun, the pool first.
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    visit(SliceName{}, kOfPool, pool_);
    for (const auto& [worker, entry] : workers_) {
      visit(SliceName{SliceName::Kind::kWorker, worker, 0}, ShareOf(kOfWorkers, entry.k),
            entry.part);
    }
    for (const auto& [version, entry] : versions_) {
      visit(SliceName{SliceName::Kind::kVersion, "", version}, ShareOf(kOfVersions, entry.k),
            entry.part);
    }
    for (int64_t i : {0, 1}) {
      visit(SliceName{SliceName::Kind::kParity, "", i}, kOfParity, parity_[static_cast<size_t>(i)]);
    }
  }

  // Returns the log of the sum of the wealths, weighted by their shares, over parts with tokens. If
  // no part has tokens, returns the log of the pool's share.
  template <typename TokensOf, typename LogOf>
  double LogMixed(const TokensOf& tokens_of, const LogOf& log_of) const {
    double top = -std::numeric_limits<double>::infinity();
    std::vector<double> logs;
    ForEach([&](const SliceName&, double share, const Part& part) {
      if (tokens_of(part) == 0) return;
      logs.push_back(std::log(share) + log_of(part));
      top = std::max(top, logs.back());
    });
    if (logs.empty()) return std::log(kOfPool);
    if (!std::isfinite(top)) return top;
    double sum = 0;
    for (const double log : logs) sum += std::exp(log - top);
    return top + std::log(sum);
  }

  // Between sequences no sequence is open, so open_, always_, version_ and open_number_ are not
  // stored.
  void Persist(Archive& a) { a(pool_, workers_, versions_, parity_[0], parity_[1], born_); }

 private:
  static constexpr double kOfPool = 0.375, kOfWorkers = 0.375, kOfVersions = 0.125;
  static constexpr double kOfParity = 0.0625;
  static_assert(kOfPool + kOfWorkers + kOfVersions + 2 * kOfParity <= 1);

  struct Entry {
    Part part;
    uint64_t k = 0;
    void Persist(Archive& a) { a(part, k); }
  };

  static double ShareOf(double kind, uint64_t k) {
    const auto i = static_cast<double>(k);
    return 4 * kind / ((i + 4) * (i + 5));
  }

  void OpenVersion(int64_t version) {
    open_number_ = version;
    version_ = nullptr;
    if (version == kNoVersion) return;
    auto at = versions_.find(version);
    if (at == versions_.end()) {
      if (versions_.size() >= kMost && version < versions_.begin()->first) return;
      at = versions_.try_emplace(version, Entry{{}, born_++}).first;
    }
    version_ = &at->second.part;
    if (std::find(open_.begin(), open_.end(), version_) == open_.end()) open_.push_back(version_);
  }

  Part pool_;
  std::map<std::string, Entry> workers_;
  std::map<int64_t, Entry> versions_;
  Part parity_[2];
  uint64_t born_ = 0;  // number of versions so far
  std::vector<Part*> open_;
  // Number of parts in open_ that hold for the whole sequence: pool, worker, parity.
  size_t always_ = 0;
  Part* version_ = nullptr;
  int64_t open_number_ = kNoVersion;
};

}  // namespace plumbline::analysis
