// Statistics of finite d by log mu, position, turn, worker and version lag, and the distribution of
// |d|. Mergeable, not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "base/archive.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::analysis {

// |d| in bins of half an octave from 2^-40 to 2^12; zeros are counted separately.
class DriftHistogram {
 public:
  void Add(double size);  // adds one |d|
  void Merge(const DriftHistogram& other);
  uint64_t count() const { return count_; }
  uint64_t zeros() const { return zeros_; }
  // Returns a quantile of |d|, which may be too large by a factor of up to sqrt(2). If that share
  // of |d| is 0, returns 0. If empty, returns NaN.
  double Quantile(double share) const;
  // Returns the share of |d| above `size`. Counts only bins that are completely above it.
  double ShareAbove(double size) const;
  // Returns the share of |d| above 64 times the median. Noise is nearly never that large, even if
  // its scale varies log-normally over contexts by e^1.3.
  double RestShare() const;
  void Persist(Archive& a) { a(count_, zeros_, bins_); }

 private:
  static constexpr int kLowest = -40;
  static constexpr size_t kBins = 104;
  static size_t Bin(double size);
  static double UpperEdge(size_t bin);

  uint64_t count_ = 0;
  uint64_t zeros_ = 0;
  std::array<uint64_t, kBins> bins_{};
};

class DriftStrata {
 public:
  // Number of tokens and their sum of d^2, enough for a mean square.
  struct Cell {
    uint64_t count = 0;
    double squares = 0;
    double bounded = 0;  // sum of min(d^2, 1/4)
    void Add(double square) {
      ++count;
      squares += square;
      bounded += square < 0.25 ? square : 0.25;
    }
    void Merge(const Cell& other) {
      count += other.count;
      squares += other.squares;
      bounded += other.bounded;
    }
    double mean_square() const { return squares / static_cast<double>(count); }
    void Persist(Archive& a) { a(count, squares, bounded); }
  };

  static constexpr size_t kProbabilityBins = 12;  // log2 of -log mu, from 2^-8
  static constexpr size_t kPositionBins = 24;     // log2 of the position
  static constexpr size_t kTurns = 16;            // the last bin has all turns from this number on
  static constexpr size_t kLags = 34;             // unknown, 0 .. 31, 32 and more
  static constexpr size_t kWorkers = 64;          // further workers share the name "..."

  // Returns the stratum of a token by its log mu.
  static size_t ProbabilityBin(double rollout);

  // The worker that has 90 % of the sum of min(d^2, 1/4) and at most half of the tokens; "" if
  // there is none.
  struct Dominant {
    std::string worker;
    double share = 0;
  };
  Dominant DominantWorker() const;

  // Sets the values that do not change within a sequence.
  void BeginSequence(const std::string& worker);
  // position >= 0. If the turn is not known, it is -1. If the lag is not known, it is negative.
  void Add(double d, double rollout, int64_t position, int64_t turn, int64_t lag);
  void Merge(const DriftStrata& other);

  // Returns the lag that half of the tokens of lag > 0 do not exceed. If there are none, returns 0.
  double MedianStaleLag() const;
  // Returns the exponent e in (mean d^2 - mean d^2 at lag 0) ~ lag^e, by least squares on
  // logarithms, weighted by tokens. If fewer than two lags exceed the value at lag 0, returns NaN.
  double LagExponent() const;
  // Adds the mean d^2 of each stratum that has tokens: "log_mu", "position", "turn", "worker",
  // "lag".
  void Describe(google::protobuf::Struct& details) const;
  // open_worker_ belongs to one sequence, so it is not stored.
  void Persist(Archive& a) { a(probability_, position_, turn_, lag_, worker_); }

 private:
  std::array<Cell, kProbabilityBins> probability_;
  std::array<Cell, kPositionBins> position_;
  std::array<Cell, kTurns> turn_;
  std::array<Cell, kLags> lag_;  // [0] unknown, [1 + lag]
  std::map<std::string, Cell> worker_;
  Cell* open_worker_ = nullptr;
};

}  // namespace plumbline::analysis
