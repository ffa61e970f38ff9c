// Which series of a run the rules judge: rules follow a loss, a rate or a gradient norm point by
// point, and remember kilobytes of each, so that a run that makes names up would take all memory.
// The first ones of each role are judged; the others are stored, counted, and reported.
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

namespace plumbline::rules {

// Not thread-safe.
class JudgedSeries {
 public:
  // `roles`: what the user said of names, which must outlive this. `most` series of each role.
  JudgedSeries(const SeriesRoles* roles, uint64_t most) : roles_(roles), most_(most) {}

  // Whether the rules judge the series, in the order in which series are first asked about. A
  // series that is none of a bounded role always is.
  bool Admit(const v1::Site& site);
  // Series that are judged, of all roles; and those that are not.
  uint64_t admitted() const { return admitted_count_; }
  uint64_t left_out() const { return left_out_count_; }
  // The series of one role that are not judged: the first of them, and how many.
  struct LeftOut {
    SeriesRole role = SeriesRole::kNone;
    v1::Site first;
    uint64_t count = 0;
  };
  // Roles of which a series was left out for the first time since the last call.
  std::vector<LeftOut> TakeFull();
  bool any_full() const { return !full_.empty(); }
  std::vector<LeftOut> AllLeftOut() const;

  static bool Bounded(SeriesRole role);

  void Persist(Archive& archive);

 private:
  // By 64 bits of a hash of the names: a million of them take a few MB.
  using Names = std::unordered_set<uint64_t>;

  struct Beyond {
    std::string layer, op;  // of the first one
    Names names;
    void Persist(Archive& a) { a(layer, op, names); }
  };
  static LeftOut Of(SeriesRole role, const Beyond& beyond);

  const SeriesRoles* const roles_;
  const uint64_t most_;
  std::map<SeriesRole, Names> admitted_;
  std::map<SeriesRole, Beyond> left_out_;
  std::vector<SeriesRole> full_;  // not taken yet; empty between steps
  uint64_t admitted_count_ = 0, left_out_count_ = 0;
};

// "series-limit: ...": the verdict's reason when a series is left out for the first time, and with
// their number at the run's end.
std::string SeriesLimitReason(SeriesRole role, uint64_t most);
std::string SeriesLimitReason(SeriesRole role, uint64_t most, uint64_t left_out);

}  // namespace plumbline::rules
