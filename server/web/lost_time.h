// The time that ranks lost by an incident, if the server's data decide it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plumbline/v1/query.pb.h"
#include "server/incidents/incident_table.h"

namespace plumbline::server {

struct LostTime {
  double rank_seconds = 0;
  std::string of;        // "8 ranks made no step for 340 s"
  bool on_gpus = false;  // the rule that measured it knows that each of these ranks has a GPU
  bool operator==(const LostTime&) const = default;
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

// Returns LostBy of the incident. If that is not known, returns the longest of its symptoms: they
// are times of the same fault, so they are not added.
std::optional<LostTime> LostBy(const IncidentTable::Change& own,
                               const std::vector<const IncidentTable::Change*>& symptoms,
                               const RunTimes& times);

}  // namespace plumbline::server
