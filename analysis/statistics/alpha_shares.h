// How a rule shares out its part of the run's false-alarm budget among the streams it tests: by
// order of appearance.
//
// The k-th stream, k from 0, gets 6 / (pi^2 (k + 1)^2), which sums to 1 however many come. So a
// share depends neither on how a layer is spelled nor on other rules, and the first ten streams
// need ln 121 = 4.8 nats more than one alone, a thousand 14.3.
//
// Why the level holds. A stream's wealth is a supermartingale from 1 from its first sample on,
// given all that came before; its share is known by then. By Ville's inequality it alarms with
// probability at most its share, whatever brought it about, and the shares sum to 1.
//
// The order is (attempt, step), then the site's (layer, op) bytes, in which rules are shown a run's
// evidence. Steps of two roles close independently, so that only within a role does it not depend
// on arrival: k is counted for each role, and roles share too.
#pragma once

#include <cstdint>
#include <map>

#include "base/archive.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::rules {

// Of all rules together. A rule's part of it is its own alpha_weight (RuleInfo).
inline constexpr double kRunAlpha = 1e-6;

// 6 / (pi^2 (number + 1)^2): of the stream of that number, or the rank where each has a stream.
double ShareOfNumber(uint64_t number);

// The trainer half, rollouts a quarter, and half of what is left each further one.
double ShareOfRole(v1::Role role);

class AlphaShares {
 public:
  // The share, in (0, 1), of the stream that appears now. Asked once for each.
  double Next(v1::Role role) { return ShareOfRole(role) * ShareOfNumber(seen_[role]++); }

  void Persist(Archive& archive) { archive(seen_); }

 private:
  std::map<v1::Role, uint64_t> seen_;  // streams so far
};

}  // namespace plumbline::rules
