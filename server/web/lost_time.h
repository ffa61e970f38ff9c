// The time that ranks lost by an incident, if the server's data decide it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plumbline/v1/query.pb.h"

namespace plumbline::server {

struct LostTime {
  double rank_seconds = 0;
  std::string of;  // "8 ranks stood still for 340 s"
};

// What the server knows of a run when an incident of it is shown.
struct RunTimes {
  const v1::RunInfo* info = nullptr;
  int64_t now_unix_ns = 0;
  // Of each attempt: seconds of a median step, 0 if it is not known.
  std::vector<double> step_seconds = {};
  double longest_pause = 0;  // seconds, that the newest attempt recovered from; 0: not known
};

// Returns the time that was lost: as the rule measured it; from the beginning of a hang to its end;
// by steps that a later attempt repeated after a crash. nullopt: not known.
std::optional<LostTime> LostBy(const v1::Incident& incident, const v1::IncidentStatus& status,
                               const RunTimes& times);

}  // namespace plumbline::server
