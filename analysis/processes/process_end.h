// How the processes of one attempt of a run ended, as far as known, and the verdict of
// health/run-died (rules/health/run_died.cc). It depends on these facts alone, so live and offline
// results agree.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/archive.h"
#include "plumbline/v1/batch.pb.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::analysis {

inline constexpr char kRunDiedRule[] = "health/run-died";

// Stored in checkpoints.
enum class EndKind : uint8_t {
  kOpen = 0,         // its end is not known
  kWell = 1,         // it sent only a goodbye
  kStated = 2,       // it sent a goodbye and reported how it ends
  kGone = 3,         // no report: its connection ended with it
  kUnreachable = 4,  // it cannot be reached, but may be alive
};

struct ProcessEnd {
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::min();

  v1::Role role = v1::ROLE_UNSPECIFIED;
  uint32_t rank = 0;
  std::string host;
  EndKind way = EndKind::kOpen;
  v1::Ending stated;      // for kSaid; if very many reported, some have only `how` and the time
  bool followed = false;  // its report indicates that another process had ended: communication
                          // failed
  int64_t newest_step = kNever;
  int64_t complete_through = kNever;
  // The name and newest value of its loss, or of its first series.
  std::string series;
  int64_t value_step = kNever;
  double value = 0;
};

struct RunEnds {
  uint32_t attempt = 0;
  bool over = false;  // no more data can arrive
  // True if a later attempt has begun; processes without a report may still send one.
  bool superseded = false;
  // True if a host reported which processes are gone; nothing is inferred for the others.
  bool reported = false;
  int64_t window_steps = 64;
  std::vector<ProcessEnd> ends;  // by role and rank
};

// Returns true if another rank's death ended it, by the error texts of communication libraries.
bool ReadsLikeFollower(const v1::Ending& ending);

// Returns nullopt if there is nothing to report (no process reports progress, or all continue).
std::optional<v1::Verdict> DiedVerdict(const RunEnds& run);

}  // namespace plumbline::analysis
