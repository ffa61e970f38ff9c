// How the processes of one attempt of a run ended, as far as it is known, and what
// health/run-died says of it (rules/health/run_died.cc). A function of these facts alone, so that
// live and offline say the same.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/archive.h"
#include "plumbline/v1/batch.pb.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules {

inline constexpr char kRunDiedRule[] = "health/run-died";

// Stored in checkpoints.
enum class EndKind : uint8_t {
  kOpen = 0,         // nothing is known of its end
  kWell = 1,         // it said goodbye, and nothing else
  kSaid = 2,         // ... and how it ends
  kGone = 3,         // without a word: its connection ended with it
  kUnreachable = 4,  // it cannot be reached any more, and may live
};

struct ProcessEnd {
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::min();

  v1::Role role = v1::ROLE_UNSPECIFIED;
  uint32_t rank = 0;
  std::string host;
  EndKind way = EndKind::kOpen;
  v1::Ending said;  // of kSaid; where very many said something, of some only `how` and the time
  bool followed = false;  // what it said reads as if another had left it: communication failed
  int64_t newest_step = kNever;
  int64_t complete_through = kNever;
  // The newest value of its loss, or of the first series that it has.
  std::string series;
  int64_t value_step = kNever;
  double value = 0;
};

struct RunEnds {
  uint32_t attempt = 0;
  bool over = false;        // nothing can come any more
  bool superseded = false;  // a later attempt has begun: who has said nothing may do so yet
  bool told = false;        // a host told who is gone: of the others nothing else is concluded
  int64_t window_steps = 64;
  std::vector<ProcessEnd> ends;  // by role and rank
};

// Did another rank's death end it? By the words of communication libraries.
bool ReadsLikeFollower(const v1::Ending& ending);

// nullopt: there is nothing to say (nobody reports progress; or all go on).
std::optional<v1::Verdict> DiedVerdict(const RunEnds& run);

}  // namespace plumbline::rules
