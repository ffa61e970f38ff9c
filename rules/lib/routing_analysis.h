// What can be said of one recorded router call, before any rule judges it. moe-future-leak and
// moe-batch-dependence read the same analysis.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rules/lib/routing_capacity.h"
#include "rules/lib/routing_case.h"
#include "rules/lib/routing_replay.h"
#include "rules/rule.h"

namespace plumbline::rules {

struct RoutingAnalysis {
  // Not empty: the call cannot be judged at all ("short-id: sentence"); only `details` is set then.
  std::string blocked;

  RoutingCase c;
  Saturation saturation;
  Inversions inversions;
  QueueReplay queue;
  Replay score;
  ColumnChoice column;

  // One of the contract's policy names.
  std::string policy = "unknown";
  double explained_share = 0;
  std::string flatten_order;  // "seq-major", "batch-major" or empty
  bool flatten_contradicts = false;
  std::vector<std::string> assumptions;

  // Capacity is shown to be what refuses: infinite when declared, the exhibited bits when pools are
  // recorded, 0 otherwise.
  double capacity_bits = 0;
  // The expert choice pattern applies: tokens hold experts that their own scores did not choose.
  bool columns() const { return c.kept_outside_choice && column.equal && column.separable; }

  // bits that reach a prefix from what follows it, per layer and sequence; NaN where not known.
  double leak_bits = 0;

  // The contract's keys, the same for both rules.
  google::protobuf::Struct Details() const;
};

// Analyses every item of the step that carries a sample, once for all rules that ask. Entries are
// parallel to step.items; nullptr where there is no sample.
std::vector<std::shared_ptr<const RoutingAnalysis>> AnalyseRouting(const SiteStep& step);

// The bias was recorded with a provenance that cannot acquit: empty when all is well.
std::string BiasComplaint(const SiteStep& step, const RoutingCase& c);

// "token 17 (sequence 3, position 17), score 0.31, lost expert 5 to token 903 (...), score 0.42".
google::protobuf::Struct Witness(const RoutingAnalysis& a, const RefusalPair& pair);

}  // namespace plumbline::rules
