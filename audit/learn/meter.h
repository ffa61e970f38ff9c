// Numbers per step whose bounds plumb learn learns, and plumb audit checks.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "audit/steps/step_watcher.h"

namespace plumbline::audit {

// Which number of a series. Names are as in the file (NameOfMeasure).
enum class Measure : uint8_t {
  kRange,      // its value, in one phase
  kRatio,      // its value over that of another series of the same rank and step, in one phase
  kNonFinite,  // 1 if a value is NaN or infinite, else 0
  kStill,      // for how many steps a rank's value has not changed
  kFall,       // by how much a rank's value is below the one before; at most 0 if it never falls
  kSpread,     // largest difference of two ranks
  kAlike,      // for how many steps all ranks have had the same value
  kOrder,      // 1 if its first observation in a step came after that of the other site, else 0
};
const char* NameOfMeasure(Measure measure);

// One number per step (and rank). `by` is the second series of a ratio or an order; else "".
struct Subject {
  Measure measure = Measure::kRange;
  std::string of, by;
  int phase = -1;  // of a range or ratio

  friend auto operator<=>(const Subject&, const Subject&) = default;
};

// Phases: 0 is steps 0-15 (and below), k is steps 2^(k+3) to 2^(k+4) - 1.
int PhaseOf(int64_t step);
std::pair<int64_t, int64_t> StepsOfPhase(int phase);

// Where a number was measured.
struct MeterPlace {
  const std::string* run = nullptr;
  int64_t step = 0;
  std::string layer, op;        // of the site `of`
  std::vector<uint32_t> ranks;  // the rank, or all that were compared
};

// Measures closed steps. A series of scalars has its site's name. A tensor has three: its root mean
// square, its share of zeros, and a digest of its bits, whose only measures are spread and alike.
// Not thread-safe.
class Meter {
 public:
  using Emit = std::function<void(const Subject&, double value, const MeterPlace&)>;
  explicit Meter(Emit emit) : emit_(std::move(emit)) {}

  void TakeSite(const analysis::SiteStep& step);
  void EndStep(const analysis::StepEnd& step);

 private:
  // A series of one run, attempt and role.
  struct Series {
    std::string layer, op;
    std::map<uint32_t, std::pair<double, uint64_t>> before;  // by rank: value, steps without change
    uint64_t alike = 0;                                      // steps
  };
  struct Seen {
    std::string layer, op;
    bool digest = false;
    std::map<uint32_t, double> values;  // by rank; the last one of a step counts
  };
  using Key = std::pair<std::string, std::string>;  // run with attempt and role; name

  void Add(const std::string& name, const analysis::SiteStep& step, uint32_t rank, double value,
           bool digest);
  void MeasureRank(const std::string& name, const Seen& seen, uint32_t rank, double value,
                   Series* series, MeterPlace* place);
  void CompareRanks(const std::string& name, const Seen& seen, Series* series, MeterPlace* place);
  void MeasureRatios(MeterPlace* place);
  void MeasureOrder(MeterPlace* place);

  const Emit emit_;
  std::map<std::string, Seen> open_;                                         // of the open step
  std::map<uint32_t, std::vector<std::pair<uint64_t, std::string>>> order_;  // by rank
  std::map<Key, Series> series_;
  std::set<std::pair<std::string, std::string>> pairs_;  // sites that followed each other
};

}  // namespace plumbline::audit
