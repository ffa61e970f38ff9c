// What can be said of one recorded router call, before any rule judges it. moe-future-leak,
// moe-batch-dependence, moe-tie-order and moe-intervention read the same analysis.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "analysis/frame/frame.h"
#include "analysis/routing/call/call.h"
#include "analysis/routing/policies/policies.h"

namespace plumbline::rules {

struct RoutingAnalysis {
  // Not empty: the call cannot be judged at all ("short-id: sentence"); only `details` is set then.
  std::string blocked;
  std::vector<uint32_t> ranks;     // whose rows these are; several where a pool spans ranks
  std::vector<int64_t> rank_ends;  // of a joined call, parallel to `ranks`: the row after its last

  RoutingCase c;
  Saturation saturation;
  Inversions inversions;
  ColumnChoice column;  // tokens hold experts that their own scores did not choose
  Balance balance;      // choices that own scores do not explain
  // The recorded scores sum to the same for every expert: they were normalised over the tokens, and
  // a token's own scores hold the others.
  bool normalised_over_tokens = false;

  // The recorded scores of a sequence are all alike: they are the sequence's, not the tokens'.
  bool scores_of_sequences = false;
  // Every expert that a token scores above zero took it, and no other: a threshold that nobody
  // fits.
  bool zero_decides = false;

  // Experts whose choices were all refused; the case holds those choices no longer.
  NothingKept nothing_kept;

  // Refusals of full experts: who explains them.
  FirstCome first_come;
  std::vector<RankedReplay> ranked;  // exact ones first
  bool rank_major_possible = false;  // too few choice ranks are known to exclude it
  CleanPatterns patterns;            // asked only where no replay fits
  PairCertificate certificate;       // likewise
  double own_refusal_bits = 0;       // likewise: a draw among all, against refusals of their own
  std::vector<StoredNumbers>
      stored;                    // tables that give what a leaking replay that may be a proof gives
  bool stored_excluded = false;  // ... and that other pools and calls of the step exclude
  bool structured = false;  // equal counts may be the data's; asked where capacity is not declared
  std::string inferred_pools;  // not empty: pools as the refusals show them ("... in chunks")

  // One of the contract's policy names.
  std::string policy = "unknown";
  std::string cause = "unknown";
  double explained_share = 0;
  std::string flatten_order;  // "seq-major", "batch-major" or empty
  bool flatten_contradicts = false;
  std::vector<std::string> assumptions;

  // Capacity is shown to be what refuses: infinite when declared, the exhibited bits otherwise.
  double capacity_bits = 0;
  // The expert choice pattern applies: tokens hold experts that their own scores did not choose.
  bool columns() const { return c.kept_outside_choice && column.equal && column.separable; }
  // A leaking policy that gives every choice, the one with most bits; null where there is none.
  const RankedReplay* leak() const;
  // A leaking policy that gives every choice beside a clean one. One queue over the pools as taken
  // is not doubted for a score that ties so often that it fits by its ties.
  bool rival() const;
  // The kept set follows a score but for its ties, which decide nearly all of it.
  bool by_ties() const;
  // Refusals that no policy explains are not the tokens' own: what thins an expert that was hot,
  // before its capacity refuses, leaves pairs as well. So `bits` speak for a draw among all, less
  // where `bits` are a hint's, or the configuration names a policy that is no queue.
  bool drawn(double bits) const;
  // ... and inversions say something against every cause but capacity: at least `bits`, or 20 with
  // all refusals counted where not quite all of them may be an own threshold's.
  bool pairs_speak(double bits) const;
  // Bits that inversions are worth: that experts below capacity refused nothing, or, where the
  // number and the pools are recorded, so that full experts holding just that number is no luck,
  // that the kept are a draw among all rather than the first of what the tokens' own refusals left.
  double pair_bits() const;
  bool drawn_by_count() const;  // the latter
  // Pools are as recorded row by row.
  bool firm_pools() const;
  // What of the recording keeps a replay of a policy that gives every assignment from being a
  // proof; empty: nothing does. Sentences, each with what to record.
  // `excluded_before`: calls of other steps exclude the stored tables.
  std::vector<std::string> doubts(bool excluded_before = false) const;
  // ... and what a person can do to have it settled, for a finding's fix.
  std::string HowToSettle(bool excluded_before = false) const;

  // bits that reach a prefix from what follows it, per layer and sequence; NaN where not known.
  double leak_bits = 0;

  // What a joined call was decoded from (`c` borrows it); null where one rank's message was.
  std::shared_ptr<const v1::Routing> joined;

  // The contract's keys, the same for every rule.
  google::protobuf::Struct Details() const;
};

// Analyses every item of the step that carries a sample, once for all rules that ask. Entries are
// parallel to step.items; nullptr where there is no sample, or where the rows were joined with
// those of an earlier item (another rank of the same pool).
std::vector<std::shared_ptr<const RoutingAnalysis>> AnalyseRouting(const SiteStep& step);

// The bias was recorded with a provenance that cannot acquit: empty when all is well.
std::string BiasComplaint(const SiteStep& step, const RoutingCase& c);

// "token 17 (sequence 3, position 17), score 0.31, lost expert 5 to token 903 (...), score 0.42".
google::protobuf::Struct Witness(const RoutingAnalysis& a, const RefusalPair& pair);

}  // namespace plumbline::rules
