// The state of one site's running sums so far: errors, arithmetic, losses.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "analysis/accumulation/accumulation_replay.h"
#include "analysis/statistics/statistics.h"
#include "base/archive.h"

namespace plumbline::analysis {

class AccumulationStatistics {
 public:
  // One rank's stream. Ranks draw the same elements, so a common stream would count a draw several
  // times. Each rank has its own share of the site's alpha, 6 / (pi^2 (rank + 1)^2).
  struct Rank {
    uint32_t rank = 0;
    BiasStream stream{0};
    int64_t last_step = -1;  // if a restart repeats a step, it is not counted again
    double got = 0;          // sum of y sign(s); sum of |s|
    double exact = 0;
    double fp32_errors = 0;  // of the same addends, added in fp32
    uint64_t fp32_count = 0;
    uint64_t aside = 0;
    LostMass lost;            // observed, else from the accepted replay
    AccumulationMatch match;  // of the last step, unless an earlier one was more informative
    // The largest error of the last step.
    struct {
      double e = 0;
      double exact = 0;
      double result = 0;
      uint64_t element = 0;
      uint64_t adds = 0;
      void Persist(Archive& a) { a(e, exact, result, element, adds); }
    } worst;

    double relative() const { return got / exact - 1; }
    double fp32_mean() const;
    const char* ModelName() const;  // as in the details
    std::string ModelText() const;  // "Replay: bf16, one after the other, equals 64 of 64 ..."
    std::string CauseId() const;
    void Persist(Archive& a) {
      a(rank, stream, last_step, got, exact, fp32_errors, fp32_count, aside, lost, match, worst);
    }
  };

  // `alpha` is the site's.
  explicit AccumulationStatistics(double alpha) : alpha_(alpha) {}

  void Take(const SiteStep& step, const std::vector<Accumulation>& all, uint64_t more);

  // Returns the rank with the highest level() whose interval is furthest out. If no rank is in
  // alarm, returns nullptr.
  const Rank* Alarmed() const;
  // The same by the interval alone.
  const Rank* Outside() const;
  double log_wealth() const;       // of the mean over the ranks' wealth, an e-value of the site
  uint64_t Judged() const;         // number of sums
  bool Enough() const;             // true if the worst bias would have raised an alarm by now
  bool WithinBudget() const;       // for every rank's interval
  std::string WhyNothing() const;  // why nothing on a site could be judged
  // Returns the rank that a verdict is about: the one furthest out, else the first. If none was
  // judged, returns nullptr.
  const Rank* Shown() const;
  std::vector<uint32_t> SiteRanks(bool finding) const;
  std::vector<std::string> Assumptions() const;
  void Describe(google::protobuf::Struct& details) const;
  void FillWitness(const Rank& rank, google::protobuf::Struct& witness) const;

  void Persist(Archive& a) {
    a.Version(1);
    a(reported, step_first, step_last, most_adds, unit, longer);
    a(alpha_, ranks_, steps_, more_, repeated_, unjudged_, extrapolated_, problems_);
  }

  v1::Level reported = v1::LEVEL_UNSPECIFIED;  // level of the last finding
  int64_t step_first = 0;
  int64_t step_last = 0;
  size_t most_adds = 0;
  std::string unit = "ulp";
  LongerSums longer;  // of the first step with an accepted 16-bit model and no alarm

 private:
  void TakeOne(const Accumulation& a, Rank& rank);
  void TakeModel(const Accumulation& a, Rank& rank);
  const Rank* Worst(bool alarmed) const;

  double alpha_;
  std::map<uint32_t, Rank> ranks_;
  uint64_t steps_ = 0;
  uint64_t more_ = 0;
  uint64_t repeated_ = 0;
  uint64_t unjudged_ = 0;
  bool extrapolated_ = false;
  std::map<std::string, uint64_t> problems_;
};

}  // namespace plumbline::analysis
