// Divides a rule's part of the run's false-alarm budget among the streams that it tests, by order
// of appearance.
//
// The k-th stream, k from 0, gets 6 / (pi^2 (k + 1)^2), which sums to 1 for any number of streams.
// So a share depends neither on the spelling of a layer nor on other rules. The first ten streams
// need ln 121 = 4.8 nats more than a single one, a thousand 14.3.
//
// Why the level holds: a stream's wealth is a supermartingale that starts at 1 with its first
// sample, given all that came before, and its share is known by then. By Ville's inequality it
// raises an alarm with probability at most its share, whatever caused the stream, and the shares
// sum to 1.
//
// The order is (attempt, step), then the bytes of the site's (layer, op), which is the order in
// which rules receive a run's evidence. Steps of two roles close independently, so the order is
// independent of arrival only within a role. Therefore k is counted per role, and each role gets a
// share of the budget.
#pragma once

#include <cstdint>
#include <map>

#include "base/archive.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::analysis {

// For all rules together. A rule's part of it is its own alpha_weight (RuleInfo).
inline constexpr double kRunAlpha = 1e-6;

// Returns 6 / (pi^2 (number + 1)^2), for the stream with that number, or for the rank if each rank
// has a stream.
double ShareOfNumber(uint64_t number);

// Returns the role's share: a half for the trainer, a quarter for rollouts, and half of the rest
// for each further role.
double ShareOfRole(v1::Role role);

class AlphaShares {
 public:
  // Returns the share, in (0, 1), of a new stream. Call once per stream.
  double Next(v1::Role role) { return ShareOfRole(role) * ShareOfNumber(seen_[role]++); }

  void Persist(Archive& archive) { archive(seen_); }

 private:
  std::map<v1::Role, uint64_t> seen_;  // streams so far
};

}  // namespace plumbline::analysis
