// The analysis of one recorded router call, before any rule judges it. moe-future-leak,
// moe-batch-dependence, moe-tie-order and moe-intervention use the same analysis.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "analysis/frame/frame.h"
#include "analysis/routing/call/call.h"
#include "analysis/routing/library_ties.h"
#include "analysis/routing/policies/policies.h"

namespace plumbline::analysis {

struct RoutingAnalysis {
  // "short-id: sentence" if the call cannot be judged at all; then only `details` is set.
  std::string blocked;
  std::vector<uint32_t> ranks;  // ranks of these rows; several if a pool spans ranks
  std::vector<int64_t>
      rank_ends;  // for a joined call, parallel to `ranks`: the row after its last one

  RoutingCase c;
  Saturation saturation;
  Inversions inversions;
  ColumnChoice column;  // tokens have experts that their own scores did not choose
  Balance balance;      // choices that own scores do not explain
  // The recorded scores have the same sum for every expert: they were normalised over the tokens,
  // so a token's own scores depend on the others.
  bool normalised_over_tokens = false;
  TokenAxis token_axis;  // the same, with its evidence; or a replay of a router that normalises so

  // The recorded scores of a sequence are all equal: they belong to the sequence, not to the
  // tokens.
  bool scores_of_sequences = false;
  // Every expert that a token scores above zero took it, and no other: a threshold that is not
  // fitted.
  bool zero_decides = false;

  // Experts whose choices were all refused. The case no longer contains those choices.
  NothingKept nothing_kept;

  // Explanations of the refusals of full experts.
  FirstCome first_come;
  std::vector<RankedReplay> ranked;  // exact ones first
  bool rank_major_possible = false;  // too few choice ranks are known to exclude it
  LibraryTies library_ties;          // likewise
  CleanPatterns patterns;            // only tested if no replay fits
  PairCertificate certificate;       // likewise
  // Only tested if no replay fits: bits for a draw among all candidates against own refusals.
  double own_refusal_bits = 0;
  std::vector<StoredNumbers>
      stored;  // tables that give the same choices as a leaking replay that may be a proof
  bool stored_excluded = false;  // other pools and calls of the step exclude these tables
  // Equal counts may come from the data; only tested if capacity is not declared.
  bool structured = false;
  std::string inferred_pools;  // pools as the refusals show them ("... in chunks"); else empty

  // One of the contract's policy names.
  std::string policy = "unknown";
  std::string cause = "unknown";
  double explained_share = 0;
  double queue_share = 0;     // of the known choices, given by the best queue in time order
  std::string flatten_order;  // "seq-major", "batch-major" or empty
  bool flatten_contradicts = false;
  std::vector<std::string> assumptions;

  // Evidence that the capacity causes the refusals: infinite if declared, else the exhibited bits.
  double capacity_bits = 0;
  // True if the expert choice pattern applies: tokens have experts that their own scores did not
  // choose.
  bool columns() const { return c.kept_outside_choice && column.equal && column.separable; }
  // Returns the leaking policy with most bits that gives every choice. If there is none, returns
  // null.
  const RankedReplay* leak() const;
  // True if a leaking policy gives every choice as well as a clean one. A score that fits mostly by
  // its ties does not count against one queue over the pools.
  bool rival() const;
  // True if the kept set follows a score except for its ties, which decide almost all of it.
  bool by_ties() const;
  // True if refusals that no policy explains come from the capacity. A hot expert that drops some
  // of its input before its capacity refuses also leaves pairs. So at least `bits` must support a
  // draw among all candidates. Fewer bits are needed for a hint, or if the configuration names a
  // policy that is not a queue.
  bool drawn(double bits) const;
  // True if drawn(bits), and the inversions give at least `bits` against every cause except
  // capacity. 20 bits with all refusals counted are also enough, if at least one bit remains
  // without those that an own threshold may explain.
  bool pairs_speak(double bits) const;
  // Returns the bits of evidence of the inversions: experts below capacity refused nothing. If the
  // capacity and the pools are recorded, full experts do not hold that number by chance. Then
  // returns the bits for a draw among all candidates, against the first that own refusals left, if
  // these are more.
  double pair_bits() const;
  bool drawn_by_count() const;  // the latter case
  // True if pools are recorded row by row.
  bool firm_pools() const;
  // Returns which properties of the recording prevent that a replay of a policy that gives every
  // assignment is a proof. If there are none, returns an empty vector. Sentences, each with what to
  // record. `excluded_before` is true if calls of other steps exclude the stored tables.
  std::vector<std::string> doubts(bool excluded_before = false) const;
  // Returns how the user can decide between the explanations, for a finding's fix.
  std::string HowToSettle(bool excluded_before = false) const;

  // Bits that reach a prefix from the tokens after it, per layer and sequence. NaN if not known.
  double leak_bits = 0;

  // The message that a joined call was decoded from (`c` borrows it). If the message came from one
  // rank, null.
  std::shared_ptr<const v1::Routing> joined;

  // Returns the contract's keys, equal for every rule.
  google::protobuf::Struct Details() const;
};

// Analyses every item of the step with a sample, once for all rules. Entries are parallel to
// step.items. An entry is nullptr if there is no sample, or if the rows were joined with those of
// an earlier item (another rank of the same pool).
std::vector<std::shared_ptr<const RoutingAnalysis>> AnalyseRouting(const SiteStep& step);

// Returns why the recorded bias cannot be used as an innocent explanation, by its provenance. If it
// can, returns an empty string.
std::string BiasComplaint(const SiteStep& step, const RoutingCase& c);

// Returns the bits that flow into a prefix of a sequence of length L from its suffix, at the worst
// cut n. Every expert's count of admitted suffix tokens is one of min(C, n, L-n)+1 values; if
// rank-major, that of each choice rank except the last. For expert choice, the choice itself
// carries at most L E H2(C/T). Spec: leak size.
double LeakBits(const RoutingAnalysis& a);

// Returns a text such as "token 17 (sequence 3, position 17), score 0.31, lost expert 5 to token
// 903 (...), score 0.42".
google::protobuf::Struct Witness(const RoutingAnalysis& a, const RefusalPair& pair);

}  // namespace plumbline::analysis
