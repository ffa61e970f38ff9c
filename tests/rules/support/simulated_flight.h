// A blocked job, as the flight recorders of its ranks show it. Ranks launch collectives ahead of
// the GPU, each to its own depth. Groups are the world, the data-parallel groups across stages, and
// the pipeline.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "plumbline/v1/batch.pb.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::rules::testing {

struct FlightSpec {
  int ranks = 8;
  int stages = 1;  // of a pipeline: sends and receives between rank and rank + ranks/stages
  int steps = 6;   // before the fault
  int ahead = 12;  // operations that a rank may have launched beyond the completed ones
  // "absent": a rank stops before a collective. "stuck": its collective does not end although its
  // peers' did. "shape", "dtype", "operation": what it passes in differs. "all": no rank gets out.
  // "times": its dump was written earlier than the others'. "order": it begins the collectives of
  // two groups in the other order. "sends": it and the next rank send to each other, and neither
  // receives. "uneven": an all-gather of uneven parts blocks all. "": no fault.
  std::string fault;
  int culprit = 5;
  int culprits = 1;    // number of culprits, from `culprit` on
  bool dump = true;    // the culprit left a dump
  bool young = false;  // written a moment after the launch of what is pending
  std::string poison;  // "numbers": sequence numbers and members outside all bounds
  uint64_t seed = 1;
};

// Sets one field, such as "ranks = 8". Throws std::runtime_error if the key is unknown.
void Set(FlightSpec& spec, const std::string& key, const std::string& value);

// Returns the records by rank, for ranks that left a dump.
std::map<uint32_t, v1::FlightRecorder> SimulatedFlight(const FlightSpec& spec);
v1::Batch FlightRun(const FlightSpec& spec);

}  // namespace plumbline::rules::testing
