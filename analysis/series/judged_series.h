// Selects the series of a run that the rules judge. Rules follow each point of a loss, a rate or a
// gradient norm, and keep kilobytes for each series. Without a bound, a run with endless new names
// would take all memory. So only the first series of each role are judged. The others are stored,
// counted and reported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "analysis/role/role.h"
#include "base/archive.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::analysis {

// Not thread-safe.
class JudgedSeries {
 public:
  // `roles` has the roles that the user assigned to names; it must outlive this object. At most
  // `most` series of each role are judged.
  JudgedSeries(const SeriesRoles* roles, uint64_t most) : roles_(roles), most_(most) {}

  // Returns true if the rules judge the series. Series are admitted in the order of their first
  // call. If the series has no bounded role, always returns true.
  bool Admit(const v1::Site& site);
  // Number of series that are judged, and number that are not, over all roles.
  uint64_t admitted() const { return admitted_count_; }
  uint64_t left_out() const { return left_out_count_; }
  // The series of one role that are not judged: the first one and their number.
  struct LeftOut {
    SeriesRole role = SeriesRole::kNone;
    v1::Site first;
    uint64_t count = 0;
  };
  // Returns the roles in which a series was left out for the first time since the last call.
  std::vector<LeftOut> TakeFull();
  bool any_full() const { return !full_.empty(); }
  std::vector<LeftOut> AllLeftOut() const;

  static bool Bounded(SeriesRole role);

  void Persist(Archive& archive);

 private:
  // Names as 64-bit hashes: a million of them take a few MB.
  using Names = std::unordered_set<uint64_t>;

  struct Beyond {
    std::string layer, op;  // layer and op of the first series
    Names names;
    void Persist(Archive& a) { a(layer, op, names); }
  };
  static LeftOut Of(SeriesRole role, const Beyond& beyond);

  const SeriesRoles* const roles_;
  const uint64_t most_;
  std::map<SeriesRole, Names> admitted_;
  std::map<SeriesRole, Beyond> left_out_;
  std::vector<SeriesRole> full_;  // not yet returned by TakeFull; empty between steps
  uint64_t admitted_count_ = 0, left_out_count_ = 0;
};

// Returns "series-limit: ...", the reason of the verdict when a series is left out for the first
// time. The second function is for the run's end. Its text contains the number of series that were
// left out.
std::string SeriesLimitReason(SeriesRole role, uint64_t most);
std::string SeriesLimitReason(SeriesRole role, uint64_t most, uint64_t left_out);

}  // namespace plumbline::analysis
